"""The reward curve and its picture."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from drydock.report.curve import RewardCurve
from drydock.report.metrics import MetricsFile
from drydock.report.reward_graph import draw_reward_graph

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


def records(steps: int) -> list[dict]:
    rewards = [{"step": step, "reward/avg_raw_reward": step / 100} for step in range(1, steps + 1)]
    return [{"step": 0, "eval/all/avg_score": 0.1}, *rewards, {"step": steps, "eval/all/avg_score": 0.9}]


def test_windows_and_edges_by_hand() -> None:
    curve = RewardCurve.from_metrics(records(23))
    assert curve.windows() == [
        (1, 10, pytest.approx(0.055)),
        (11, 20, pytest.approx(0.155)),
        (21, 23, pytest.approx(0.22)),
    ]
    assert curve.mean_of_first(5) == pytest.approx(0.03)
    assert curve.mean_of_last(5) == pytest.approx(0.21)
    assert curve.evaluations == ((0, 0.1), (23, 0.9))


@pytest.mark.parametrize("steps", [0, 1, 12])
def test_both_pictures_are_drawn_and_nothing_partial_stays(tmp_path: Path, steps: int) -> None:
    svg, png = tmp_path / "g.svg", tmp_path / "g.png"
    draw_reward_graph(RewardCurve.from_metrics(records(steps) if steps else []), "run", svg, png)
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    assert png.read_bytes().startswith(PNG_MAGIC)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["g.png", "g.svg"]


def test_metrics_are_one_object_a_line_and_nan_is_null(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl")
    with caplog.at_level("INFO", logger="drydock.metrics"):
        file.write(1, {"reward/avg_raw_reward": 0.5, "x": float("nan")})
        file.write(2, {"reward/avg_raw_reward": None})
    assert file.read() == [
        {"step": 1, "reward/avg_raw_reward": 0.5, "x": None},
        {"step": 2, "reward/avg_raw_reward": None},
    ]
    assert "'reward/avg_raw_reward': 0.5" in caplog.text
