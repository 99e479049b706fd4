"""One shell for a whole rollout, in a directory of this machine; the real sandboxes have a module of their own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from builders.bash_environment import BashEnvironment, bash_environment

from drydock.harness.failures import SandboxCommandFailed
from drydock.harness.persistent_shell import PersistentShell
from drydock.harness.sandbox_access import SandboxAccess

LOST = "a new shell starts in the same directory, without its variables and functions]"


@pytest.fixture
async def environment(tmp_path: Path) -> AsyncIterator[BashEnvironment]:
    environment = bash_environment(tmp_path)
    await environment.start(force_build=False)
    yield environment
    await environment.stop(delete=True)


@pytest.fixture
async def shell(environment: BashEnvironment) -> AsyncIterator[Callable[..., PersistentShell]]:
    made: list[PersistentShell] = []

    def make(*, timeout_s: float = 20.0, max_output_chars: int = 1000, rollout_id: str = "r1") -> PersistentShell:
        sandbox = SandboxAccess(environment, timeout_s=timeout_s, max_output_chars=max_output_chars)
        made.append(PersistentShell(sandbox, rollout_id=rollout_id))
        return made[-1]

    yield make
    environment.fail_exec = False
    for home in (str(box._home) for box in made if box._home is not None):
        await environment.exec(f"kill -9 -- -$(<{home}/pid); rm -r {home}")


async def said(box: PersistentShell, command: str) -> str:
    text, is_error = await box.run(command)
    assert not is_error
    return text


async def test_directory_variables_functions_and_options_are_kept(environment, shell):
    box = shell()
    assert (
        await said(box, "mkdir -p 'a b' && cd 'a b'; X=1; f() { echo \"f $1\"; }; shopt -s nullglob") == "[no output]"
    )
    assert await said(box, 'pwd; echo "[$X]"; f 2; echo *') == f"{environment.root}/a b\n[1]\nf 2"


async def test_output_order_and_exit_codes_are_as_in_fresh_shells(shell):
    box = shell()
    assert await said(box, "echo out; echo err >&2; (exit 3)") == "out\nerr\n[exit code 3]"
    assert await said(box, "cat <<X\nhi\nX") == "hi"
    assert await said(box, "echo hi # comment") == "hi"
    assert await said(box, "printf 'no newline'") == "no newline"
    assert await said(box, "false") == "[exit code 1]"
    assert await said(box, "echo '$X !! \"q\" \\\\'") == '$X !! "q" \\\\'
    assert "syntax error" in await said(box, "if then")
    assert await said(box, "echo on") == "on"


async def test_a_command_gets_no_input(shell):
    assert await said(shell(), "cat; read line; echo end") == "end"


async def test_background_jobs_go_on_between_commands(shell):
    box = shell()
    await said(box, "(while sleep 0.05; do echo x >> log; done) >/dev/null 2>&1 & job=$!")
    await asyncio.sleep(0.3)
    assert int(await said(box, "wc -l < log")) >= 2
    assert await said(box, "kill $job; wait $job 2>/dev/null; echo $?") == "143"


async def test_an_endless_command_is_interrupted_and_nothing_is_lost(shell):
    box = shell(timeout_s=1.0)
    await said(box, "X=kept; sleep 300 & job=$!")
    for endless in ("echo begun; sleep 300", "echo begun; while true; do :; done", "echo begun; sleep 300; echo never"):
        assert await said(box, endless) == "begun\n[stopped: the command ran longer than 1 s]"
    assert await said(box, "kill -0 $job && echo $X") == "kept"


async def test_a_command_that_ignores_the_interrupt_is_killed(environment, shell):
    box = shell(timeout_s=1.0)
    await said(box, "mkdir d; cd d; X=lost")
    text = await said(box, "trap '' INT; (trap '' INT; echo $BASHPID > ../pid; exec sleep 300)")
    assert text == f"[stopped: the command ran longer than 1 s]\n[it had to be killed: {LOST}"
    pid = (environment.root / "pid").read_text().strip()
    assert not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/cmdline").read_bytes() == b""
    assert await said(box, 'pwd; echo "[$X]"') == f"{environment.root}/d\n[]"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo bye; exit 3", f"bye\n[the shell ended with exit code 3: {LOST}"),
        ("set -e; false", f"[the shell ended with exit code 1: {LOST}"),
        ("kill -9 $$", f"[the shell ended: {LOST}"),
        ("exec true", f"[the shell ended: {LOST}"),
    ],
)
async def test_a_shell_that_ends_is_replaced(shell, command: str, text: str):
    box = shell()
    await said(box, "cd /; X=1")
    assert await said(box, command) == text
    assert await said(box, 'pwd; echo "[$X]"') == "/\n[]"


async def test_long_output_loses_its_middle(shell):
    box = shell(max_output_chars=100)
    text = await said(box, "printf 'a%.0s' $(seq 300); printf 'b%.0s' $(seq 300)")
    assert text == "a" * 50 + "\n[... 500 characters left out ...]\n" + "b" * 50
    flood = await said(box, "head -c 3000000 /dev/zero | tr '\\0' c; echo end")
    assert flood.startswith("c" * 50)
    assert flood.endswith("c" * 47 + "end")
    assert len(flood) < 200


async def test_a_broken_path_and_a_long_command_do_no_harm(shell):
    box = shell()
    await said(box, "PATH=/nowhere; cd /")
    assert await said(box, "echo still; pwd") == "still\n/"
    assert await said(box, f": {'x' * 90_000}; echo long") == "long"
    text, is_error = await box.run("echo \0")
    assert (text, is_error) == ("the command contains a NUL character", True)


async def test_a_sandbox_that_is_lost_or_lacks_bash_is_not_the_models_mistake(environment, shell):
    environment.fail_exec = True
    with pytest.raises(SandboxCommandFailed, match="the sandbox is gone"):
        await shell().run("true")


async def test_what_the_model_reads_is_the_same_in_every_rollout(shell):
    commands = ["if then", "nosuchcommand", "cd /nosuch", "eval 'x ('", "echo ${x?unset}", "exit 2"]
    texts = []
    for name in ("r1", "r2"):
        box = shell(rollout_id=name)
        texts.append([await said(box, command) for command in commands])
    assert texts[0] == texts[1]
    assert "/tmp" not in "".join(texts[0])
