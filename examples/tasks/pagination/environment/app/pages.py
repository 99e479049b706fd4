"""Pages of a list, numbered from 1."""


def page_count(total, size):
    """How many pages `total` items need with `size` of them on a page; 1 when there are none."""
    _check(size)
    return total // size + 1


def page(items, number, size):
    """The items of a page. A number below 1 means the first page, one above the last means the last."""
    _check(size)
    number = max(1, min(number, page_count(len(items), size)))
    return items[(number - 1) * size : number * size - 1]


def links(number, count, around=2):
    """The page numbers to show: the first, the last, and `around` on both sides of `number`; None for a gap.

    A gap that would hide a single page shows that page instead.
    """
    shown = [n for n in range(1, count) if n in (1, count) or abs(n - number) <= around]
    result = []
    for n in shown:
        if result and n - result[-1] > 1:
            result.append(None)
        result.append(n)
    return result


def _check(size):
    if size < 1:
        raise ValueError("a page holds at least one item")
