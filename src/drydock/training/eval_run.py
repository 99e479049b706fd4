"""An evaluation on its own: rollouts of the evaluation tasks with one model, a report, and nothing trained.

The model is sampled by a job that has a sampling sub-job only, or it is behind somebody else's endpoint. Tasks,
sandbox, agent and sampling are a run's. The folder has a run's layout, and the evaluation is its step 0, so that a
model samples in it as in that run's evaluation before training. Nothing is created before the checks have passed.
"""

import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drydock.atomic import replace_file
from drydock.deadline import deadline
from drydock.report.metrics import MetricsFile
from drydock.report.progress import RunProgress
from drydock.training.config import RunConfig
from drydock.training.config_file import to_toml
from drydock.training.eval_config import EvalSubject
from drydock.training.evaluation import evaluation_metrics
from drydock.training.evaluation_report import EvaluationReport, evaluation_report
from drydock.training.policy_job import job_request
from drydock.training.preflight import find_all, refuse_failures
from drydock.training.run_folder import RunFolder
from drydock.training.run_lock import run_lock
from drydock.training.run_log import logged_run, note_stopped
from drydock.training.run_service import Secrets, run_service
from drydock.training.running_job import running_job
from drydock.training.stopping import run_until_stopped
from drydock.wire.rest import JobCreate

if TYPE_CHECKING:
    from drydock.rollout.runner import RolloutRunner
    from drydock.training.preflight.eval_checks import EvalChecks

STEP = 0


def launch_evaluation(
    config: RunConfig, subject: EvalSubject, secrets: Secrets, state_dir: Path, progress: RunProgress
) -> tuple[int, EvaluationReport | None]:
    """Evaluate `subject` in the folder `trainer.ckpt_path`, which has to be set.

    Returns 0 and the report, or 128 + signal number and None when a signal stopped it. Raises DrydockError.
    """
    subject.check(config)
    assert config.trainer.ckpt_path is not None
    folder = RunFolder(config.trainer.ckpt_path.resolve(), config.trainer.run_name)
    made: list[EvaluationReport] = []

    async def run() -> None:
        made.append(await _run(config, subject, secrets, state_dir, folder, progress))

    with run_lock(state_dir, folder.root), progress:
        status = run_until_stopped(
            run,
            lambda name: progress.note(f"{name}: stopping the rollouts"),
            lambda name: note_stopped(folder, name, progress),
        )
    return status, made[0] if made else None


