#!/bin/bash
cat > /app/roman.py << 'END'
"""Roman numerals."""

NUMERALS = {
    "M": 1000, "CM": 900, "D": 500, "CD": 400, "C": 100, "XC": 90,
    "L": 50, "XL": 40, "X": 10, "IX": 9, "V": 5, "IV": 4, "I": 1,
}


def to_roman(n):
    if isinstance(n, bool) or not 1 <= n <= 3999:
        raise ValueError(f"{n} has no Roman numeral")
    text = ""
    for letters, value in NUMERALS.items():
        while n >= value:
            text += letters
            n -= value
    return text


ALL = {to_roman(n): n for n in range(1, 4000)}


def from_roman(text):
    try:
        return ALL[text.upper()]
    except KeyError:
        raise ValueError(f"{text!r} is no Roman numeral") from None
END
