import sys

import pytest

sys.path.insert(0, "/app")
import pages


@pytest.mark.parametrize(("total", "size", "count"), [(0, 5, 1), (1, 5, 1), (5, 5, 1), (6, 5, 2), (10, 5, 2), (3, 1, 3)])
def test_page_count(total, size, count):
    assert pages.page_count(total, size) == count


def test_page():
    items = list(range(1, 12))
    assert pages.page(items, 1, 5) == [1, 2, 3, 4, 5]
    assert pages.page(items, 3, 5) == [11]
    assert pages.page(items, 99, 5) == [11]
    assert pages.page(items, -1, 5) == [1, 2, 3, 4, 5]
    assert pages.page([], 1, 5) == []
    assert pages.page(items[:10], 9, 5) == [6, 7, 8, 9, 10]


def test_links():
    assert pages.links(1, 1) == [1]
    assert pages.links(1, 3) == [1, 2, 3]
    assert pages.links(10, 20) == [1, None, 8, 9, 10, 11, 12, None, 20]
    assert pages.links(5, 20) == [1, 2, 3, 4, 5, 6, 7, None, 20]
    assert pages.links(16, 20) == [1, None, 14, 15, 16, 17, 18, 19, 20]
    assert pages.links(1, 20, around=1) == [1, 2, None, 20]
    assert pages.links(6, 20) == [1, None, 4, 5, 6, 7, 8, None, 20]


def test_errors():
    for function in (lambda: pages.page_count(3, 0), lambda: pages.page([1], 1, 0)):
        with pytest.raises(ValueError):
            function()
