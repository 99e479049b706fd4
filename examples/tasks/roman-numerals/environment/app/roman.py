"""Roman numerals."""

NUMERALS = {"M": 1000, "D": 500, "C": 100, "L": 50, "X": 10, "V": 5, "I": 1}


def to_roman(n):
    text = ""
    for letter, value in NUMERALS.items():
        while n > value:
            text += letter
            n -= value
    return text


def from_roman(text):
    total = 0
    for letter in text:
        total += NUMERALS[letter]
    return total
