"""Example tasks as rollouts of the real agent, whose scripted policy types in the task's own solution."""

from pathlib import Path

import pytest
from builders.local_sandbox import needs_sandbox
from builders.policy import ASSISTANT, tool_call

from drydock.rollout import Outcome, run_rollout

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "tasks"
pytestmark = [
    pytest.mark.sandbox,
    needs_sandbox,
]


def solving(task: Path):
    """A policy for `serve`: each conversation types in the solution that lies beside the instruction it was given."""
    parts = [part.parent for part in task.rglob("instruction.md")]

    def reply(_ids: list[int], text: str) -> str:
        if text.count(ASSISTANT) > 1:
            return tool_call("finish")
        (part,) = [part for part in parts if (part / "instruction.md").read_text().strip() in text]
        return tool_call("terminal", command=(part / "solution" / "solve.sh").read_text())

    return reply


async def solved(name: str, serve, settings, spec_for, **options: bool):
    kwargs = {**settings.environment_kwargs, **options}
    local = settings.model_copy(update={"environment": "local", "environment_kwargs": kwargs})
    task = EXAMPLES / name
    async with serve(solving(task), context_tokens=100_000, max_new_tokens=20_000) as proxy:
        trajectory = await run_rollout(spec_for(task), local, proxy)
    assert trajectory.outcome is Outcome.GRADED, trajectory.error
    return trajectory


@pytest.mark.parametrize(
    ("name", "turns"), [("shared-folder", 2), ("dotfiles", 2), ("render-config", 2), ("ledger-in-steps", 6)]
)
async def test_users_variables_and_steps_hold_for_the_agent(name, turns, serve, settings, spec_for):
    trajectory = await solved(name, serve, settings, spec_for)
    assert (trajectory.reward, trajectory.turns) == (1.0, turns)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("word-index", {"reward"}),
        ("package-in-steps", {"reward"}),
        ("repair-web-service", {"reward"}),
        ("clean-measurements", {"reward", "sensors", "times", "values", "rows"}),
    ],
)
async def test_separate_verifiers_healthchecks_and_several_rewards(name, keys, serve, settings, spec_for):
    trajectory = await solved(name, serve, settings, spec_for, allow_network=True)
    assert trajectory.reward == 1.0
    assert set(trajectory.rewards) == keys
