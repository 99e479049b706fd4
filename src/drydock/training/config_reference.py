"""docs/configuration.md, made from the configuration models: `python -m drydock.training.config_reference`."""

from collections.abc import Iterator
from typing import get_origin

from pydantic import BaseModel

from drydock.training.config import RunConfig, WarmStartStage
from drydock.training.config_file import section_model
from drydock.training.config_tables import key_table
from drydock.training.sft.config import SftConfig

INTRODUCTION = """\
# Configuration

Every key of a run's TOML file, and of `section.key=value` on the command line. Unknown keys are refused, with the
nearest known name. Paths in the file are relative to the file, paths on the command line to the working directory.
This page is made from the configuration models (`make docs`). The keys of `drydock train` come first, then those of
`drydock sft`.
"""

SFT_INTRODUCTION = """\
# Supervised fine-tuning

Every key of the TOML file of `drydock sft`, and of its `section.key=value`.
"""


def reference() -> str:
    """The page as Markdown."""
    parts = [INTRODUCTION]
    parts.extend(_sections(RunConfig))
    parts.append("## `[[warm_start]]`\n")
    parts.append("Supervised fine-tuning before reinforcement learning, one table a stage, in order.\n")
    parts.append(key_table(WarmStartStage))
    parts.append(SFT_INTRODUCTION)
    parts.extend(_sections(SftConfig))
    return "\n".join(parts)


def _sections(config: type[BaseModel]) -> Iterator[str]:
    for name, field in config.model_fields.items():
        inner = section_model(field.annotation)
        if inner is not None and get_origin(field.annotation) is not list:
            yield from _section(field.alias or name, inner)


def _section(dotted: str, model: type[BaseModel]) -> Iterator[str]:
    if any(section_model(field.annotation) is None for field in model.model_fields.values()):
        yield f"## `[{dotted}]`\n"
        yield key_table(model)
    for name, field in model.model_fields.items():
        inner = section_model(field.annotation)
        if inner is not None:
            yield from _section(f"{dotted}.{field.alias or name}", inner)


if __name__ == "__main__":
    print(reference(), end="")
