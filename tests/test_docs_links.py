"""Pages that users read: every local link leads somewhere, nothing is left to be filled in."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_local_links_lead_somewhere_and_no_blank_is_left(page: Path) -> None:
    text = page.read_text()
    targets = [target for target in LINK.findall(text) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []
    assert not re.search(r"@[A-Z]+@|TODO|FIXME", text)
