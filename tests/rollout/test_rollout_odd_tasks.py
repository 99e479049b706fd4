"""Tasks with something wrong in them, as whole rollouts: each is the task's fault, says what to mend, and costs no turn
where that can be known before the agent begins."""

import os
from pathlib import Path

import pytest
from builders.local_sandbox import needs_sandbox
from builders.policy import SOLVE_HELLO, tool_call
from builders.tasks import write_task

from drydock.errors import Blame
from drydock.rollout import Outcome, run_rollout
from drydock.rollout.outcome import Phase
from drydock.rollout.task_check import check_tasks


def in_toml(task: Path, old: str, new: str) -> Path:
    file = task / "task.toml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    return task


def rewritten(task: Path, name: str, content: bytes) -> Path:
    (task / name).write_bytes(content)
    return task


async def run(task, serve, settings, spec_for, *, sandbox: str = "host", policy=SOLVE_HELLO):
    async with serve(policy) as proxy:
        return await run_rollout(spec_for(task), settings.model_copy(update={"environment": sandbox}), proxy)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[agent]\n", '[agent]\nuser = "ghost"\n', "agent.user is 'ghost', as whom no command can be run"),
        ("[verifier]\n", '[verifier]\nuser = "ghost"\n', "verifier.user is 'ghost', as whom no command can be run"),
        ("[agent]\n", "[agent]\nuser = 99999999999\n", "agent.user is 99999999999, as whom no command can be run"),
        ("timeout_sec = 60.0\n\n[verifier]", "timeout_sec = -5\n\n[verifier]", "task.toml:4: agent.timeout_sec: -5.0"),
        ("timeout_sec = 60.0\n\n[verifier]", "timeout_sec = nan\n\n[verifier]", "give a finite number above 0"),
        ("build_timeout_sec = 120.0", "build_timeout_sec = inf", "environment.build_timeout_sec: inf is no amount"),
        ("build_timeout_sec = 120.0", "memory_mb = -1", "environment.memory_mb: -1 is no amount"),
        ("build_timeout_sec = 120.0", "gpus = 1", "asks for what its sandbox cannot do: Task requires 1 GPU"),
        ("build_timeout_sec = 120.0", '[environment.env]\n"A=B" = "1"', "environment.env.A=B: no process can have"),
        ("build_timeout_sec = 120.0", '[environment.env]\nA = "\\u0000"', "environment.env.A: the value holds a NUL"),
        ("build_timeout_sec = 120.0", '[[steps]]\nname = "../up"', "steps.0.name: Value error, Invalid step name"),
    ],
)
async def test_a_value_that_nothing_can_honour_ends_the_rollout_before_the_agent(
    tmp_path, serve, settings, spec_for, old, new, said
):
    task = in_toml(write_task(tmp_path / "hello"), old, new)
    trajectory = await run(task, serve, settings, spec_for)
    assert (trajectory.outcome, trajectory.blame, trajectory.turns) == (Outcome.SANDBOX_ERROR, Blame.TASK, 0)
    assert said in (trajectory.error or "")
    assert trajectory.evidence.phase is Phase.SANDBOX


@needs_sandbox
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"toml": "memory_mb = 1\n"}, "task.toml: environment.memory_mb is 1, in which no sandbox starts"),
        ({"toml": 'workdir = "/etc/passwd"\n'}, "/etc/passwd cannot be made in the sandbox (Not a directory)"),
        ({"dockerfile": "FROM debian\nUSER ghost\n"}, "USER is 'ghost', as whom no command can be run"),
        ({"dockerfile": "FROM debian\nRUN rm /bin/bash\n"}, "the image has no /bin/bash"),
        ({"dockerfile": "FROM debian\nRUN rm /usr/bin/python3*\n"}, "the image has no /usr/bin/python3"),
    ],
)
async def test_an_image_that_no_sandbox_can_use_is_the_tasks(tmp_path, serve, settings, spec_for, change, said):
    trajectory = await run(write_task(tmp_path / "hello", **change), serve, settings, spec_for, sandbox="local")
    assert (trajectory.outcome, trajectory.blame, trajectory.turns) == (Outcome.SANDBOX_ERROR, Blame.TASK, 0)
    assert said in (trajectory.error or "")


async def test_an_instruction_that_is_no_utf8_is_named_by_line(tmp_path, serve, settings, spec_for):
    task = rewritten(write_task(tmp_path / "hello"), "instruction.md", "One.\nSchreib h\xe4llo.\n".encode("latin-1"))
    trajectory = await run(task, serve, settings, spec_for)
    assert (trajectory.outcome, trajectory.blame) == (Outcome.SANDBOX_ERROR, Blame.TASK)
    assert "instruction.md:2: not UTF-8" in (trajectory.error or "")


async def test_a_pipe_among_the_files_is_refused_instead_of_read(tmp_path, serve, settings, spec_for):
    task = write_task(tmp_path / "hello")
    os.mkfifo(task / "tests" / "pipe")
    trajectory = await run(task, serve, settings, spec_for)
    assert (trajectory.outcome, trajectory.blame) == (Outcome.SANDBOX_ERROR, Blame.TASK)
    assert "tests/pipe is neither a file nor a folder nor a link" in (trajectory.error or "")


