"""The text of a given assistant message as a policy would have sampled it: the difference of two renderings.

They are the conversation with the message, and the conversation before it with the generation prompt.
"""

from collections.abc import Sequence
from typing import Any

from drydock.chat.special_text import SpecialText
from drydock.chat.template_text import TemplateText
from drydock.errors import TemplateError


def written_turn(
    text: TemplateText,
    special: SpecialText,
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]] | None,
    *,
    end: str | None,
    origin: str,
) -> str:
    """The last message of `messages` without its end, for `SpecialText.encode`.

    end: the token that the template writes at the end of this turn, None where it writes none.
    Raises TemplateError where the renderings do not show the turn exactly.
    """
    place = f"(messages[{len(messages) - 1}])"
    before = text.render_hidden(messages[:-1], tools, True)
    whole = text.render_hidden(messages, tools, False)
    turn, found, rest = whole.removeprefix(before), "", ""
    if end is not None:
        turn, found, rest = turn.rpartition(end)
    if not whole.startswith(before) or (end is not None and not found):
        raise TemplateError(
            f"the chat template of {origin} does not write an assistant turn after its generation prompt {place}; it "
            "cannot be tokenized as the policy would sample it"
        )
    if rest.strip():
        raise TemplateError(
            f"the chat template of {origin} writes {rest[:20]!r} after the end of an assistant turn {place}, so what "
            "the policy would sample cannot be told exactly"
        )
    if messages[-1].get("reasoning_content", "").strip() not in special.shown(turn):
        raise TemplateError(
            f"the chat template of {origin} does not write reasoning_content {place}; write the thinking into content, "
            "as the model is to say it"
        )
    return turn
