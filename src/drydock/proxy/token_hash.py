"""A running SHA-256 over token ids, each as four little-endian bytes.

Running, because the prompts of a rollout are prefixes of each other and hashing each from its start would be
quadratic. Works on a copy, so one prefix can be continued in several ways.
"""

import hashlib
import sys
from array import array
from collections.abc import Sequence
from typing import Self


class TokenHash:
    """The hash of a token sequence so far. Immutable: `extended` returns a new one."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = hashlib.sha256()

    def extended(self, ids: Sequence[int]) -> Self:
        """The hash after `ids` more."""
        longer = type(self)()
        longer._state = self._state.copy()
        packed = array("I", ids)
        if sys.byteorder == "big":
            packed.byteswap()
        longer._state.update(packed)
        return longer

    @property
    def hex(self) -> str:
        """The digest as hexadecimal text."""
        return self._state.hexdigest()
