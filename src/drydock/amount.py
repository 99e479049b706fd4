"""A number with its noun, as messages write it."""


def amount(number: int, noun: str, plural: str | None = None) -> str:
    """`1 step`, `0 steps`, `2 steps`; `plural` where it is not the noun and an s."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
