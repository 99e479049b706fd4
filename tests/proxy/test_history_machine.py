"""Random histories of agents through real sessions, over every template family.

After every step: the policy was asked under the tokens that one rendering of the whole conversation gives, with the
sampled tokens in their places; a request that equals an earlier one sampled nothing; the record says where the turn
belongs and why. At the end of a history: every sampled token is trained once, under the prompt that it was sampled
under, and the audit is clean.
"""

import logging
from functools import partial
from pathlib import Path

import pytest
from builders.chat_families import FAMILIES
from builders.histories.checked_rollout import Loaded
from builders.histories.history_machine import HistoryMachine
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from drydock.chat.reply_reader import reader_for

SEARCH = (Phase.generate,)
"""Add Phase.shrink to see the smallest history that fails; that takes minutes."""


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Refusals are warnings, and there are many."""
    caplog.set_level(logging.ERROR, logger="drydock")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


def _loaded(name: str, folder: Path) -> Loaded:
    template = FAMILIES[name](folder / name)
    return Loaded(FAMILIES[name], template, reader_for(template))


def _drive(loaded: Loaded, histories: int, steps: int, tally: dict[str, int] | None = None) -> None:
    run_state_machine_as_test(
        partial(HistoryMachine, loaded, tally),
        settings=settings(
            max_examples=histories,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=tally is None,
            phases=SEARCH,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_histories(name: str, folder: Path) -> None:
    _drive(_loaded(name, folder), histories=30, steps=10)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", FAMILIES)
def test_many_histories(name: str, folder: Path) -> None:
    """A thousand of each family, other ones each time; `-s` shows what they came to."""
    tally: dict[str, int] = dict.fromkeys(("histories", "requests", "turns", "repeats", "refused"), 0)
    _drive(_loaded(name, folder), histories=1000, steps=12, tally=tally)
    print(f"\n{name}: {tally}")
    assert tally["histories"] >= 1000
