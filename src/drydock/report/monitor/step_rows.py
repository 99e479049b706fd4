"""metrics.jsonl as the view needs it: a short row a step, evaluations, sums of usage; taken in record by record."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from drydock.report.used import Used

METRICS = {
    "reward": "reward/avg_raw_reward",
    "graded": "rollouts/graded",
    "masked": "rollouts/masked",
    "signal": "reward/groups_with_signal",
    "turns": "generate/avg_turns",
    "tokens": "generate/avg_num_tokens",
    "mismatch": "mismatch/logprob_diff_max",
    "staleness": "staleness/mean",
    "entropy": "policy/policy_entropy",
    "grad_norm": "policy/raw_grad_norm",
    "loss": "train/loss",
    "trained_tokens": "train/trained_tokens",
    "learning_rate": "policy/policy_lr",
    "seconds": "timing/step",
}
SCORES = ("eval/all/avg_score", "eval/loss")
"""Of an evaluation of rollouts, and of held-out conversations."""

_RECENT = 10


class StepRow(NamedTuple):
    """A training step; what was not measured is None. findings: checks of the diagnosis that saw something."""

    step: int
    findings: int
    reward: float | None
    graded: float | None
    masked: float | None
    signal: float | None
    turns: float | None
    tokens: float | None
    mismatch: float | None
    staleness: float | None
    entropy: float | None
    grad_norm: float | None
    loss: float | None
    trained_tokens: float | None
    learning_rate: float | None
    seconds: float | None


class Evaluation(NamedTuple):
    """step: after which it was made, 0 before the first. score: mean reward or loss, None where nothing was graded."""

    step: int
    score: float | None
    low: float | None
    high: float | None
    seconds: float | None


@dataclass(slots=True)
class StepRows:
    """All records so far. last: the record of the last training step. evaluated_last: the newest is an evaluation."""

    rows: list[StepRow] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    used: Used = field(default_factory=Used)
    last: Mapping[str, Any] = field(default_factory=dict)
    evaluated_last: bool = False

    def add(self, record: Mapping[str, Any]) -> None:
        """Take in a record, which has a whole number `step`."""
        self.used.add({key: value for key, value in record.items() if number(value) is not None})
        name = next((name for name in SCORES if name in record), None)
        self.evaluated_last = name is not None
        if name is not None:
            measured = [number(record.get(key)) for key in (name, "eval/all/ci_low", "eval/all/ci_high", "timing/eval")]
            self.evaluations.append(Evaluation(record["step"], *measured))
            return
        findings = sum(key.startswith("diagnosis/") for key in record)
        measured = [number(record.get(metric)) for metric in METRICS.values()]
        self.rows.append(StepRow(record["step"], findings, *measured))
        self.last = record

    @property
    def step(self) -> int:
        """The last step that is done, 0 before the first."""
        return self.rows[-1].step if self.rows else 0

    @property
    def step_s(self) -> float | None:
        """What a step takes: the median of the last ten."""
        return _median([row.seconds for row in self.rows[-_RECENT:]])

    @property
    def evaluation_s(self) -> float | None:
        """What an evaluation takes: the median of the last ten."""
        return _median([one.seconds for one in self.evaluations[-_RECENT:]])


def number(value: object) -> float | None:
    """A finite number as it is, anything else as None; so is a whole number that no float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
