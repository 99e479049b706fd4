import stat
import sys
from pathlib import Path

import pytest

sys.path.insert(0, "/app")
from slug import slugify

CASES = {"Hello, World!": "hello-world", "  Crème  brûlée ": "creme-brulee", "Straße 7": "strasse-7", "a--b__c": "a-b-c", "你好": "", "": ""}


@pytest.mark.parametrize(("text", "expected"), CASES.items())
def test_slug(text, expected):
    assert slugify(text) == expected


def test_the_group_can_write():
    for path in [Path("/app/slug"), *Path("/app/slug").glob("*.py")]:
        status = path.stat()
        assert path.owner() == "author"
        assert path.group() == "reviewer"
        assert status.st_mode & stat.S_IWGRP
