"""Modes as chmod(1) and --chmod write them: `755`, `u+x`, `go-w`, `a=rX`, several joined by commas."""

import re

_OCTAL = re.compile("[0-7]{3,4}")
_CLAUSE = re.compile("([ugoa]*)([-+=])([rwxX]*)")
_SHIFTS = {"u": 6, "g": 3, "o": 0}
_BITS = {"r": 4, "w": 2, "x": 1}


def is_mode(text: str) -> bool:
    """Whether `text` is a mode in either notation."""
    return bool(_OCTAL.fullmatch(text)) or all(_CLAUSE.fullmatch(clause) for clause in text.split(","))


def apply_mode(text: str, mode: int, *, directory: bool) -> int:
    """Permission bits that `text` makes of `mode`; "" leaves them."""
    if not text:
        return mode
    if _OCTAL.fullmatch(text):
        return int(text, 8)
    for clause in text.split(","):
        found = _CLAUSE.fullmatch(clause)
        if found is None:
            raise ValueError(f"{text} is no mode")
        bits = sum(_BITS[letter] for letter in set(found[3]) & set(_BITS))
        if "X" in found[3] and (directory or mode & 0o111):
            bits |= 1
        for who in set("ugo" if not found[1] or "a" in found[1] else found[1]):
            shift = _SHIFTS[who]
            if found[2] == "=":
                mode &= ~(7 << shift)
            mode = mode & ~(bits << shift) if found[2] == "-" else mode | (bits << shift)
    return mode
