"""Where a run can go on: a resumable checkpoint on the service, and what the driver knew when it was written.

The checkpoint holds weights, optimizer and random states of the trainer. What else decides the steps to come is here:
the step, the policy version, the further tasks, the strikes of tasks. The order of tasks follows from the step and
the seed, each turn's sampling from the seed and the rollout's id; metrics and trajectories of earlier steps are in the
run's folder. A file is written after its checkpoint is complete, so a checkpoint that is half there has none.
"""

import json
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from drydock.atomic import replace_file
from drydock.errors import ConfigError
from drydock.training.config import RunConfig
from drydock.training.config_difference import refuse_another_run
from drydock.training.config_file import load_config
from drydock.training.run_folder import RunFolder
from drydock.training.spare_tasks import SpareTasks
from drydock.training.task_memory import TaskMemory
from drydock.training.task_set import Task

FREE = {
    "trainer": {
        "run_name",
        "ckpt_path",
        "max_training_steps",
        "epochs",
        "eval_before_train",
        "eval_after_train",
        "eval_interval",
        "ckpt_interval",
        "save_final_checkpoint",
        "save_on_stop",
        "max_ckpts_to_keep",
        "resume_mode",
        "step_retries",
        "group_retries",
        "task_strikes",
    },
    "generator": {
        "eval_n_samples_per_prompt",
        "eval_sampling_params",
        "num_parallel_generation_workers",
        "rollouts_per_process",
        "max_concurrent_calls",
    },
    "data": {"eval"},
    "agent": {"transport"},
    "service": True,
    "deadlines": True,
    "sandbox": True,
    "diagnosis": True,
}
"""Keys that may be others when a run goes on: they change neither what is sampled nor what is trained. `run_name` is
checked on its own, as it is part of every rollout's seed."""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """job_id, checkpoint_id: of the service's checkpoint. step: the last that was trained. version: its policy.

    spare_passes, spare_queue, strikes: of `SpareTasks` and `TaskMemory`, tasks by name. tasks: names of the training
    tasks, in order.
    """

    job_id: str
    checkpoint_id: str
    step: int
    version: int
    spare_passes: int
    spare_queue: list[str]
    strikes: dict[str, int]
    tasks: list[str]

    @classmethod
    def read(cls, file: Path) -> Self:
        """Raises ConfigError for a file that is not there or damaged."""
        try:
            return cls(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(
                f"trainer.resume_mode: {file} cannot be read ({error}); name another checkpoint, or start anew with "
                "trainer.resume_mode=none"
            ) from None

    def write(self, folder: RunFolder) -> None:
        """Make it a point of the run's folder, and the latest one; each file is written whole or not at all."""
        for file in (folder.resume_point_of(self.step), folder.resume_point):
            file.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(file) as temporary:
                temporary.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")

    def restore(self, spare: SpareTasks, memory: TaskMemory) -> None:
        """Put both where they were."""
        by_name = {task.name: task for task in spare.tasks}
        spare.passes = self.spare_passes
        spare.queue = deque(by_name[name] for name in self.spare_queue)
        memory.strikes = dict(self.strikes)
        memory.forget_after(self.step)


def find_resume_point(config: RunConfig, folder: RunFolder, tasks: list[Task], steps: int) -> ResumePoint | None:
    """Where the run goes on by `trainer.resume_mode`; None for one that starts at its beginning.

    Raises ConfigError when there is no such point, or the run in the folder was another one.
    """
    mode = config.trainer.resume_mode
    if mode == "none":
        return None
    if mode == "latest":
        if not folder.resume_point.is_file():
            return None
        point = ResumePoint.read(folder.resume_point)
    else:
        point = _named_point(Path(mode), folder)
    _check_same_run(folder, config)
    if point.tasks != [task.name for task in tasks]:
        raise ConfigError(
            f"trainer.resume_mode: the run in {folder.root} trained other tasks than data.train holds now: the order "
            "of the steps to come would be another one; give the same tasks, or start anew in another folder"
        )
    if point.step > steps:
        raise ConfigError(
            f"trainer.resume_mode: the checkpoint is of step {point.step}, but this run has {steps}: raise "
            "trainer.max_training_steps or trainer.epochs"
        )
    return point


def _named_point(path: Path, folder: RunFolder) -> ResumePoint:
    """The point of a checkpoint folder `checkpoints/step_<N>` of the run, or of its file `resume/step_<N>.json`."""
    steps = folder.resumable_steps()
    for step in steps:
        file = folder.resume_point_of(step)
        if path.resolve() in (file.resolve(), folder.checkpoint(step).resolve()):
            return ResumePoint.read(file)
    listed = ", ".join(f"step_{step}" for step in steps)
    raise ConfigError(
        f"trainer.resume_mode: {path} is no complete checkpoint of the run in {folder.root}: it has "
        f"{listed or 'none'}; give `latest`, or the folder of one of these below {folder.root / 'checkpoints'}"
    )


def _check_same_run(folder: RunFolder, config: RunConfig) -> None:
    """Raise ConfigError, naming the keys, when the run in the folder would sample or train otherwise."""
    refuse_another_run(folder.root, _identity(load_config(RunConfig, folder.config)), _identity(config))


def _identity(config: RunConfig) -> dict[str, Any]:
    """What decides the trajectories and weights of the steps to come."""
    kept: dict[str, Any] = config.model_dump(mode="json", exclude=FREE)  # pyright: ignore[reportArgumentType]
    return kept | {"run_name": config.trainer.run_name}