async def test_links_that_lead_nowhere_do_no_harm_and_those_to_themselves_are_named(
    tmp_path, serve, settings, spec_for
):
    task = write_task(tmp_path / "hello")
    (task / "notes").symlink_to("/nowhere")
    trajectory = await run(task, serve, settings, spec_for)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 1.0)
    (task / "environment" / "loop").symlink_to("loop")
    trajectory = await run(task, serve, settings, spec_for)
    assert (trajectory.outcome, trajectory.blame) == (Outcome.SANDBOX_ERROR, Blame.TASK)
    assert "environment/loop" in (trajectory.error or "")


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ('echo \'{"reward": {"a": 1}}\' > /logs/verifier/reward.json', "reward {'a': 1} in JSON file /logs/verifier/"),
        ("echo 1 > /logs/verifier/reward.json", "reward.json is no object of numbers"),
        ("echo '{}' > /logs/verifier/reward.json", "the verifier left no reward"),
        ("echo '{\"reward\": null}' > /logs/verifier/reward.json", "Non-numeric reward None"),
        ("printf '{\"reward\": 1%0400d}' 0 > /logs/verifier/reward.json", "reward 'reward' is inf"),
        ("printf '{\"reward\": -1%0400d}' 0 > /logs/verifier/reward.json", "reward 'reward' is -inf"),
        ("mkdir /logs/verifier/reward.txt", "Is a directory: '/logs/verifier/reward.txt'"),
        ("mkfifo /logs/verifier/reward.txt", "No reward file found at /logs/verifier/reward.txt"),
        ("ln -s /dev/zero /logs/verifier/reward.txt", "No reward file found at /logs/verifier/reward.txt"),
        ("head -c 99 /dev/urandom > /logs/verifier/reward.txt", "from text file /logs/verifier/reward.txt"),
    ],
)
async def test_a_reward_that_is_none_is_named_where_the_task_left_it(tmp_path, serve, settings, spec_for, test, said):
    trajectory = await run(write_task(tmp_path / "hello", test=f"{test}\n"), serve, settings, spec_for)
    assert (trajectory.outcome, trajectory.blame, trajectory.reward) == (Outcome.VERIFIER_ERROR, Blame.TASK, None)
    assert said in (trajectory.error or "")


@needs_sandbox
async def test_a_verifier_that_leaves_a_daemon_is_graded_once_and_leaves_nothing(tmp_path, serve, settings, spec_for):
    late = "(setsid sh -c 'sleep 0.3; echo 55 > /logs/verifier/reward.txt' &)\nsetsid sleep 600 &\n"
    task = write_task(tmp_path / "hello", test=f"echo 1 > /logs/verifier/reward.txt\n{late}")
    trajectory = await run(task, serve, settings, spec_for, sandbox="local")
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 1.0)
    assert list((tmp_path / "sandboxes").iterdir()) == []


async def test_a_test_script_needs_neither_a_mode_nor_a_first_line(tmp_path, serve, settings, spec_for):
    task = rewritten(write_task(tmp_path / "hello"), "tests/test.sh", b"echo 1 > /logs/verifier/reward.txt\n")
    (task / "tests" / "test.sh").chmod(0o600)
    trajectory = await run(task, serve, settings, spec_for)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 1.0)


async def test_scripts_with_crlf_are_found_by_the_check_and_say_why_in_a_rollout(tmp_path, serve, settings, spec_for):
    task = write_task(tmp_path / "hello")
    script = (task / "tests" / "test.sh").read_bytes()
    rewritten(task, "tests/test.sh", script.replace(b"\n", b"\r\n"))
    (checked,) = await check_tasks([task], settings, runs=1)
    assert [fault.blame for fault in checked.faults] == [Blame.TASK]
    assert "tests/test.sh:1: the lines end in CRLF" in checked.faults[0].what
    trajectory = await run(task, serve, settings, spec_for)
    assert (trajectory.outcome, trajectory.blame) == (Outcome.VERIFIER_ERROR, Blame.TASK)
    assert "cannot execute" in trajectory.evidence.verifier_output


@needs_sandbox
async def test_a_user_that_a_step_makes_for_the_next_is_no_fault(tmp_path, serve, settings, spec_for):
    task = write_task(tmp_path / "steps")
    for name in ("one", "two"):
        step = task / "steps" / name
        for folder in ("tests", "workdir"):
            (step / folder).mkdir(parents=True)
        (step / "instruction.md").write_text(f"Do nothing, {name}.\n")
        (step / "tests" / "test.sh").write_text("echo 1 > /logs/verifier/reward.txt\n")
    (task / "steps" / "one" / "workdir" / "setup.sh").write_text("useradd worker\n")
    table = '[[steps]]\nname = "one"\n\n[[steps]]\nname = "two"\n\n[steps.agent]\nuser = "worker"\n\n'
    in_toml(task, "[environment]", f"{table}[environment]")
    trajectory = await run(task, serve, settings, spec_for, sandbox="local", policy=[tool_call("finish")])
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 1.0), trajectory.error
