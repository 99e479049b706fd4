"""docs/configuration.md says what the configuration models say."""

from pathlib import Path

from drydock.training.config_file import known_keys
from drydock.training.config_reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "docs/configuration.md is stale: run `make docs`"


def test_every_key_is_on_the_page() -> None:
    page = reference()
    for key in known_keys():
        section, _, name = key.rpartition(".")
        heading = f"## `[[{section}]]`" if section == "warm_start" else f"## `[{section}]`"
        assert heading in page, key
        assert f"| `{name}` |" in page.partition(heading)[2].partition("\n## ")[0], key
