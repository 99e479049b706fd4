"""Finding and keeping keys and values of token prefixes that were computed before.

Owners of computed prefixes are registered here with their tokens: running requests (whose keys and values live in
a slot) and finished ones (kept as copies, least recently used dropped first, bounded by a token budget). A lookup
answers with the owner that shares the longest prefix. It is found through a chain of hashes over blocks of 16
tokens, then verified and extended token by token, so a hash collision costs speed, never correctness.

A finished request replaces the stored ones that it extends: turn k+1 of a rollout takes the place of turn k.

Keys and values depend on the adapter that computed them. Each owner belongs to a space (a number); nothing is ever
found across spaces.

The states of some models (linear attention) cannot be cut: they serve only whoever continues all of their tokens. A
cache that is `whole` finds only such owners, and keeps every state, since none takes the place of another.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 16

type Tokens = NDArray[np.int32]


@dataclass(slots=True, eq=False)
class PrefixOwner:
    """tokens: ids whose keys and values the owner holds. chain: of the tokens, in the owner's space (`block_chain`).
    content: as the decoder's slots read and write it, None while it lives in a slot.
    """

    tokens: Tokens
    chain: list[int]
    routing_key: str | None
    content: Any
    space: int = 0


class PrefixCache:
    """Index of computed prefixes, and the store of those of finished requests.

    budget_tokens: stored tokens at most; running requests are not counted. whole: see the module.
    """

    def __init__(self, budget_tokens: int, *, whole: bool = False) -> None:
        self.budget_tokens = budget_tokens
        self.whole = whole
        self.stored_tokens = 0
        self._by_block: dict[int, dict[int, PrefixOwner]] = {}
        self._by_routing_key: dict[tuple[int, str], PrefixOwner] = {}
        self._stored: OrderedDict[int, PrefixOwner] = OrderedDict()

    def __len__(self) -> int:
        return len(self._stored)

    def find(
        self, tokens: Tokens, chain: Sequence[int], routing_key: str | None, space: int = 0
    ) -> tuple[PrefixOwner | None, int]:
        """The owner that shares the longest prefix with `tokens`, and its length (0 and None below one block)."""
        best: tuple[PrefixOwner | None, int] = (None, 0)
        candidates = [self._by_routing_key.get((space, routing_key))] if routing_key is not None else []
        depth = self.depth(chain)
        if depth:
            candidates.append(next(reversed(self._by_block[chain[depth - 1]].values())))
        if self.whole:
            candidates = [
                owner
                for length, block in enumerate(chain[:depth], 1)
                for owner in self._by_block[block].values()
                if len(owner.chain) == length
            ]
        for owner in candidates:
            if owner is not None and owner.space == space:
                shared = _common_prefix(owner.tokens, tokens)
                if self.whole and not shared == len(owner.tokens) < len(tokens):
                    continue
                if shared > best[1] and shared >= BLOCK:
                    best = (owner, shared)
        if best[0] is not None and id(best[0]) in self._stored:
            self._stored.move_to_end(id(best[0]))
        return best

    def depth(self, chain: Sequence[int]) -> int:
        """Number of leading blocks of `chain` that some owner holds."""
        low, high = 0, len(chain)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if chain[middle - 1] in self._by_block else (low, middle - 1)
        return low

    def register(self, owner: PrefixOwner) -> None:
        """Make a running request's computed tokens findable."""
        for block in owner.chain:
            self._by_block.setdefault(block, {})[id(owner)] = owner

    def unregister(self, owner: PrefixOwner) -> None:
        """Forget an owner, stored or running; no-op for one that is not known."""
        for block in owner.chain:
            owners = self._by_block.get(block)
            if owners is not None and owners.pop(id(owner), None) is not None and not owners:
                del self._by_block[block]
        if self._stored.pop(id(owner), None) is not None:
            self.stored_tokens -= len(owner.tokens)
        if (key := _routing(owner)) is not None and self._by_routing_key.get(key) is owner:
            del self._by_routing_key[key]

    def wants(self, tokens: Tokens, chain: Sequence[int], space: int = 0) -> bool:
        """Whether storing `tokens` would add anything."""
        if len(tokens) < BLOCK or len(tokens) > self.budget_tokens:
            return False
        if self.whole:
            same = self._by_block.get(chain[-1], {}).values()
            return not any(owner.space == space and np.array_equal(owner.tokens, tokens) for owner in same)
        owner, shared = self.find(tokens, chain, None, space)
        return not (owner is not None and owner.content is not None and shared == len(tokens))

    def store(self, owner: PrefixOwner) -> None:
        """Keep a finished request's keys and values, in place of stored ones that it extends (unless `whole`)."""
        key = _routing(owner)
        extended = [self._by_routing_key.get(key)] if key is not None else []
        depth = self.depth(owner.chain)
        if depth:
            extended.extend(self._by_block[owner.chain[depth - 1]].values())
        for old in extended:
            if old is None or old.content is None or old.space != owner.space:
                continue
            if not self.whole and _extends(owner.tokens, old.tokens):
                self.unregister(old)
        self.register(owner)
        self._stored[id(owner)] = owner
        self.stored_tokens += len(owner.tokens)
        if key is not None:
            self._by_routing_key[key] = owner
        while self.stored_tokens > self.budget_tokens:
            self.unregister(next(iter(self._stored.values())))

    def clear(self) -> None:
        """Forget everything."""
        self.stored_tokens = 0
        self._by_block.clear()
        self._by_routing_key.clear()
        self._stored.clear()


def block_chain(tokens: Tokens, known: Sequence[int] = (), space: int = 0) -> list[int]:
    """Hashes of the prefixes of 16, 32, ... tokens. `known`: the first of them, if already computed."""
    chain = list(known)
    link = chain[-1] if chain else space
    data = tokens.tobytes()
    size = BLOCK * tokens.itemsize
    for start in range(len(chain) * size, len(data) - size + 1, size):
        link = hash((link, data[start : start + size]))
        chain.append(link)
    return chain


def _routing(owner: PrefixOwner) -> tuple[int, str] | None:
    return None if owner.routing_key is None else (owner.space, owner.routing_key)


def _common_prefix(a: Tokens, b: Tokens) -> int:
    shorter = min(len(a), len(b))
    different = a[:shorter] != b[:shorter]
    first = int(different.argmax()) if shorter else 0
    return first if shorter and different[first] else shorter


def _extends(longer: Tokens, shorter: Tokens) -> bool:
    return len(longer) >= len(shorter) and bool((longer[: len(shorter)] == shorter).all())
