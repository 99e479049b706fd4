"""From a configuration to a finished run: everything started in order, everything stopped in reverse.

Nothing is created before the checks that can fail have passed: configuration, tasks, model files, sandbox, and the
first task graded by an agent that does nothing. SIGINT and SIGTERM cancel the run; its job is cancelled and every
process, mount and socket is gone before the exit, within `deadlines.shutdown_s` and a few seconds.
"""

import asyncio
from pathlib import Path

from drydock.deadline import deadline
from drydock.report.progress import RunProgress
from drydock.report.summary import print_summary
from drydock.training.config import RunConfig
from drydock.training.config_file import to_toml
from drydock.training.model_folder import check_model_folder
from drydock.training.plan import RunPlan, plan_run
from drydock.training.run_audit import audit_run_folder
from drydock.training.run_folder import RunFolder
from drydock.training.run_lock import run_lock
from drydock.training.run_log import logged_run, note_stopped
from drydock.training.run_service import Secrets, check_service, run_service
from drydock.training.stopping import run_until_stopped


def launch(config: RunConfig, secrets: Secrets, state_dir: Path, progress: RunProgress) -> int:
    """Run to the end. Returns 0, or 128 + signal number when a signal stopped the run. Raises DrydockError."""
    root = config.trainer.ckpt_path or Path("runs") / config.trainer.run_name
    folder = RunFolder(root.resolve(), config.trainer.run_name)
    folder.check()
    plan = plan_run(config)
    for warning in plan.warnings:
        progress.note(f"warning: {warning}")
    with run_lock(state_dir, folder.root), progress:
        return run_until_stopped(
            lambda: _run(config, secrets, state_dir, plan, folder, progress),
            lambda name: progress.note(f"{name}: stopping the rollouts and cancelling the job"),
            lambda name: note_stopped(folder, name, progress),
        )


async def _run(
    config: RunConfig, secrets: Secrets, state_dir: Path, plan: RunPlan, folder: RunFolder, progress: RunProgress
) -> None:
    progress.waiting("the agent harness to be imported")
    from drydock.chat.template import ChatTemplate
    from drydock.rollout.pool import size_default_executor
    from drydock.training.sandbox_ready import check_environments, check_sandbox
    from drydock.training.session import RolloutSession

    size_default_executor(config.generator.num_parallel_generation_workers)
    context = config.generator.max_input_length
    check_model_folder(config.trainer.policy.model.path, context, "generator.max_input_length")
    template = ChatTemplate.load(config.trainer.policy.model.path)
    check_sandbox(config.sandbox, state_dir, progress.note)
    tasks = {task.path: None for task in (*plan.train_tasks, *plan.eval_tasks)}
    await asyncio.to_thread(check_environments, config.sandbox, list(tasks))
    await check_service(config.service, secrets, progress)
    session = RolloutSession(config, plan, template, state_dir)
    async with deadline("the first task to be graded by an agent that does nothing", config.deadlines.preflight_s):
        progress.waiting(f"the preflight of task {plan.train_tasks[0].name}")
        report = await session.preflight()
    progress.note(f"preflight: {report}")
    kept = folder.open()
    if kept is not None:
        progress.note(f"the earlier run in {folder.root} is kept as {kept}")
    with logged_run(folder, to_toml(config)):
        async with (
            run_service(config.service, secrets, folder, config.deadlines.service_start_s, progress) as client,
            session.training_loop(client, folder, progress) as loop,
        ):
            await loop.run()
            progress.waiting("everything to be stopped")
        progress.waiting("the tokens in the trajectory files to be audited")
        print_summary(folder, await asyncio.to_thread(audit_run_folder, folder.root), progress.console)
