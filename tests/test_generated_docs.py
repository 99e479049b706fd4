"""Pages that are made from the code say what the code says."""

from pathlib import Path

from drydock.training.config_reference import reference


def test_the_configuration_page_is_current():
    page = Path(__file__).parents[1] / "docs" / "configuration.md"
    assert page.read_text(encoding="utf-8") == reference(), "run `make docs`"
