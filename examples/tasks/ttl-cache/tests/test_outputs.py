import sys
import time

import pytest

sys.path.insert(0, "/app")
from ttl_cache import TTLCache


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_stores_and_forgets(clock):
    cache = TTLCache(3, 10, clock)
    cache.put("a", 1)
    clock.now += 9.5
    assert cache.get("a") == 1
    clock.now += 0.5
    assert cache.get("a") is None
    assert cache.get("a", "none") == "none"
    assert len(cache) == 0


def test_put_prolongs_and_get_does_not(clock):
    cache = TTLCache(3, 10, clock)
    cache.put("a", 1)
    cache.put("b", 1)
    clock.now += 6
    cache.get("a")
    cache.put("b", 2)
    clock.now += 6
    assert "a" not in cache
    assert cache.get("b") == 2


def test_drops_the_longest_unused(clock):
    cache = TTLCache(2, 10, clock)
    cache.put("a", 1)
    cache.put("b", 2)
    assert "a" in cache
    cache.get("b")
    cache.get("a")
    cache.put("c", 3)
    assert [cache.get(key) for key in "abc"] == [1, None, 3]


def test_contains_is_no_use(clock):
    cache = TTLCache(2, 10, clock)
    cache.put("a", 1)
    cache.put("b", 2)
    assert "a" in cache
    cache.put("c", 3)
    assert "a" not in cache


def test_drops_expired_entries_first(clock):
    cache = TTLCache(2, 10, clock)
    cache.put("a", 1)
    clock.now += 5
    cache.put("b", 2)
    cache.get("a")
    clock.now += 6
    cache.put("c", 3)
    assert "b" in cache
    assert len(cache) == 2


def test_a_stored_none_is_a_value(clock):
    cache = TTLCache(2, 10, clock)
    cache.put("a", None)
    assert cache.get("a", "default") is None
    assert "a" in cache


@pytest.mark.parametrize(("capacity", "ttl"), [(0, 1), (-1, 1), (1, 0), (1, -2)])
def test_refuses(capacity, ttl):
    with pytest.raises(ValueError):
        TTLCache(capacity, ttl)


def test_is_fast_when_large(clock):
    cache = TTLCache(100_000, 1e9, clock)
    for n in range(100_000):
        cache.put(n, n)
    started = time.perf_counter()
    for n in range(2_000):
        cache.put(-n - 1, n)
        cache.get(n)
    assert time.perf_counter() - started < 5
