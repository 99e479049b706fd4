"""From the configuration of a supervised run to a finished one.

Nothing is created before configuration, model files and every conversation have been checked. SIGINT and SIGTERM cancel
the run and its job; with `trainer.resume_mode` "latest" the same command goes on from the last resumable checkpoint.
"""

import asyncio

from drydock.amount import amount
from drydock.errors import ConfigError
from drydock.report.loss_graph import LossCurve
from drydock.report.metrics import MetricsFile
from drydock.report.progress import RunProgress
from drydock.training.config_file import to_toml
from drydock.training.model_folder import check_model_folder
from drydock.training.run_folder import RunFolder
from drydock.training.run_log import logged_run, note_stopped
from drydock.training.run_service import Secrets, check_service, run_service
from drydock.training.sft.config import SftConfig
from drydock.training.sft.data import SftData, load_data
from drydock.training.sft.job import sft_job
from drydock.training.sft.loop import SftLoop, total_steps
from drydock.training.sft.resume import ResumePoint, check_same_run
from drydock.training.stopping import run_until_stopped


def launch_sft(config: SftConfig, secrets: Secrets, progress: RunProgress) -> int:
    """Run to the end. Returns 0, or 128 + signal number when a signal stopped the run. Raises DrydockError."""
    folder = RunFolder.of(config.trainer.ckpt_path, config.trainer.run_name)
    folder.check()
    with progress:
        return run_until_stopped(
            lambda: _run(config, secrets, folder, progress),
            lambda name: progress.note(f"{name}: cancelling the job"),
            lambda name: note_stopped(folder, name, progress),
        )


async def _run(config: SftConfig, secrets: Secrets, folder: RunFolder, progress: RunProgress) -> None:
    from drydock.chat.template import ChatTemplate

    check_model_folder(config.trainer.policy.model.path, config.data.max_length, "data.max_length")
    progress.waiting("conversations to be tokenized")
    data = await asyncio.to_thread(lambda: load_data(config.data, ChatTemplate.load(config.trainer.policy.model.path)))
    _check_batch(config, data)
    _note_data(config, data, progress)
    await check_service(config.service, secrets, progress)
    resume = _resume_point(config, folder, data, progress)
    if resume is None:
        kept = folder.open()
        if kept is not None:
            progress.note(f"the earlier run in {folder.root} is kept as {kept}")
    else:
        MetricsFile(folder.metrics).keep_until(resume.step)
    with logged_run(folder, to_toml(config)):
        async with (
            run_service(config.service, secrets, folder, config.deadlines.service_start_s, progress) as client,
            sft_job(client, config, resume, folder.job_id, progress.waiting) as job,
        ):
            await SftLoop(config, data, folder, job, progress, first=resume.step if resume else 0).run()
            progress.waiting("everything to be stopped")
        _print_summary(folder, progress)


def _check_batch(config: SftConfig, data: SftData) -> None:
    """Raises ConfigError for a batch that no pass over the conversations can fill."""
    size, held = config.trainer.train_batch_size, len(data.train)
    if size > held:
        left_out = f", {data.dropped_training} left out as too long" if data.dropped_training else ""
        raise ConfigError(
            f"trainer.train_batch_size is {size}, but data.train holds {amount(held, 'conversation')}{left_out}; "
            f"set it to {held} or less, or give more conversations"
        )


def _note_data(config: SftConfig, data: SftData, progress: RunProgress) -> None:
    tokens = sum(len(row.token_ids) for row in data.train)
    trained = sum(row.trained_tokens for row in data.train)
    progress.note(
        f"{amount(len(data.train), 'conversation')} to train on, {amount(tokens, 'token')}, {trained} of them the "
        f"assistant's; {len(data.evaluation)} held out; {amount(total_steps(config, len(data.train)), 'step')}"
    )
    if dropped := data.dropped_training + data.dropped_evaluation:
        progress.note(
            f"warning: {amount(dropped, 'conversation')} left out, longer than {config.data.max_length} tokens"
        )


def _resume_point(config: SftConfig, folder: RunFolder, data: SftData, progress: RunProgress) -> ResumePoint | None:
    """Where the run in the folder goes on, None for a new one. Raises ConfigError when it was another run."""
    if config.trainer.resume_mode == "none":
        return None
    point = ResumePoint.read(folder.resume_point)
    if point is None:
        progress.note(f"there is no checkpoint to go on from in {folder.root}: the run starts at its beginning")
        return None
    check_same_run(folder.config, config)
    if point.data != data.fingerprint:
        raise ConfigError(
            f"trainer.resume_mode: the run in {folder.root} was trained on other conversations than data.train holds "
            "now, or they were tokenized otherwise"
        )
    if point.step > (steps := total_steps(config, len(data.train))):
        raise ConfigError(f"trainer.resume_mode: the run in {folder.root} has taken {point.step} steps, not {steps}")
    progress.note(f"going on after step {point.step}, from checkpoint {point.checkpoint_id} of job {point.job_id}")
    return point


def _print_summary(folder: RunFolder, progress: RunProgress) -> None:
    curve = LossCurve.from_metrics(MetricsFile(folder.metrics).read())
    for name, series in (("training loss", curve.training), ("held-out loss", curve.evaluations)):
        if series:
            (first, before), (last, after) = series[0], series[-1]
            progress.note(f"{name + ':':<16}{before:.4f} (step {first}) to {after:.4f} (step {last})")
    saved = folder.saved_checkpoints()
    where = saved[-1] if saved else "not in this folder; trainer.save_final_checkpoint=true saves it"
    for name, path in (
        ("model", where),
        ("curve", f"{folder.loss_svg} (and .png)"),
        ("metrics", folder.metrics),
        ("log", folder.log),
    ):
        progress.note(f"{name + ':':<16}{path}")
