"""Values of a task.toml that Harbor takes and that no sandbox and no clock can honour.

A limit below zero ends a rollout before it began, one that is no number is no limit at all (and confuses the timers of
every rollout beside it), and an environment variable that no process can have breaks each command. None of that is the
fault of the agent or of the machine, so it is found before anything is started.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

from harbor.models.task.config import TaskConfig
from pydantic import BaseModel

from drydock.rollout.task_keys import Location

_VARIABLE = re.compile(r"[^=\0]+")
_MAY_BE_ZERO = ("interval_sec", "start_period_sec", "start_interval_sec", "memory_mb", "storage_mb", "cpus")


def unusable_values(config: TaskConfig) -> Iterator[tuple[Location, str]]:
    """The location of each value that cannot be meant, with what is wrong with it and what to write instead."""
    yield from _of_model(config, ())


def _of_model(model: BaseModel, above: Location) -> Iterator[tuple[Location, str]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        here = (*above, name)
        if isinstance(value, BaseModel):
            yield from _of_model(value, here)
        elif isinstance(value, list):
            for number, item in enumerate(value):
                if isinstance(item, BaseModel):
                    yield from _of_model(item, (*here, number))
        elif name == "env" and isinstance(value, dict):
            yield from _of_variables(value, here)
        elif name.endswith(("_sec", "_mb")) or name == "cpus":
            problem = _of_amount(value, may_be_zero=name in _MAY_BE_ZERO)
            if problem is not None:
                yield here, problem


def _of_amount(value: Any, *, may_be_zero: bool) -> str | None:
    if value is None or (may_be_zero and value == 0):
        return None
    if not math.isfinite(value) or value <= 0:
        return f"{value} is no amount; give a finite number above 0, or leave the key out"
    return None


def _of_variables(variables: dict[str, Any], here: Location) -> Iterator[tuple[Location, str]]:
    for name, value in variables.items():
        if not _VARIABLE.fullmatch(name):
            yield (*here, name), f"no process can have an environment variable called {name!r}; rename it"
        if "\0" in str(value):
            yield (*here, name), "the value holds a NUL character, which no environment variable can; take it out"
