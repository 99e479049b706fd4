"""Numbers as the view words them."""


def figure(value: float | None, form: str) -> str:
    """A number in a format; empty where it was not measured."""
    return "" if value is None else format(value, form)
