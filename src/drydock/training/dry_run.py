"""What `drydock train --dry-run` does: say what the run would do, make its checks that create nothing, and write its
resolved configuration to a file beside its folder. No folder, job or sandbox comes of it.

Time and cost need a measured rollout, and a rollout needs a job. So they are reckoned from the run that is in the
folder already, if it had the same model and GPUs; else the user is told how to measure. `--measure` makes one rollout
in a job of its own, which is the one thing that a dry run then creates, and cancels.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from drydock.amount import amount, duration
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

if TYPE_CHECKING:
    from drydock.training.session import RolloutSession

_KEYS_THAT_COUNT = ("trainer.policy.model.path", "service.n_gpus_training", "service.n_gpus_sampling")
"""An earlier run that differs in one of them says nothing about time and cost."""


def launch_dry_run(config: RunConfig, secrets: Secrets, state_dir: Path, *, measure: bool = False) -> int:
    """Print what the run would do. Returns 0, or 128 + signal number when a signal ended it.

    measure: make one rollout, and reckon time and cost from it. Raises DrydockError for what the run would be refused
    for, and for a rollout that cannot be made.
    """
    folder = RunFolder.of(config.trainer.ckpt_path, config.trainer.run_name)
    with RunProgress() as progress:
        return run_until_stopped(
            lambda: _dry_run(config, secrets, folder, state_dir, progress, measure),
            lambda name: progress.note(f"{name}: stopping"),
            lambda name: None,
        )


async def _dry_run(
    config: RunConfig, secrets: Secrets, folder: RunFolder, state_dir: Path, progress: RunProgress, measure: bool
) -> None:
    progress.waiting("the agent harness to be imported")
    from drydock.training.preflight.run_checks import RunChecks

    checks = RunChecks(config, secrets, folder, state_dir)
    of_sandbox = [checks.sandbox(progress.note)] if measure else []
    found = await find_all([*of_sandbox, *checks.cheap()], progress.waiting)
    with contextlib.suppress(ConfigError):  # it is among what was found
        for line in describe(config, checks.plan):
            progress.note(line)
    refuse_failures(found, progress.note)
    forecast = Forecast.of(config, checks.plan)
    if measure:
        estimate = await _by_one_rollout(config, secrets, checks.session, forecast, progress)
    else:
        estimate = _by_earlier_run(config, forecast, folder)
    progress.note(f"time and cost: {estimate}")
    written = _write(config, folder)
    rest = "the job is cancelled, nothing else is left" if measure else "nothing else was created"
    progress.note(f"configuration: {written}; {rest} (dry run)")


def describe(config: RunConfig, plan: RunPlan) -> list[str]:
    """The lines that say what a run would do, in numbers."""
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
    return lines


async def _by_one_rollout(
    config: RunConfig, secrets: Secrets, session: "RolloutSession", forecast: Forecast, progress: RunProgress
) -> str:
    from drydock.training.measured_rollout import measure_rollout

    measured = await measure_rollout(config, secrets, session, progress)
    by = (
        f"one rollout ({measured.rollout_s:.3g} s to make, {measured.train_s:.3g} s to train), more where rollouts "
        "slow each other down"
    )
    return _estimate(measured.seconds_of(forecast, config), measured.usage_of(forecast, config), by)


def _by_earlier_run(config: RunConfig, forecast: Forecast, folder: RunFolder) -> str:
    measured = Measured.of(MetricsFile(folder.metrics).read())
    if measured is None:
        return f"not known, no rollout was measured in {folder.root}: --measure makes one now, in a job of its own"
    if changed := _changed(config, folder):
        different = " and ".join(changed)
        return f"not known, the run in {folder.root} had another {different}: --measure makes a rollout now"
    by = f"{amount(measured.rollouts, 'rollout')} of the run in {folder.root}"
    return _estimate(measured.seconds_of(forecast), measured.usage_of(forecast), by)


def _estimate(seconds: float, used: Mapping[str, float], by: str) -> str:
    amounts = shown(used)
    return f"about {duration(seconds)}{', ' + amounts if amounts else ''}; by {by}, start and checkpoints on top"


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
