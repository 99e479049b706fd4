"""The layout of a run's folder (`CKPT_DIR`)."""

import asyncio
import itertools
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from drydock.errors import ConfigError

_SETTING = "trainer.ckpt_path (CKPT_DIR)"

Split = Literal["train", "eval"]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where a run named `run_name` keeps everything, below `root`."""

    root: Path
    run_name: str

    @classmethod
    def of(cls, ckpt_path: Path | None, run_name: str) -> Self:
        """`ckpt_path`, else `runs/<run_name>`, from the working directory."""
        return cls((ckpt_path or Path("runs") / run_name).resolve(), run_name)

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
    def evaluation(self) -> Path:
        """The report of an evaluation on its own."""
        return self.root / "evaluation.json"

    @property
    def job_id(self) -> Path:
        return self.root / "job_id"

    @property
    def launcher_pid(self) -> Path:
        """The driver's process id, a bare number; only there while the run goes on, or when its driver was killed."""
        return self.root / "launcher.pid"

    @property
    def launcher(self) -> Path:
        """Which process `launcher_pid` names, whatever machine looks at it (`drydock.report.driver_process`)."""
        return self.root / "launcher.json"

    @property
    def graph_svg(self) -> Path:
        return self.root / "reward_graph.svg"

    @property
    def graph_png(self) -> Path:
        return self.root / "reward_graph.png"

    @property
    def loss_svg(self) -> Path:
        return self.root / "loss_graph.svg"

    @property
    def loss_png(self) -> Path:
        return self.root / "loss_graph.png"

    @property
    def resume_point(self) -> Path:
        return self.root / "resume.json"

    def resume_point_of(self, step: int) -> Path:
        """What the driver knew when the resumable checkpoint of `step` was complete."""
        return self.root / "resume" / f"step_{step}.json"

    def resumable_steps(self) -> list[int]:
        """The steps after which the run can go on, in order."""
        found = (self.root / "resume").glob("step_*.json")
        return sorted(int(file.stem.removeprefix("step_")) for file in found)

    def set_aside_after(self, step: int) -> Path | None:
        """Move the trajectories of later steps out of the way of a run that goes on from `step`; where they are now."""
        folders = (self.root / "trajectories").glob("step_*")
        later = [one for one in folders if int(one.name.removeprefix("step_")) > step]
        if not later:
            return None
        numbers = itertools.count(1)
        aside = next(one for n in numbers if not (one := self.root / "set_aside" / str(n)).exists())
        aside.mkdir(parents=True)
        for one in later:
            one.rename(aside / one.name)
        return aside

    @property
    def dropped_tasks(self) -> Path:
        """Tasks that the run goes on without, one JSON object a line; only there when there are any."""
        return self.root / "dropped_tasks.jsonl"

    @property
    def diagnosis(self) -> Path:
        """What the checks of the steps found, one JSON object a line; only there when they found something."""
        return self.root / "diagnosis.jsonl"

    @property
    def service_state(self) -> Path:
        return self.root / "service"

    def check(self) -> None:
        """Raises ConfigError when the folder cannot become a run's; nothing is changed."""
        if not self.root.exists():
            return
        if not self.root.is_dir():
            raise ConfigError(f"{_SETTING}: {self.root} is a file; name a folder")
        if any(self.root.iterdir()) and not self.config.is_file():
            raise ConfigError(f"{_SETTING}: {self.root} is not empty and holds no earlier run; name another folder")
        pid = _number_in(self.launcher_pid)
        if pid is not None and Path(f"/proc/{pid}").exists():
            raise ConfigError(
                f"{_SETTING}: a run is going on in {self.root} (process {pid}); name another folder, or delete "
                f"{self.launcher_pid} if that process is something else"
            )

    def open(self) -> Path | None:
        """Make the folder. An earlier run in it is kept under another name, which is returned."""
        kept = None
        if self.config.exists():
            numbers = itertools.count(1)
            kept = next(one for n in numbers if not (one := self.root.with_name(f"{self.root.name}.{n}")).exists())
            self.root.rename(kept)
        self.root.mkdir(parents=True, exist_ok=True)
        return kept

    @property
    def turns(self) -> Path:
        """Logs of turns whose rollout has no trajectory file yet; what a killed driver leaves of them is here."""
        return self.root / "turns"

    def turn_log(self, rollout_id: str) -> Path:
        """The log that the chat proxy keeps of a rollout's turns, written before each reply."""
        return self.turns / f"{rollout_id}.jsonl"

    @property
    def shard_logs(self) -> Path:
        """What the shards printed that ran the rollouts; only there where a run had any."""
        return self.root / "shards"

    def trajectories(self, step: int, split: Split) -> Path:
        return self.root / "trajectories" / f"step_{step}" / split

    def checkpoint(self, step: int) -> Path:
        return self.root / "checkpoints" / f"step_{step}"

    def saved_checkpoints(self) -> list[Path]:
        """The checkpoints in the folder, oldest step first."""
        found = (self.root / "checkpoints").glob("step_*")
        return sorted(found, key=lambda folder: int(folder.name.removeprefix("step_")))


async def keep_checkpoint(details: Mapping[str, Any], target: Path) -> Path | None:
    """Copy a checkpoint that was just saved into the run's folder, as `target`.

    details: the service's answer to the save. None where its folder is not on this machine.
    """
    source = Path(str(details.get("checkpoint_path") or ""))
    if not (source.is_absolute() and source.is_dir()):
        return None
    return await asyncio.to_thread(copy_checkpoint, source, target)


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


def _number_in(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
