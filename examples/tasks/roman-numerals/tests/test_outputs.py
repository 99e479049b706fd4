import sys

import pytest

sys.path.insert(0, "/app")
from roman import from_roman, to_roman

KNOWN = {1: "I", 4: "IV", 9: "IX", 14: "XIV", 40: "XL", 90: "XC", 400: "CD", 1994: "MCMXCIV", 3999: "MMMCMXCIX"}


@pytest.mark.parametrize(("n", "text"), KNOWN.items())
def test_known(n, text):
    assert to_roman(n) == text
    assert from_roman(text) == n
    assert from_roman(text.lower()) == n


def test_every_number_comes_back():
    assert [from_roman(to_roman(n)) for n in range(1, 4000)] == list(range(1, 4000))


@pytest.mark.parametrize("n", [0, -1, 4000, True, False])
def test_numbers_that_have_no_numeral(n):
    with pytest.raises(ValueError):
        to_roman(n)


@pytest.mark.parametrize("text", ["", "IIII", "IC", "VX", "IXI", "MMMM", "A", "X X", "VV", "IIX"])
def test_texts_that_are_no_numeral(text):
    with pytest.raises(ValueError):
        from_roman(text)
