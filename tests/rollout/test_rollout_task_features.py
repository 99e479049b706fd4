"""What Harbor's tasks can do, as rollouts in the local sandbox: steps, verifiers in a sandbox of their own, health
checks, artifacts, MCP servers."""

from pathlib import Path

import pytest
from builders.local_sandbox import needs_sandbox
from builders.policy import SOLVE_HELLO, tool_call
from builders.tasks import PASS_IF_ANSWER_IS_HELLO, write_task

from drydock.rollout import Outcome, run_rollout

pytestmark = [
    pytest.mark.sandbox,
    needs_sandbox,
]


@pytest.fixture
def run(serve, settings, spec_for):
    """`await run(task, policy, **changes of the settings)`: the rollout's trajectory."""

    async def run_one(task: Path, policy=SOLVE_HELLO, **changes):
        async with serve(policy) as proxy:
            return await run_rollout(
                spec_for(task), settings.model_copy(update={"environment": "local", **changes}), proxy
            )

    return run_one


def at_the_top(task: Path, line: str) -> None:
    (task / "task.toml").write_text(f"{line}\n{(task / 'task.toml').read_text()}")


def with_steps(task: Path, **tables: str) -> Path:
    """Steps by name, each with what its table says of it; their verifiers look for the step's name in a file."""
    for name, table in tables.items():
        step = task / "steps" / name
        (step / "tests").mkdir(parents=True)
        (step / "instruction.md").write_text(f"Write the name of the part {name}.\n")
        (step / "tests" / "test.sh").write_text(
            f"grep -q {name} /app/answer.txt; echo $((1 - $?)) > /logs/verifier/reward.txt\n"
        )
        with (task / "task.toml").open("a") as file:
            file.write(f'\n[[steps]]\nname = "{name}"\n{table}\n')
    return task


@pytest.mark.parametrize(
    ("strategy", "done", "reward", "turns"),
    [
        ("mean", {"first", "second", "third"}, 1.0, 6),
        ("mean", {"first", "second"}, 2 / 3, 6),
        ("final", {"third", "second"}, 1.0, 6),
        ("final", {"first"}, 0.0, 4),
    ],
)
async def test_steps_share_a_sandbox_and_end_below_their_least_reward(tmp_path, run, strategy, done, reward, turns):
    task = with_steps(write_task(tmp_path / "steps"), first="", second="min_reward = 0.5", third="")
    at_the_top(task, f'multi_step_reward_strategy = "{strategy}"')

    def policy(_ids: list[int], text: str) -> str:
        part = max(("first", "second", "third"), key=lambda name: text.rfind(f"part {name}"))
        if "exit" in text or "[no output]" in text:
            return tool_call("finish")
        return tool_call("terminal", command=f"echo {part if part in done else 'nothing'} >> /app/answer.txt")

    trajectory = await run(task, policy)
    assert trajectory.outcome is Outcome.GRADED, trajectory.error
    assert (trajectory.reward, trajectory.turns) == (pytest.approx(reward), turns)


async def test_a_verifier_in_its_own_sandbox_sees_the_artifacts_and_nothing_that_the_agent_tampered_with(
    tmp_path, run, settings
):
    task = write_task(tmp_path / "hello", test=f"test -e /app/hack && exit\n{PASS_IF_ANSWER_IS_HELLO}")
    at_the_top(task, 'artifacts = ["/app/answer.txt", { source = "/app/out", exclude = ["*.tmp"] }]')
    file = task / "task.toml"
    file.write_text(file.read_text().replace("[verifier]\n", '[verifier]\nenvironment_mode = "separate"\n'))
    (task / "tests" / "Dockerfile").write_text("FROM debian\nCOPY test.sh /tests/test.sh\nWORKDIR /app\n")
    tamper = (
        "mkdir out; echo 1 > out/kept; echo 2 > out/left.tmp; touch hack; printf '#!/bin/sh\\necho hello' > /bin/cat"
    )
    policy = [tool_call("terminal", command=f"echo hello > answer.txt; {tamper}"), tool_call("finish")]
    trajectory = await run(task, policy, keep_trials="always")
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 1.0), trajectory.error
    kept = {path.name for path in settings.work_dir.rglob("*") if path.is_file()}
    assert {"answer.txt", "kept"} <= kept
    assert not {"left.tmp", "hack"} & kept
    policy[0] = policy[0].replace("echo hello >", "echo wrong >")
    assert (await run(task, policy)).reward == 0.0


async def test_a_health_check_starts_what_the_agent_works_with(tmp_path, run):
    check = (
        '[environment.healthcheck]\ncommand = "test -e /app/up || { touch /app/up; exit 1; }"\n'
        "interval_sec = 0.05\nretries = 3\ntimeout_sec = 5.0\n"
    )
    task = write_task(tmp_path / "hello", toml=check)
    policy = [tool_call("terminal", command="test -e up && echo hello > answer.txt"), tool_call("finish")]
    trajectory = await run(task, policy)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 1.0), trajectory.error


SERVER = """#!/bin/sh
while read -r line; do
  case $line in
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}' ;;
    *'"tools/call"'*) echo '{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"hello"}]}}' ;;
  esac
done
"""


async def test_an_agent_that_can_use_mcp_servers_gets_those_of_the_task(tmp_path, run):
    table = (
        '[[environment.mcp_servers]]\nname = "greeter"\ntransport = "stdio"\ncommand = "sh"\nargs = ["/opt/server"]\n'
    )
    task = write_task(tmp_path / "hello", toml=table, dockerfile="FROM debian\nWORKDIR /app\nCOPY server /opt/server\n")
    (task / "environment" / "server").write_text(SERVER)
    trajectory = await run(task, agent="builders.odd_agents:McpAgent", agent_kwargs={})
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 1.0), trajectory.error
