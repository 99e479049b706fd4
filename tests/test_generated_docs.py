"""Pages that are made from the code say what the code says."""

from collections.abc import Callable
from pathlib import Path

import pytest

from drydock.training.config_reference import reference
from drydock.training.service_reference import job_reference, settings_reference

PAGES = {"configuration": reference, "service-settings": settings_reference, "job-configuration": job_reference}


@pytest.mark.parametrize(("name", "made"), PAGES.items())
def test_the_page_is_current(name: str, made: Callable[[], str]):
    page = Path(__file__).parents[1] / "docs" / f"{name}.md"
    assert page.read_text(encoding="utf-8") == made(), "run `make docs`"


@pytest.mark.parametrize("made", PAGES.values(), ids=PAGES)
def test_every_key_says_what_it_means(made: Callable[[], str]):
    assert [line for line in made().splitlines() if line.startswith("| `") and line.endswith("|  |")] == []
