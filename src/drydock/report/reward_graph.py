"""reward_graph.svg and .png: the curve of a run as a picture."""

from pathlib import Path

from drydock.report.curve import RewardCurve
from drydock.report.graph import step_graph

REWARD, MEAN, EVALUATION = "#9db4c8", "#1f4e79", "#c8553d"


def draw_reward_graph(curve: RewardCurve, title: str, svg: Path, png: Path) -> None:
    """Draw reward a step, its ten-step means and the evaluations."""
    with step_graph(title, "mean reward", svg, png) as axes:
        if curve.rewards:
            steps, rewards = zip(*curve.rewards, strict=True)
            axes.plot(steps, rewards, color=REWARD, marker="o", markersize=3, linewidth=1, label="reward of a step")
            for index, (first, last, mean) in enumerate(curve.windows()):
                label = "mean of ten steps" if index == 0 else "_repeated"
                axes.hlines(mean, first - 0.4, last + 0.4, color=MEAN, linewidth=2.5, label=label)
                place = ((first + last) / 2, mean)
                axes.annotate(f"{mean:.2f}", place, (0, 5), textcoords="offset points", color=MEAN, ha="center")
        if curve.evaluations:
            steps, scores = zip(*curve.evaluations, strict=True)
            axes.plot(steps, scores, color=EVALUATION, marker="D", markersize=6, linestyle=":", label="held-out tasks")
            for step, score in curve.evaluations:
                axes.annotate(f"{score:.2f}", (step, score), (7, -12), textcoords="offset points", color=EVALUATION)
