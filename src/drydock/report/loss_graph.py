"""loss_graph.svg and .png: the losses of a supervised run, read from its metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from drydock.atomic import replace_file

TRAINING, EVALUATION, INK = "#1f4e79", "#c8553d", "#333333"


@dataclass(frozen=True, slots=True)
class LossCurve:
    """training: (step, loss of its batch); evaluations: (step, loss of held-out conversations), step 0 = before."""

    training: tuple[tuple[int, float], ...]
    evaluations: tuple[tuple[int, float], ...]

    @classmethod
    def from_metrics(cls, records: Sequence[dict[str, Any]]) -> Self:
        """The curve that metrics.jsonl tells."""

        def series(name: str) -> tuple[tuple[int, float], ...]:
            return tuple((record["step"], record[name]) for record in records if record.get(name) is not None)

        return cls(series("train/loss"), series("eval/loss"))


def draw_loss_graph(curve: LossCurve, title: str, svg: Path, png: Path) -> None:
    """Draw both losses; written atomically, without a display."""
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if curve.training:
        axes.plot(*zip(*curve.training, strict=True), color=TRAINING, linewidth=1.2, label="training batch")
    if curve.evaluations:
        style = {"marker": "D", "markersize": 5, "linestyle": ":"}
        axes.plot(*zip(*curve.evaluations, strict=True), color=EVALUATION, label="held-out conversations", **style)
    axes.set_title(title, color=INK, loc="left")
    axes.set_xlabel("training step")
    axes.set_ylabel("loss (nats a token)")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if curve.training or curve.evaluations:
        axes.legend(frameon=False, loc="best")
    for file in (svg, png):
        with replace_file(file, durable=False) as temporary:
            figure.savefig(temporary, format=file.suffix[1:], metadata={"Date": None} if file is svg else None)
