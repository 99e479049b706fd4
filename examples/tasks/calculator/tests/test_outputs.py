import re
import sys
from fractions import Fraction
from pathlib import Path

import pytest

sys.path.insert(0, "/app")
from calc import CalcError, evaluate

RIGHT = {
    "1+2*3": 7,
    "(1+2)*3": 9,
    "8/4/2": 1,
    "7-3-2": 2,
    "1/3": Fraction(1, 3),
    ".5 + 2.50": 3,
    "0.1+0.2": Fraction(3, 10),
    "-2^2": -4,
    "(-2)^2": 4,
    "2^-1": Fraction(1, 2),
    "2^3^2": 512,
    "2^(4/2)": 4,
    "--3": 3,
    "+-+3": -3,
    "2*-3": -6,
    " 1\t+\n1 ": 2,
    "min(3, 1+1, 5)": 2,
    "max(1)": 1,
    "abs(-1/2)": Fraction(1, 2),
    "max(min(1,2),abs(-3))": 3,
    "rate*hours": 150,
    "minutes+1": 61,
    "0^0": 1,
    "-2^-2": Fraction(-1, 4),
}
WRONG = {
    "": 0,
    "   ": 3,
    "1+": 2,
    "(1": 2,
    "1)": 1,
    "1 2": 2,
    "*1": 0,
    "speed*2": 0,
    "1+speed": 2,
    "1.2.3": 3,
    "min(1,)": 6,
    "1 $ 2": 2,
}
ERRORS = ["1/0", "1/(2-2)", "2^(1/2)", "0^-1", "abs(1,2)", "min()", "abs()", "min", "unknown(1)", "rate(1)", "1,2", ".", "()", "2 3", "1e3"]
NAMES = {"rate": 25, "hours": 6, "minutes": Fraction(60)}


@pytest.mark.parametrize(("text", "value"), RIGHT.items())
def test_value(text, value):
    found = evaluate(text, NAMES)
    assert isinstance(found, Fraction)
    assert found == value


@pytest.mark.parametrize(("text", "position"), WRONG.items())
def test_position(text, position):
    with pytest.raises(CalcError) as error:
        evaluate(text, {})
    assert error.value.position == position


@pytest.mark.parametrize("text", ERRORS)
def test_error(text):
    with pytest.raises(CalcError) as error:
        evaluate(text, NAMES)
    assert isinstance(error.value, ValueError)
    assert 0 <= error.value.position <= len(text)


def test_deep_nesting():
    try:
        assert evaluate("(" * 10_000 + "1" + ")" * 10_000) == 1
    except CalcError:
        pass


def test_nothing_forbidden_is_used():
    assert not re.search(r"(?<![\w.])(eval|exec|compile)\s*\(|\bast\b", Path("/app/calc.py").read_text())