async def _run(
    config: RunConfig,
    subject: EvalSubject,
    secrets: Secrets,
    state_dir: Path,
    folder: RunFolder,
    progress: RunProgress,
) -> EvaluationReport:
    progress.waiting("the agent harness to be imported")
    from drydock.rollout.pool import size_default_executor
    from drydock.rollout.preflight import preflight_task
    from drydock.training.preflight.eval_checks import EvalChecks
    from drydock.training.rollout_batch import RolloutBatches
    from drydock.training.rollout_wiring import rollout_settings

    size_default_executor(config.generator.num_parallel_generation_workers)
    checks = EvalChecks(config, secrets, folder, state_dir)
    wanted = checks.without_model() if subject.endpoint else checks.cheap()
    refuse_failures(await find_all([checks.sandbox(progress.note), *wanted], progress.waiting), progress.note)
    tasks = checks.plan.eval_tasks
    for warning in checks.plan.warnings:
        progress.note(f"warning: {warning}")
    async with deadline("the first task to be graded by an agent that does nothing", config.deadlines.preflight_s):
        progress.waiting(f"the preflight of task {tasks[0].name}")
        await preflight_task(tasks[0].path, rollout_settings(config, state_dir))
    async with _runner(config, subject, secrets, checks, folder, progress) as runner:
        started = time.monotonic()
        batches, samples = RolloutBatches(config, folder), config.generator.eval_n_samples_per_prompt
        with progress.counted("evaluation: rollouts", len(tasks) * samples) as counter:
            groups = batches.groups(tasks, STEP, "eval", samples)
            result = await batches.run(runner, groups, counter.advance)
        batches.write(result.trajectories)
        seconds = time.monotonic() - started
        progress.waiting("everything to be stopped")
    metrics = evaluation_metrics(result.trajectories, seconds)
    MetricsFile(folder.metrics).write(STEP, metrics | {"eval/all/replaced": len(result.replaced)})
    report = evaluation_report(
        result.trajectories,
        subject=_described(config, subject),
        sampling=_sampling(config),
        replaced=len(result.replaced),
        seconds=seconds,
        run_folder=str(folder.root),
    )
    with replace_file(folder.evaluation) as temporary:
        temporary.write_text(report.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return report


@asynccontextmanager
async def _runner(
    config: RunConfig,
    subject: EvalSubject,
    secrets: Secrets,
    checks: "EvalChecks",
    folder: RunFolder,
    progress: RunProgress,
) -> AsyncIterator["RolloutRunner"]:
    """What runs the rollouts, in the opened folder; everything it stands on is gone on exit."""
    if subject.endpoint is not None:
        from drydock.proxy.endpoint import EndpointClient, EndpointRelay
        from drydock.rollout.pool import RolloutPool
        from drydock.training.rollout_wiring import proxy_settings, rollout_settings

        settings = proxy_settings(config, config.generator.eval_sampling, None)
        async with EndpointClient(subject.endpoint) as client:
            progress.waiting(f"the endpoint {subject.endpoint.base_url} to answer")
            warning = await client.check()
            if warning is not None:
                progress.note(f"warning: {warning}")
            workers = config.generator.num_parallel_generation_workers
            with _opened(folder, config, progress):
                async with EndpointRelay(client, settings) as relay:
                    yield RolloutPool(rollout_settings(config, checks.state_dir), relay, workers)
        return
    session, limits = checks.session, config.deadlines
    with _opened(folder, config, progress):
        async with (
            run_service(config.service, secrets, folder, limits.service_start_s, progress) as client,
            running_job(client, _request(config, subject), folder.job_id, limits, progress.waiting) as job,
            session.pools(client, job.job_id, folder, progress) as pools,
        ):
            yield pools["eval"]


def _opened(folder: RunFolder, config: RunConfig, progress: RunProgress) -> AbstractContextManager[None]:
    kept = folder.open()
    if kept is not None:
        progress.note(f"the earlier evaluation in {folder.root} is kept as {kept}")
    return logged_run(folder, to_toml(config))


def _request(config: RunConfig, subject: EvalSubject) -> JobCreate:
    """A run's job without its training sub-job."""
    whole = job_request(config, f"{config.service.job_comment or config.trainer.run_name}-eval")
    sampling = [one for one in whole.sub_job_configs if one.job_type == "sampling"]
    if subject.checkpoint is not None:
        sampling = [one.model_copy(update={"source_checkpoint_info": subject.checkpoint}) for one in sampling]
    return whole.model_copy(update={"sub_job_configs": sampling})


def _described(config: RunConfig, subject: EvalSubject) -> dict[str, Any]:
    if subject.endpoint is not None:
        return {"endpoint": subject.endpoint.base_url, "model": subject.endpoint.model}
    described: dict[str, Any] = {"model": config.trainer.policy.model.path}
    if subject.checkpoint is not None:
        described["checkpoint"] = f"{subject.checkpoint.source_job_id}/{subject.checkpoint.checkpoint_id}"
    return described


def _sampling(config: RunConfig) -> dict[str, Any]:
    generator = config.generator
    return {
        **generator.eval_sampling.model_dump(),
        "samples_per_task": generator.eval_n_samples_per_prompt,
        "max_turns": generator.max_turns,
        "context_tokens": generator.max_input_length,
        "seed": config.trainer.seed if generator.seeded_sampling else None,
        "unsubmitted": generator.unsubmitted,
    }
