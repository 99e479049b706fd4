"""Why a request does not extend the history that was recorded.

The reason names the first difference between the request and the recorded history that it has most in common with.
docs/branches.md says of each what the harness did.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from drydock.chat.messages import Message
from drydock.proxy.matching import Replay, replay_of
from drydock.proxy.tool_set import ToolSet

if TYPE_CHECKING:
    from drydock.proxy.segment import Segment


class BranchReason(StrEnum):
    """Why a request did not extend the history that was there."""

    NEW_CONVERSATION = "new_conversation"
    TOOLS_CHANGED = "tools_changed"
    SYSTEM_CHANGED = "system_changed"
    USER_CHANGED = "user_changed"
    TOOL_CHANGED = "tool_changed"
    ASSISTANT_CHANGED = "assistant_changed"
    REASONING_CHANGED = "reasoning_changed"
    CALL_REPAIRED = "call_repaired"
    TOOL_CALLS_MISSING = "tool_calls_missing"
    TURN_DROPPED = "turn_dropped"
    HISTORY_SHORTENED = "history_shortened"
    HISTORY_CONDENSED = "history_condensed"
    HISTORY_REWRITTEN = "history_rewritten"
    THINKING_STRIPPED = "thinking_stripped"
    TEMPLATE_REWRITES = "template_rewrites"


_CHANGED = {
    "system": BranchReason.SYSTEM_CHANGED,
    "user": BranchReason.USER_CHANGED,
    "tool": BranchReason.TOOL_CHANGED,
    "assistant": BranchReason.ASSISTANT_CHANGED,
}
_REPLAYED = {
    Replay.TEXT_CHANGED: BranchReason.ASSISTANT_CHANGED,
    Replay.REASONING_CHANGED: BranchReason.REASONING_CHANGED,
    Replay.CALLS_MISSING: BranchReason.TOOL_CALLS_MISSING,
    Replay.CALL_REPAIRED: BranchReason.CALL_REPAIRED,
}


def branch_reason(
    siblings: "Sequence[Segment]", rest: Sequence[Message], tools: ToolSet, shown: "Sequence[Segment]"
) -> BranchReason:
    """Name the first difference between what a request has and what was recorded at the place where it leaves.

    siblings: the segments recorded there, at least one. rest: the request's messages from there on, and `shown` the
    recorded turns that are seen among them, in order.
    """
    rival = next((ancestor for turn in shown for ancestor in turn.path if ancestor in siblings), None)
    if rival is None:
        rival = next((sibling for sibling in reversed(siblings) if _begins_alike(sibling, rest, tools)), None)
    if rival is None and siblings[0].parent is None:
        same = any(sibling.given == tuple(rest) for sibling in siblings)
        return BranchReason.TOOLS_CHANGED if same else BranchReason.NEW_CONVERSATION
    rival = rival or siblings[-1]
    if rival.tools is not tools:
        return BranchReason.TOOLS_CHANGED
    return _difference(rival, rest, later=bool(shown) and rival not in shown)


def _begins_alike(sibling: "Segment", rest: Sequence[Message], tools: ToolSet) -> bool:
    common = min(len(rest), len(sibling.given))
    return sibling.tools is tools and tuple(rest[:common]) == sibling.given[:common]


def _difference(rival: "Segment", rest: Sequence[Message], *, later: bool) -> BranchReason:
    """later: the request shows turns that come after the one of `rival`, but not that one."""
    for expected, got in zip(rival.given, rest, strict=False):
        if expected != got:
            if later:
                return BranchReason.HISTORY_CONDENSED
            return _CHANGED[got.role] if expected.role == got.role else BranchReason.HISTORY_REWRITTEN
    if len(rest) <= len(rival.given):
        return BranchReason.HISTORY_SHORTENED
    if rival.said is None:
        return BranchReason.TURN_DROPPED
    replay = replay_of(rival.said, rest, len(rival.given))
    if replay is Replay.ABSENT:
        condensed = any(child.turn is not None for child in rival.children)
        return BranchReason.HISTORY_CONDENSED if condensed else BranchReason.TURN_DROPPED
    if later:
        return BranchReason.HISTORY_CONDENSED
    return _REPLAYED.get(replay, BranchReason.HISTORY_REWRITTEN)
