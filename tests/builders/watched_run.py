"""A run's folder as the parts of a run write it, without a model: for tests of what watches runs."""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from drydock.report.metrics import MetricsFile
from drydock.report.run_marks import STEPS
from drydock.rollout.trajectory import Trajectory
from drydock.training.diagnosis.finding import StepFinding
from drydock.training.diagnosis.findings_file import FindingsFile
from drydock.training.run_folder import RunFolder
from drydock.training.run_log import logged_run
from drydock.training.train_step import rollout_metrics

log = logging.getLogger("drydock.training.loop")


@dataclass(frozen=True)
class WatchedRun:
    """`folder` of a run of `steps` steps; what it does is said by the methods, within `going_on`."""

    folder: RunFolder
    steps: int = 4

    @classmethod
    def made(cls, root: Path, steps: int = 4) -> "WatchedRun":
        """A folder that is there and holds nothing yet."""
        root.mkdir(parents=True)
        return cls(RunFolder(root, "watched"), steps)

    def config(self, **trainer: Any) -> str:
        """The configuration that the run writes."""
        named = {
            "run_name": self.folder.run_name,
            "max_training_steps": 100,
            "policy": {"model": {"path": "tiny/model"}},
        }
        return tomli_w.dumps({"trainer": named | trainer, "generator": {}})

    @contextlib.contextmanager
    def going_on(self, ends_with: BaseException | None = None, **trainer: Any) -> Iterator["WatchedRun"]:
        """The block as the run, in this process; it ends with an error, or as a run that is through."""
        logger = logging.getLogger("drydock")
        before = logger.handlers[:], logger.level, logger.propagate
        logger.handlers[:] = []
        self.folder.job_id.write_text("job-1\n")
        try:
            ends = (type(ends_with),) if ends_with else ()
            with contextlib.suppress(*ends), logged_run(self.folder, self.config(**trainer)):
                log.info("%s %d", STEPS, self.steps)
                yield self
                if ends_with is not None:
                    raise ends_with
        finally:
            for handler in logger.handlers:
                handler.close()
            logger.handlers[:], logger.level, logger.propagate = before

    def step(self, number: int, *trajectories: Trajectory, **metrics: Any) -> None:
        """A step that is done; `a__b` names the metric `a/b`."""
        placed = [one.model_copy(update={"step": number}) for one in trajectories]
        for one in placed:
            one.write(self.folder.trajectories(number, "train"))
        named = {name.replace("__", "/"): value for name, value in metrics.items()}
        whole = rollout_metrics(placed) | {"policy/updates": 1, "timing/step": 2.0} | named
        MetricsFile(self.folder.metrics).write(number, whole)

    def evaluation(self, step: int, score: float) -> None:
        """An evaluation after `step`."""
        MetricsFile(self.folder.metrics).write(
            step, {"eval/all/avg_score": score, "eval/all/ci_low": score - 0.1, "eval/all/ci_high": score + 0.1}
        )

    def finding(self, finding: StepFinding) -> None:
        FindingsFile(self.folder.diagnosis).write([finding])

    def back_to(self, step: int) -> None:
        """What a run does that goes on after `step`."""
        MetricsFile(self.folder.metrics).keep_until(step)
        FindingsFile(self.folder.diagnosis).keep_until(step)
        self.folder.set_aside_after(step)
