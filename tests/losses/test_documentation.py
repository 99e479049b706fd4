"""docs/losses.md names every loss, every key with its default, and every context tensor."""

import re
from enum import Enum
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from drydock.engine.context_tensors import TENSORS
from drydock.losses import LOSSES, OffPolicyCorrection

PAGE = (Path(__file__).parents[2] / "docs" / "losses.md").read_text()
MODELS: dict[str, type[BaseModel]] = {name: entry.config for name, entry in LOSSES.items()}


def shown(default: object) -> str:
    """A default as a table cell."""
    if default is PydanticUndefined:
        return "required"
    if default is None:
        return ""
    value = default.value if isinstance(default, Enum) else default
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


@pytest.mark.parametrize("name", [*MODELS, "off_policy_correction"])
def test_every_key_stands_there_with_its_default(name: str):
    assert f"`{name}`" in PAGE
    for key, field in (MODELS | {"off_policy_correction": OffPolicyCorrection})[name].model_fields.items():
        if name == "rollout_is" and key == "eps_clip":
            assert "`eps_clip` (`0.2`)" in PAGE
            continue
        row = re.search(rf"^\| `{key}`(?: ◆)? \| (?P<default>.*?) ?\| ", PAGE, re.MULTILINE)
        assert row, key
        assert row["default"] == shown(field.default), key


def test_every_context_tensor_stands_there():
    for name in TENSORS:
        assert name in PAGE, name
