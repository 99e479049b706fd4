"""reward_graph.svg and .png: the curve of a run as a picture."""

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from drydock.atomic import replace_file
from drydock.report.curve import RewardCurve

REWARD, MEAN, EVALUATION, INK = "#9db4c8", "#1f4e79", "#c8553d", "#333333"


def draw_reward_graph(curve: RewardCurve, title: str, svg: Path, png: Path) -> None:
    """Draw reward a step, its ten-step means and the evaluations; written atomically, without a display."""
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if curve.rewards:
        steps, rewards = zip(*curve.rewards, strict=True)
        axes.plot(steps, rewards, color=REWARD, marker="o", markersize=3, linewidth=1, label="reward of a step")
        for index, (first, last, mean) in enumerate(curve.windows()):
            label = "mean of ten steps" if index == 0 else "_repeated"
            axes.hlines(mean, first - 0.4, last + 0.4, color=MEAN, linewidth=2.5, label=label)
            axes.annotate(
                f"{mean:.2f}", ((first + last) / 2, mean), (0, 5), textcoords="offset points", color=MEAN, ha="center"
            )
    if curve.evaluations:
        steps, scores = zip(*curve.evaluations, strict=True)
        axes.plot(steps, scores, color=EVALUATION, marker="D", markersize=6, linestyle=":", label="held-out tasks")
        for step, score in curve.evaluations:
            axes.annotate(f"{score:.2f}", (step, score), (7, -12), textcoords="offset points", color=EVALUATION)
    axes.set_title(title, color=INK, loc="left")
    axes.set_xlabel("training step")
    axes.set_ylabel("mean reward")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if curve.rewards or curve.evaluations:
        axes.legend(frameon=False, loc="best")
    for file in (svg, png):
        with replace_file(file, durable=False) as temporary:
            figure.savefig(temporary, format=file.suffix[1:], metadata={"Date": None} if file is svg else None)
