"""What a template does with a conversation as it grows, found out at load by rendering small ones.

Training needs to know it before the first rollout: whether thinking of earlier turns disappears, whether a turn begins
inside a thinking block, and when the text of what was already said changes. The last is looked for in conversations
with and without a system message and tools, through tool results and user messages. Where a change would be noticed
when it happens (`HistoryRewritten`), it is listed; where it would not be, the template is refused.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from drydock.chat.continuation import ContinuationText, HistoryRewritten
from drydock.chat.messages import ToolCall
from drydock.chat.reasoning import MARKS
from drydock.chat.special_text import SpecialText
from drydock.chat.template_text import CALL_ID, MARK, PROBE_TOOLS, USER, TemplateText, call_turn
from drydock.errors import TemplateError

_SYSTEM: dict[str, Any] = {"role": "system", "content": "probe system"}
_RESULT: dict[str, Any] = {"role": "tool", "content": "probe result", "tool_call_id": CALL_ID, "name": "probe"}
_CALL = ToolCall(CALL_ID, "probe", "{}")
_EMPTY_THINKING = re.compile(r"<think>\s*</think>\s*")


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """generation_prompt: text that follows a last user message to ask for a turn.

    opens_reasoning: whether that text ends inside a thinking block. strips_reasoning: whether the thinking of turns
    before the last user message is left out. rewrites_history: situations in which the text of what was said before
    changes, so that a new branch with the full rendering is needed; each as a clause ("a user message follows").
    """

    generation_prompt: str
    opens_reasoning: bool
    strips_reasoning: bool
    rewrites_history: tuple[str, ...]


def find_generation_prompt(text: TemplateText, special: SpecialText) -> str:
    """Text that asks for a turn after a user message; begins where a special token does, not within it."""
    asked, plain = text.render([USER], None, True), text.render([USER], None, False)
    return asked[special.token_start(asked, _shared(asked, plain)) :]


def probe(text: TemplateText, continuation: ContinuationText, generation_prompt: str, origin: str) -> TemplateFacts:
    """Find the facts. Raises TemplateError for a template that rewrites history where nothing would notice it."""
    return TemplateFacts(
        generation_prompt=generation_prompt,
        opens_reasoning=any(marks.left_open_by(generation_prompt) for marks in MARKS),
        strips_reasoning=_strips_reasoning(text),
        rewrites_history=tuple(dict.fromkeys(_rewrites(text, continuation, generation_prompt, origin))),
    )


def _strips_reasoning(text: TemplateText) -> bool:
    if text.reasoning_key is not None:
        turn = {"role": "assistant", "content": "probe", "reasoning_content": MARK}
    else:
        turn = {"role": "assistant", "content": f"<think>\n{MARK}\n</think>\n\nprobe"}
    return MARK not in text.render([USER, turn, USER], None, True)


def _rewrites(text: TemplateText, continuation: ContinuationText, generation_prompt: str, origin: str) -> Iterator[str]:
    for tools in (None, PROBE_TOOLS) if text.shows_tools else (None,):
        for start in ([USER], [_SYSTEM, USER]):
            if not text.accepts(start, tools):
                continue
            messages: list[dict[str, Any]] = list(start)
            for turn, added, event in _steps(text):
                longer = [*messages, turn, added]
                if not text.accepts(longer, tools):
                    continue
                situation = f"{event} follows{', with tools' if tools else ''}"
                try:
                    end, rest = continuation.after_turn([added], tools, str(bool(tools)), _calls(turn))
                except HistoryRewritten:
                    yield situation
                else:
                    before, after = text.render(messages, tools, True), text.render(longer, tools, True)
                    if not after.endswith(end + rest) or not _extends(before, after, generation_prompt):
                        raise TemplateError(
                            f"the chat template of {origin} writes earlier turns of a longer conversation differently "
                            f"when {situation}; it cannot be continued token-exactly"
                        )
                messages = longer


def _steps(text: TemplateText) -> Iterator[tuple[dict[str, Any], dict[str, Any], str]]:
    """Turns, what the harness adds after each, and what that is called."""
    calling = (call_turn("", {"key": "value"}), _RESULT, "a tool result")
    reply = {"role": "assistant", "content": "probe reply"}
    second, third = (
        (reply, {"role": "user", "content": f"{order} probe"}, "a user message") for order in ("2nd", "3rd")
    )
    if text.shows_calls and text.accepts([USER, calling[0], _RESULT]):
        yield from (calling, calling, second, calling, third)
    else:
        yield from (second, third)


def _extends(before: str, after: str, generation_prompt: str) -> bool:
    """Whether `after` begins with `before`, but for the generation prompt and empty thinking blocks."""
    before, after = _EMPTY_THINKING.sub("", before), _EMPTY_THINKING.sub("", after)
    return generation_prompt.endswith(before[_shared(before, after) :])


def _shared(one: str, other: str) -> int:
    """How many characters both begin with."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _calls(turn: dict[str, Any]) -> Sequence[ToolCall]:
    return (_CALL,) if "tool_calls" in turn else ()
