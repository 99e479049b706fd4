"""From a configuration to a finished run: everything started in order, everything stopped in reverse.

Nothing is created before the checks that can fail have passed: configuration, tasks, model files, sandbox, and the
first task graded by an agent that does nothing. SIGINT and SIGTERM cancel the run; its job is cancelled and every
process, mount and socket is gone before the exit, within `deadlines.shutdown_s` and a few seconds.
"""

import asyncio
from pathlib import Path

from drydock.deadline import deadline
from drydock.report.metrics import MetricsFile
from drydock.report.progress import RunProgress
from drydock.report.summary import print_summary
from drydock.training.config import RunConfig
from drydock.training.config_file import to_toml
from drydock.training.diagnosis.findings_file import FindingsFile
from drydock.training.preflight import find_all, refuse_failures
from drydock.training.resume import ResumePoint, find_resume_point
from drydock.training.run_audit import audit_run_folder
from drydock.training.run_folder import RunFolder
from drydock.training.run_lock import run_lock
from drydock.training.run_log import logged_run, note_stopped
from drydock.training.run_service import Secrets, run_service
from drydock.training.stopping import run_until_stopped


def launch(config: RunConfig, secrets: Secrets, state_dir: Path, progress: RunProgress) -> int:
    """Run to the end. Returns 0, or 128 + signal number when a signal stopped the run. Raises DrydockError."""
    folder = RunFolder.of(config.trainer.ckpt_path, config.trainer.run_name)
    with run_lock(state_dir, folder.root), progress:
        return run_until_stopped(
            lambda: _run(config, secrets, state_dir, folder, progress),
            lambda name: progress.note(f"{name}: stopping the rollouts and cancelling the job"),
            lambda name: note_stopped(folder, name, progress),
            saving_s=config.deadlines.save_on_stop_s if config.trainer.save_on_stop else 0.0,
        )


async def _run(config: RunConfig, secrets: Secrets, state_dir: Path, folder: RunFolder, progress: RunProgress) -> None:
    progress.waiting("the agent harness to be imported")
    from drydock.rollout.pool import size_default_executor
    from drydock.training.preflight.run_checks import RunChecks

    generator = config.generator
    size_default_executor(min(generator.num_parallel_generation_workers, generator.rollouts_per_process))
    checks = RunChecks(config, secrets, folder, state_dir)
    found = await find_all([checks.sandbox(progress.note), *checks.cheap()], progress.waiting)
    refuse_failures(found, progress.note)
    plan, session = checks.plan, checks.session
    async with deadline("the first task to be graded by an agent that does nothing", config.deadlines.preflight_s):
        progress.waiting(f"the preflight of task {plan.train_tasks[0].name}")
        graded = await session.preflight()
    progress.note(f"preflight: {graded.detail}")
    if graded.remedy_needed:
        progress.note(f"warning: {graded.remedy_needed}")
    resume = find_resume_point(config, folder, list(plan.train_tasks), plan.steps)
    _open(folder, config, resume, progress)
    with logged_run(folder, to_toml(config)):
        async with (
            run_service(config.service, secrets, folder, config.deadlines.service_start_s, progress) as client,
            session.training_loop(client, folder, progress, resume) as loop,
        ):
            await loop.run()
            progress.waiting("everything to be stopped")
        progress.waiting("the tokens in the trajectory files to be audited")
        print_summary(folder, await asyncio.to_thread(audit_run_folder, folder.root), progress.console)


def _open(folder: RunFolder, config: RunConfig, resume: ResumePoint | None, progress: RunProgress) -> None:
    """Make the folder that of this run: anew, or as it was after the step from which the run goes on."""
    if resume is None:
        if config.trainer.resume_mode != "none":
            progress.note(f"there is no checkpoint to go on from in {folder.root}: the run starts at its beginning")
        kept = folder.open()
        if kept is not None:
            progress.note(f"the earlier run in {folder.root} is kept as {kept}")
        return
    MetricsFile(folder.metrics).keep_until(resume.step)
    FindingsFile(folder.diagnosis).keep_until(resume.step)
    aside = folder.set_aside_after(resume.step)
    moved = f"; trajectories of later steps are now in {aside}" if aside else ""
    progress.note(
        f"going on after step {resume.step}, from checkpoint {resume.checkpoint_id} of job {resume.job_id}{moved}"
    )
