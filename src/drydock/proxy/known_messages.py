"""The messages of a rollout's latest request, so that the part of a history that comes again is not read again.

Reading a message costs much more than comparing it with one that was read; and what is the same object compares at no
cost in the ledger. The JSON of a body is still parsed whole, which is done in C.
"""

from collections.abc import Callable, Sequence
from itertools import chain

from drydock.chat.messages import Message

type Parse = Callable[[object, int], Sequence[Message]]


class KnownMessages:
    """Belongs to one rollout."""

    def __init__(self) -> None:
        self._parse: Parse | None = None
        self._raw: Sequence[object] = ()
        self._read: list[Sequence[Message]] = []

    def read(self, raw: Sequence[object], parse: Parse) -> tuple[Message, ...]:
        """The messages in `raw`; `parse` gives those of the raw message at a place, and raises what it raises."""
        common = 0
        for new, known in zip(raw, self._raw if parse is self._parse else (), strict=False):
            if new != known:
                break
            common += 1
        read = self._read[:common]
        read += [parse(raw[place], place) for place in range(common, len(raw))]
        self._parse, self._raw, self._read = parse, raw, read
        return tuple(chain.from_iterable(read))
