"""Numbers with their nouns and times with their units, as messages write them."""


def amount(number: int, noun: str, plural: str | None = None) -> str:
    """`1 step`, `0 steps`, `2 steps`; `plural` where it is not the noun and an s."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def duration(seconds: float) -> str:
    """A time to two units at most: `8.3 s`, `2 min 10 s`, `3 h 20 min`, `2 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, name, below, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {name}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"
