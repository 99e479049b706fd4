"""The first task, built, left alone and graded: a whole trial, so it finds what no look at files can."""

from pathlib import Path

from drydock.finding import Finding, Level
from drydock.rollout.preflight import preflight_task
from drydock.rollout.settings import RolloutSettings
from drydock.rollout.task_folder import stated_reward


async def check_first_task(task: Path, settings: RolloutSettings) -> list[Finding]:
    """Warns when doing nothing earns more than the task's stated baseline (0 unless stated).

    Raises TaskError or SandboxError when the task cannot be graded.
    """
    report = await preflight_task(task, settings)
    baseline = stated_reward(task, "baseline_reward", 0.0)
    took = sum(report.timings.values())
    detail = f"task {report.task} is graded in {took:.1f} s: doing nothing earns {report.reward:g}"
    if report.reward > baseline:
        said = f"{detail}, more than its baseline of {baseline:g}"
        remedy = "see what the verifier rewards (`drydock tasks check`), or state metadata.baseline_reward in task.toml"
        return [Finding("graded", Level.WARN, said, remedy)]
    return [Finding("graded", Level.PASS, detail)]
