"""A small mapping that forgets its least recently used entry."""

from collections import OrderedDict


class BoundedCache[Key, Value]:
    """Keeps the `size` most recently used values. Used from one thread."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """The value of `key`, now the most recent one, or None."""
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: Key, value: Value) -> Value:
        """Keep `value` under `key` and return it."""
        self._entries[key] = value
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)
        return value
