"""The layout of a run's folder (`CKPT_DIR`)."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Split = Literal["train", "eval"]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where a run named `run_name` keeps everything, below `root`."""

    root: Path
    run_name: str

    @property
    def config(self) -> Path:
        return self.root / "config.toml"

    @property
    def log(self) -> Path:
        return self.root / f"{self.run_name}.log"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def job_id(self) -> Path:
        return self.root / "job_id"

    @property
    def launcher_pid(self) -> Path:
        return self.root / "launcher.pid"

    @property
    def graph_svg(self) -> Path:
        return self.root / "reward_graph.svg"

    @property
    def graph_png(self) -> Path:
        return self.root / "reward_graph.png"

    @property
    def service_state(self) -> Path:
        return self.root / "service"

    def trajectories(self, step: int, split: Split) -> Path:
        return self.root / "trajectories" / f"step_{step}" / split

    def checkpoint(self, step: int) -> Path:
        return self.root / "checkpoints" / f"step_{step}"


def copy_checkpoint(source: Path, target: Path) -> Path:
    """Put a local service's checkpoint into the run's folder, whole or not at all; hard links where possible."""

    def link_or_copy(one: str, other: str) -> None:
        try:
            os.link(one, other)
        except OSError:
            shutil.copy2(one, other)

    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, partial, copy_function=link_or_copy)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    return target
