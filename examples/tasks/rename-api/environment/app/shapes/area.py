"""Areas of shapes given as tuples: ("square", side) or ("rectangle", width, height)."""


def calc(s):
    """The area of a shape; calc(("square", 2)) is 4."""
    match s:
        case ("square", side):
            return side * side
        case ("rectangle", width, height):
            return width * height
        case _:
            raise ValueError(f"calc: unknown shape {s!r}")
