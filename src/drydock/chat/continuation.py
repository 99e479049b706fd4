"""What follows a sampled assistant turn in the text of a conversation, once the harness has added messages.

The template is applied to a short conversation that ends in a stand-in for the sampled turn, followed by the new
messages. The text after the stand-in, from the end of its turn on, is what has to follow the tokens that were really
sampled. How the template dresses the stand-in itself (a thinking block that is hidden later, say) does not matter,
because the sampled tokens stand in its place. Everything before the turn must be as it was without the new messages;
where it is not, the template rewrites history and there is no continuation.
"""

from collections.abc import Sequence
from typing import Any

from drydock.bounded_cache import BoundedCache
from drydock.chat.messages import ToolCall
from drydock.chat.special_text import SpecialText
from drydock.chat.template_text import MARK, USER, TemplateText, call_turn
from drydock.chat.turn_ending import TurnEnding
from drydock.errors import TemplateError

_STARTS = 64


class HistoryRewritten(TemplateError):
    """The template writes what came before a turn differently once these messages follow it.

    The conversation can still be rendered in full, as a new branch.
    """


class ContinuationText:
    """The texts of continuations under one template. generation_prompt: what the template asks for a turn with."""

    def __init__(
        self, text: TemplateText, special: SpecialText, ending: TurnEnding, generation_prompt: str, origin: str
    ) -> None:
        self._text = text
        self._special = special
        self._ending = ending
        self._generation_prompt = generation_prompt
        self._origin = origin
        self._starts: BoundedCache[str, str] = BoundedCache(_STARTS)

    def after_turn(
        self,
        added: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] | None,
        tools_key: str,
        calls: Sequence[ToolCall],
    ) -> tuple[str, str]:
        """The token that ends the turn (or, without one, begins the next message) and the text after that token.

        calls: of the sampled turn. Raises HistoryRewritten, and TemplateError where the template refuses `added`.
        """
        if not (calls and self._text.shows_calls and any(message.get("role") == "tool" for message in added)):
            return self._after(added, tools, tools_key, {"role": "assistant", "content": MARK})
        try:
            return self._after(added, tools, tools_key, _stand_in(calls))
        except TemplateError:
            if len(calls) == 1:
                raise
        # a template that allows one call a turn is shown the last one, which its results follow
        return self._after(added, tools, tools_key, _stand_in(calls[-1:]))

    def _after(
        self,
        added: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] | None,
        tools_key: str,
        turn: dict[str, Any],
    ) -> tuple[str, str]:
        before = self._starts.get(tools_key)
        if before is None:
            asked = self._text.render_hidden([USER], tools, True)
            before = self._starts.put(tools_key, asked.removesuffix(self._generation_prompt))
        full = self._text.render_hidden([USER, turn, *added], tools, True)
        head, found, tail = full.partition(MARK)
        if not found or MARK in tail or not head.startswith(before):
            raise self._rewritten(added)
        end = self._end_of_turn(tail, has_calls="tool_calls" in turn)
        token = self._special.leading(tail, end) if end >= 0 else None
        if token is None:
            raise self._rewritten(added)
        return token, tail[end + len(token) :]

    def _end_of_turn(self, tail: str, *, has_calls: bool) -> int:
        """Where the turn ends in the text after the mark; negative where it does not."""
        if not has_calls:
            return 0
        if self._ending.own_token:
            return tail.find(self._ending.after_calls)
        return min((place for token in self._special.flagged if (place := tail.find(token)) >= 0), default=-1)

    def _rewritten(self, added: Sequence[dict[str, Any]]) -> HistoryRewritten:
        return HistoryRewritten(
            f"the chat template of {self._origin} rewrites earlier turns when messages with roles "
            f"{[message.get('role') for message in added]} follow; it cannot be continued token-exactly"
        )


def _stand_in(calls: Sequence[ToolCall]) -> dict[str, Any]:
    """An assistant message with calls of these names and ids, the mark in the last one's arguments."""
    made = [call_turn("", {}, name=call.name, identity=call.id)["tool_calls"][0] for call in calls[:-1]]
    last = call_turn("", {"key": MARK}, name=calls[-1].name, identity=calls[-1].id)
    return {**last, "tool_calls": [*made, *last["tool_calls"]]}
