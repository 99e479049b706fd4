"""Loss names of the wire, each with its strict settings and its function.

A closed table: a client names an entry, never a dotted import path.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from drydock.errors import ConfigError
from drydock.losses.base import LossFunction
from drydock.losses.cross_entropy import CrossEntropyConfig, cross_entropy_loss
from drydock.losses.grpo import GrpoConfig, grpo_loss


@dataclass(frozen=True, slots=True)
class LossEntry:
    """config: model of the settings. needs_advantages: whether `context.advantages` must be sent."""

    name: str
    config: type[BaseModel]
    function: LossFunction
    needs_advantages: bool


LOSSES: dict[str, LossEntry] = {
    entry.name: entry
    for entry in (
        LossEntry("grpo", GrpoConfig, grpo_loss, needs_advantages=True),
        LossEntry("causal_cross_entropy", CrossEntropyConfig, cross_entropy_loss, needs_advantages=False),
    )
}


def resolve_loss(name: str, settings: Mapping[str, Any] | None = None) -> tuple[LossEntry, BaseModel]:
    """The entry called `name` and its validated settings.

    Raises ConfigError for an unknown name or key (offering the nearest known one) and for a value out of range.
    """
    entry = LOSSES.get(name)
    if entry is None:
        raise ConfigError(f"unknown loss_fn {name!r}{_nearest(name, LOSSES)}; known: {', '.join(sorted(LOSSES))}")
    settings = dict(settings or {})
    for key in settings:
        if key not in entry.config.model_fields:
            raise ConfigError(f"{name}: unknown setting {key!r}{_nearest(key, entry.config.model_fields)}")
    try:
        return entry, entry.config.model_validate(settings)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']} (got {e['input']!r})" for e in error.errors())
        raise ConfigError(f"{name}: {problems}") from None


def _nearest(word: str, known: Mapping[str, Any]) -> str:
    matches = get_close_matches(word, known, n=1)
    return f" (did you mean {matches[0]!r}?)" if matches else ""
