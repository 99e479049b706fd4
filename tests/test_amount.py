import pytest

from drydock.amount import amount, duration


def test_a_noun_follows_its_number():
    assert [amount(number, "step") for number in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]
    assert [amount(number, "pass", "passes") for number in (1, 3)] == ["1 pass", "3 passes"]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0.0 s"),
        (8.31, "8.3 s"),
        (9.99, "10.0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (130, "2 min 10 s"),
        (3600, "1 h"),
        (12_000, "3 h 20 min"),
        (187_200, "2 d 4 h"),
    ],
)
def test_a_time_has_two_units_at_most(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
