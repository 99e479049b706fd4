import random
import sys

import pytest

sys.path.insert(0, "/app")
from intervals import IntervalSet


def numbers(s):
    return {n for start, end in s for n in range(start, end)}


def test_touching_intervals_are_one():
    assert list(IntervalSet([(5, 7), (1, 3), (3, 5), (9, 9)])) == [(1, 7)]


def test_repr():
    assert repr(IntervalSet([(7, 9), (1, 4)])) == "IntervalSet([(1, 4), (7, 9)])"
    assert repr(IntervalSet()) == "IntervalSet([])"


def test_refuses_reversed_pairs():
    for action in (lambda: IntervalSet([(2, 1)]), lambda: IntervalSet().add(2, 1), lambda: IntervalSet().remove(2, 1)):
        with pytest.raises(ValueError):
            action()


def test_huge_numbers():
    s = IntervalSet([(0, 10**12)])
    s.remove(10**11, 2 * 10**11)
    assert len(s) == 9 * 10**11
    assert 10**11 not in s
    assert 10**11 - 1 in s
    assert 2 * 10**11 in s
    assert 10**12 not in s


def test_agrees_with_sets_of_numbers():
    draw = random.Random(7)
    for _ in range(200):
        sets, plain = [], []
        for _ in range(2):
            s, p = IntervalSet(), set()
            for _ in range(draw.randrange(12)):
                start = draw.randrange(40)
                end = start + draw.randrange(10)
                if draw.random() < 0.65:
                    s.add(start, end)
                    p |= set(range(start, end))
                else:
                    s.remove(start, end)
                    p -= set(range(start, end))
            assert numbers(s) == p
            assert len(s) == len(p)
            assert all((n in s) == (n in p) for n in range(-1, 55))
            pairs = list(s)
            assert all(a[1] < b[0] for a, b in zip(pairs, pairs[1:]))
            sets.append(s)
            plain.append(p)
        (s, t), (p, q) = sets, plain
        before = list(s), list(t)
        assert numbers(s | t) == p | q
        assert numbers(s & t) == p & q
        assert numbers(s - t) == p - q
        assert (list(s), list(t)) == before
        assert (s == t) == (p == q)
        assert s == IntervalSet(list(s))
