import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drydock.engine.prefix_cache import BLOCK, PrefixCache, PrefixOwner, block_chain


def owner(tokens: list[int], key: str | None = None) -> PrefixOwner:
    array = np.asarray(tokens, np.int32)
    kv = torch.zeros(1, len(tokens), 1)
    return PrefixOwner(array, block_chain(array), key, [(kv, kv)])


def find(cache: PrefixCache, tokens: list[int], key: str | None = None) -> tuple[PrefixOwner | None, int]:
    array = np.asarray(tokens, np.int32)
    return cache.find(array, block_chain(array), key)


def test_the_longest_common_prefix_is_found_past_the_last_whole_block():
    cache = PrefixCache(1000)
    first, second = owner([1] * 40), owner([1] * 32 + [2] * 20)
    cache.store(first)
    cache.store(second)
    assert find(cache, [1] * 32 + [2] * 9 + [3]) == (second, 41)
    assert find(cache, [9] * 50) == (None, 0)


def test_a_routing_key_finds_what_shares_less_than_another_block():
    cache = PrefixCache(1000)
    mine, other = owner([1] * 20 + [4] * 10, "me"), owner([1] * 20 + [5] * 11)
    cache.store(mine)
    cache.store(other)
    assert find(cache, [1] * 20 + [4] * 10 + [6], "me") == (mine, 30)


def test_a_turn_replaces_the_turn_that_it_extends():
    cache = PrefixCache(1000)
    cache.store(owner([1] * 30, "a"))
    cache.store(owner([1] * 60, "a"))
    assert (len(cache), cache.stored_tokens) == (1, 60)
    cache.store(owner([1] * 90))
    assert (len(cache), cache.stored_tokens) == (1, 90)


def test_the_least_recently_used_goes_first():
    cache = PrefixCache(100)
    for token in (1, 2, 3):
        cache.store(owner([token] * 32))
    find(cache, [1] * 32)
    cache.store(owner([4] * 32))
    assert [find(cache, [token] * 32)[1] for token in (1, 2, 3, 4)] == [32, 0, 32, 32]


def test_what_adds_nothing_is_not_wanted():
    cache = PrefixCache(100)
    cache.store(owner([1] * 64))
    for tokens, wanted in (([1] * 48, False), ([1] * 70, True), ([2] * 101, False), ([2] * (BLOCK - 1), False)):
        array = np.asarray(tokens, np.int32)
        assert cache.wants(array, block_chain(array)) is wanted


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 1), max_size=5), st.integers(0, 20), st.sampled_from([None, "a", "b"])),
        max_size=15,
    ),
    st.integers(0, 200),
)
def test_the_index_stays_within_budget_and_never_lies(requests, budget: int):
    cache = PrefixCache(budget)
    for blocks, extra, key in requests:
        tokens = [token for block in blocks for token in [block] * BLOCK] + [7] * extra
        found, shared = find(cache, tokens, key)
        if found is not None:
            assert shared >= BLOCK
            assert found.tokens[:shared].tolist() == tokens[:shared]
        array = np.asarray(tokens, np.int32)
        if cache.wants(array, block_chain(array)):
            cache.store(owner(tokens, key))
        assert cache.stored_tokens <= budget
        assert cache.stored_tokens == sum(len(stored.tokens) for stored in cache._stored.values())
    for stored in list(cache._stored.values()):
        cache.unregister(stored)
    assert not cache._by_block
    assert not cache._by_routing_key
    assert cache.stored_tokens == 0
