"""Which turn of an endpoint a request goes on from: told by messages alone, since there are no tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

from drydock.chat.messages import Message
from drydock.chat.parsers.base import ParsedReply
from drydock.proxy.branching import BranchReason
from drydock.proxy.same_call import same_call


@dataclass(frozen=True, slots=True)
class Place:
    """parent: the turn that is continued, None for none. given: the messages after it. branch: its number."""

    parent: int | None
    given: tuple[Message, ...]
    branch: int
    reason: BranchReason | None


class EndpointHistory:
    """The conversations of one rollout, each with the reply that it got."""

    def __init__(self) -> None:
        self._turns: list[tuple[tuple[Message, ...], int]] = []
        self._continued: set[int | None] = set()
        self._branches = 0

    def place(self, messages: tuple[Message, ...]) -> Place:
        """Where a request belongs, the longest history that it extends."""
        held = [(len(history), index) for index, (history, _) in enumerate(self._turns) if _extends(messages, history)]
        length, parent = max(held, default=(0, None))
        if parent is not None and parent not in self._continued:
            return Place(parent, messages[length:], self._turns[parent][1], None)
        reason = None
        if self._turns:
            reason = BranchReason.NEW_CONVERSATION if parent is None else BranchReason.HISTORY_REWRITTEN
        return Place(parent, messages[length:], self._branches, reason)

    def add(self, place: Place, messages: tuple[Message, ...], reply: ParsedReply) -> None:
        """Remember a turn that was answered."""
        said = Message("assistant", reply.content or "", reply.calls, reasoning=reply.reasoning or "")
        self._turns.append(((*messages, said), place.branch))
        self._continued.add(place.parent)
        self._branches = max(self._branches, place.branch + 1)


def _extends(messages: Sequence[Message], history: Sequence[Message]) -> bool:
    return len(messages) > len(history) and all(map(_same, history, messages))


def _same(known: Message, shown: Message) -> bool:
    """Whether a message is shown as it was; an assistant's may be written anew, without its reasoning."""
    if known == shown:
        return True
    if known.role != "assistant" or shown.role != "assistant" or known.text.strip() != shown.text.strip():
        return False
    if len(known.calls) != len(shown.calls):
        return False
    pairs = zip(known.calls, shown.calls, strict=True)
    return all(one.id == other.id and same_call(one, other) for one, other in pairs)
