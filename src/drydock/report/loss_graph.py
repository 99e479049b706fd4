"""loss_graph.svg and .png: the losses of a supervised run, read from its metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from drydock.report.graph import step_graph
from drydock.report.metrics import series

TRAINING, EVALUATION = "#1f4e79", "#c8553d"


@dataclass(frozen=True, slots=True)
class LossCurve:
    """training: (step, loss of its batch); evaluations: (step, loss of held-out conversations), step 0 = before."""

    training: tuple[tuple[int, float], ...]
    evaluations: tuple[tuple[int, float], ...]

    @classmethod
    def from_metrics(cls, records: Sequence[dict[str, Any]]) -> Self:
        """The curve that metrics.jsonl tells."""
        return cls(series(records, "train/loss"), series(records, "eval/loss"))


def draw_loss_graph(curve: LossCurve, title: str, svg: Path, png: Path) -> None:
    """Draw both losses."""
    with step_graph(title, "loss (nats a token)", svg, png) as axes:
        if curve.training:
            axes.plot(*zip(*curve.training, strict=True), color=TRAINING, linewidth=1.2, label="training batch")
        if curve.evaluations:
            style = {"marker": "D", "markersize": 5, "linestyle": ":"}
            axes.plot(*zip(*curve.evaluations, strict=True), color=EVALUATION, label="held-out conversations", **style)
