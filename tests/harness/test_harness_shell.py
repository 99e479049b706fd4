import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from builders.bash_environment import BashEnvironment, bash_environment

from drydock.harness.failures import SandboxCommandFailed
from drydock.harness.sandbox_access import SandboxAccess
from drydock.harness.shell import SandboxShell


@pytest.fixture
async def environment(tmp_path: Path) -> AsyncIterator[BashEnvironment]:
    environment = bash_environment(tmp_path)
    await environment.start(force_build=False)
    yield environment
    await environment.stop(delete=True)


def shell(environment: BashEnvironment, *, command_timeout_s: float = 20.0, max_output_chars: int = 1000):
    sandbox = SandboxAccess(environment, timeout_s=command_timeout_s, max_output_chars=max_output_chars)
    return SandboxShell(sandbox, rollout_id="r1")


async def test_the_working_directory_is_kept_and_variables_are_not(environment: BashEnvironment):
    box = shell(environment)
    await box.run("mkdir -p 'a dir/b' && cd 'a dir/b' && X=1")
    text, _ = await box.run('pwd; echo "[$X]"')
    assert text == f"{environment.root}/a dir/b\n[]"


async def test_a_failing_command_keeps_directory_and_shows_output_in_order_with_its_exit_code(environment):
    box = shell(environment)
    text, is_error = await box.run("mkdir d; cd d; echo out; echo err >&2; echo out2; exit 3")
    assert (text, is_error) == ("out\nerr\nout2\n[exit code 3]", False)
    assert (await box.run("pwd"))[0] == f"{environment.root}/d"


async def test_a_directory_that_disappeared_does_not_break_the_next_command(environment):
    box = shell(environment)
    await box.run("mkdir gone; cd gone")
    await box.run("cd ..; rmdir gone; true")
    await box.run("mkdir gone2; cd gone2; rmdir ../gone2")
    text, _ = await box.run("echo alive")
    assert text == "alive"


async def test_a_syntax_error_is_an_observation(environment):
    text, is_error = await shell(environment).run("if then")
    assert "syntax error" in text
    assert text.endswith("[exit code 2]")
    assert not is_error


async def test_heredocs_and_comments_at_the_end_work(environment):
    assert (await shell(environment).run("cat <<X\nhi\nX"))[0] == "hi"
    assert (await shell(environment).run("echo hi # comment"))[0] == "hi"


async def test_no_output_is_said(environment):
    assert (await shell(environment).run("true"))[0] == "[no output]"


async def test_long_output_loses_its_middle(environment):
    text, _ = await shell(environment, max_output_chars=100).run("printf 'a%.0s' $(seq 300); printf 'b%.0s' $(seq 300)")
    assert text == "a" * 50 + "\n[... 500 characters left out ...]\n" + "b" * 50


async def test_an_endless_command_is_stopped_and_the_shell_goes_on(environment):
    box = shell(environment, command_timeout_s=1.0)
    text, is_error = await box.run("sleep 30")
    assert (text, is_error) == ("[stopped: the command ran longer than 1 s]", False)
    assert (await box.run("echo on"))[0] == "on"


@pytest.mark.parametrize("command", ["echo \0", "echo \ud800", "echo " + "x" * 200_000])
async def test_what_no_shell_can_be_given_is_refused_as_the_models_mistake(environment, command: str):
    text, is_error = await shell(environment).run(command)
    assert is_error
    assert text.startswith("the command ")


async def test_a_lost_sandbox_is_not_the_models_mistake(environment):
    environment.fail_exec = True
    with pytest.raises(SandboxCommandFailed, match="the sandbox is gone"):
        await shell(environment).run("true")


async def test_cancelling_stops_the_command(environment):
    task = asyncio.create_task(shell(environment).run("echo $$ > pid; exec sleep 60"))
    pid_file = environment.root / "pid"
    async with asyncio.timeout(10):
        while not (pid_file.exists() and pid_file.read_text()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not Path(f"/proc/{pid_file.read_text().strip()}").exists()
