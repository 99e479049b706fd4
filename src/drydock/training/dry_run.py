"""What `drydock train --dry-run` does: say what the run would do, make its checks that create nothing, and write its
resolved configuration to a file beside its folder. No folder, job or sandbox comes of it.

Time and cost need a measured rollout, and a rollout needs a job. So they are reckoned from the run that is in the
folder already, if it had the same model and GPUs; else the user is told how to measure.
"""

import contextlib
from pathlib import Path

from drydock.amount import amount
from drydock.atomic import replace_file
from drydock.errors import ConfigError
from drydock.report.metrics import MetricsFile
from drydock.report.progress import RunProgress
from drydock.report.used import shown
from drydock.training.config import RunConfig
from drydock.training.config_file import read_toml, to_toml
from drydock.training.forecast import Forecast, Measured
from drydock.training.plan import RunPlan
from drydock.training.preflight import find_all, refuse_failures
from drydock.training.run_folder import RunFolder
from drydock.training.run_service import Secrets
from drydock.training.stopping import run_until_stopped

_KEYS_THAT_COUNT = ("trainer.policy.model.path", "service.n_gpus_training", "service.n_gpus_sampling")
"""An earlier run that differs in one of them says nothing about time and cost."""


def launch_dry_run(config: RunConfig, secrets: Secrets, state_dir: Path) -> int:
    """Print what the run would do. Returns 0, or 128 + signal number when a signal ended it.

    Raises DrydockError for what the run would be refused for.
    """
    folder = RunFolder.of(config.trainer.ckpt_path, config.trainer.run_name)
    with RunProgress() as progress:
        return run_until_stopped(
            lambda: _dry_run(config, secrets, folder, state_dir, progress),
            lambda name: progress.note(f"{name}: stopping"),
            lambda name: None,
        )


async def _dry_run(
    config: RunConfig, secrets: Secrets, folder: RunFolder, state_dir: Path, progress: RunProgress
) -> None:
    progress.waiting("the agent harness to be imported")
    from drydock.training.preflight.run_checks import RunChecks

    checks = RunChecks(config, secrets, folder, state_dir)
    found = await find_all(checks.cheap(), progress.waiting)
    with contextlib.suppress(ConfigError):  # it is among what was found
        for line in describe(config, checks.plan, folder):
            progress.note(line)
    refuse_failures(found, progress.note)
    written = _write(config, folder)
    progress.note(f"configuration: {written}; nothing else was created (dry run)")


def describe(config: RunConfig, plan: RunPlan, folder: RunFolder) -> list[str]:
    """The lines that say what a run would do, in time and in numbers."""
    forecast = Forecast.of(config, plan)
    group = config.generator.n_samples_per_prompt
    service = config.service
    where = service.address or "a service of the run's own (CPU slots where there is no GPU)"
    lines = [
        f"tasks:         {len(plan.train_tasks)} to train on, {len(plan.eval_tasks)} to evaluate on",
        f"steps:         {forecast.steps}, each {amount(config.trainer.train_batch_size, 'task')} x "
        f"{amount(group, 'rollout')}; {amount(forecast.evaluations, 'evaluation')}",
        f"rollouts:      {forecast.train_rollouts} to train on, {forecast.eval_rollouts} in evaluations",
        f"tokens:        {forecast.sampled_tokens:,} sampled and {forecast.trained_tokens:,} trained at most",
        f"GPUs:          {service.n_gpus_training} training + {service.n_gpus_sampling} sampling, at {where}",
    ]
    if config.warm_start:
        lines.insert(1, f"warm start:    {amount(sum(stage.steps for stage in config.warm_start), 'step')}")
    return [*lines, f"time and cost: {_time_and_cost(config, forecast, folder)}"]


def _time_and_cost(config: RunConfig, forecast: Forecast, folder: RunFolder) -> str:
    measured = Measured.of(MetricsFile(folder.metrics).read())
    if measured is None:
        return (
            f"not known, no rollout was measured in {folder.root}: run it with trainer.max_training_steps=1, then ask "
            "again"
        )
    if changed := _changed(config, folder):
        return f"not known, the run in {folder.root} had another {' and '.join(changed)}"
    used = shown(measured.usage_of(forecast))
    return (
        f"about {duration(measured.seconds_of(forecast))}{', ' + used if used else ''}; by "
        f"{amount(measured.rollouts, 'rollout')} of the run in {folder.root}, start and checkpoints on top"
    )


def _changed(config: RunConfig, folder: RunFolder) -> list[str]:
    """The keys that count in which the run in the folder differs."""
    before = read_toml(folder.config)
    now = config.model_dump(mode="json", by_alias=True)
    return [key for key in _KEYS_THAT_COUNT if _value(before, key) != _value(now, key)]


def _value(tree: object, dotted: str) -> object:
    for part in dotted.split("."):
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


def _write(config: RunConfig, folder: RunFolder) -> Path:
    """The resolved configuration, beside the run's folder: in it, it would be taken for an earlier run."""
    file = folder.root.with_name(f"{folder.root.name}.dry-run.toml")
    trainer = config.trainer.model_copy(update={"ckpt_path": folder.root})
    with replace_file(file) as temporary:
        temporary.write_text(to_toml(config.model_copy(update={"trainer": trainer})))
    return file


def duration(seconds: float) -> str:
    """Seconds below two minutes, minutes below two hours, then hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
