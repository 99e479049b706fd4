from roman import from_roman, to_roman


def test_small_numbers():
    assert to_roman(1) == "I"
    assert to_roman(6) == "VI"


def test_back():
    assert from_roman("VI") == 6
