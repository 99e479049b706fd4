"""Commands in the local sandbox keep Harbor's contract, and never hang, flood or leak."""

import asyncio
import time
from pathlib import Path

import pytest
from builders.sandbox_environment import build_environment

from drydock.errors import ConfigError, SandboxError
from drydock.sandbox.local import LocalEnvironment

pytestmark = pytest.mark.sandbox


async def test_exit_code_and_both_streams_come_back(local):
    result = await local.exec("echo out; echo err >&2; exit 7")
    assert (result.return_code, result.stdout, result.stderr) == (7, "out\n", "err\n")


async def test_death_by_signal_is_128_plus_its_number(local):
    assert (await local.exec("kill -TERM $$")).return_code == 128 + 15


async def test_missing_program_directory_and_user_say_so_on_stderr(local):
    assert (await local.exec("no-such-program")).return_code == 127
    gone = await local.exec("true", cwd="/gone")
    assert gone.return_code == 127
    assert "/gone" in gone.stderr
    nobody = await local.exec("true", user="whoever")
    assert nobody.return_code == 126
    assert "whoever" in nobody.stderr


async def test_working_directory_is_the_workdir_and_relative_paths_start_there(start):
    environment = await start("FROM debian:12\nWORKDIR /srv/app/inner\n")
    assert (await environment.exec("pwd")).stdout == "/srv/app/inner\n"
    assert (await environment.exec("pwd", cwd="..")).stdout == "/srv/app\n"
    assert (await environment.exec("pwd", cwd="/etc")).stdout == "/etc\n"


async def test_environment_is_the_image_then_the_task_then_the_call(start):
    environment = await start("FROM debian\nENV A=image B=image\n", task={"env": {"B": "task", "C": "task"}})
    with environment.scoped_exec_env({"D": "scoped"}):
        result = await environment.exec("echo $A $B $C $D", env={"C": "call", "D": "call"})
    assert result.stdout == "image task call scoped\n"


async def test_nothing_of_the_drivers_environment_is_inside(local, monkeypatch):
    monkeypatch.setenv("DRYDOCK_TEST_SECRET", "hunter2")
    assert "hunter2" not in (await local.exec("env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'")).stdout


async def test_users_by_name_by_number_and_with_their_home(local):
    assert (await local.exec("useradd -m -s /bin/bash agent")).return_code == 0
    assert (await local.exec("id -un; echo $HOME; echo ok > ~/file; cat ~/file", user="agent")).stdout == (
        "agent\n/home/agent\nok\n"
    )
    assert (await local.exec("id -u", user=1234)).stdout == "1234\n"
    assert (await local.exec("id -u; echo $HOME", user="root")).stdout == "0\n/root\n"
    with local.with_default_user("agent"):
        assert (await local.exec("id -un")).stdout == "agent\n"


async def test_another_user_has_no_capabilities_left(local):
    result = await local.exec("grep -E 'CapEff|CapPrm|CapAmb' /proc/self/status", user="nobody")
    assert [line.split()[1] for line in result.stdout.splitlines()] == ["0" * 16] * 3


async def test_standard_streams_can_be_opened_by_name(local):
    for user in ("root", "nobody"):
        result = await local.exec("echo a > /dev/stdout; echo b > /dev/stderr", user=user)
        assert (result.stdout, result.stderr) == ("a\n", "b\n")


async def test_standard_input_is_empty(local):
    assert (await local.exec("cat; echo done", timeout_sec=5)).stdout == "done\n"


async def test_a_command_longer_than_an_argument_can_be(local):
    text = "x" * 300_000
    result = await local.exec(f"wc -c <<'EOF'\n{text}\nEOF")
    assert result.stdout.strip() == "300001"


async def test_bytes_that_are_no_text_are_replaced(local):
    assert (await local.exec("printf 'a\\xff\\xfeb'")).stdout == "a��b"


async def test_time_limit_is_124_with_the_output_so_far_and_kills_the_tree(local):
    began = time.monotonic()
    result = await local.exec("echo early; (sleep 300 & sleep 300) & sleep 300", timeout_sec=1)
    assert time.monotonic() - began < 4
    assert (result.return_code, result.stdout) == (124, "early\n")
    assert (await local.exec("pgrep -c sleep")).stdout == "0\n"


async def test_time_limit_spares_other_commands_and_earlier_servers(local):
    await local.exec("sleep 298 >/dev/null 2>&1 &")
    other = asyncio.create_task(local.exec("sleep 2; echo finished"))
    await local.exec("sleep 299", timeout_sec=1)
    assert (await other).stdout == "finished\n"
    assert (await local.exec("pgrep -f 'sleep 298'")).return_code == 0


async def test_cancellation_kills_the_command(local):
    task = asyncio.create_task(local.exec("sleep 297 & sleep 297"))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await local.exec("sleep 0.2; pgrep -c -f 'sleep 297'")).stdout == "0\n"


async def test_a_background_process_that_holds_the_pipe_is_not_waited_for(local):
    began = time.monotonic()
    result = await local.exec("echo now; (sleep 296; echo late) &", timeout_sec=20)
    assert (result.return_code, result.stdout) == (0, "now\n")
    assert time.monotonic() - began < 5
    assert (await local.exec("pgrep -c -f 'sleep 296'")).stdout != "0\n"


async def test_a_background_server_that_logs_to_the_pipe_goes_on_working(local):
    await local.exec("(for i in $(seq 200); do head -c 1000 /dev/zero; sleep 0.005; done; echo x > /tmp/through) &")
    for _ in range(40):
        await asyncio.sleep(0.25)
        if (await local.exec("test -e /tmp/through")).return_code == 0:
            return
    pytest.fail("the writer was blocked or killed")


async def test_a_flood_is_cut_in_the_middle_and_does_not_fill_memory(start):
    environment = await start(max_output_bytes=10_000)
    result = await environment.exec(
        "echo first; head -c 300000000 /dev/zero | tr '\\0' y; echo; echo last", timeout_sec=60
    )
    assert result.return_code == 0
    assert result.stdout.startswith("first\ny")
    assert result.stdout.endswith("y\nlast\n")
    assert "bytes of output dropped" in result.stdout
    assert len(result.stdout) < 11_000


async def test_an_endless_flood_ends_at_its_time_limit(start):
    environment = await start(max_output_bytes=10_000)
    result = await environment.exec("yes", timeout_sec=1)
    assert result.return_code == 124
    assert len(result.stdout) < 11_000


async def test_kill_processes_ends_everything_and_keeps_files(local):
    await local.exec("echo kept > /tmp/file; setsid sh -c 'trap \"\" TERM HUP; sleep 295' >/dev/null 2>&1 &")
    under_way = asyncio.create_task(local.exec("sleep 294"))
    await asyncio.sleep(0.2)
    await local.kill_processes()
    assert (await under_way).return_code == 137
    assert (await local.exec("cat /tmp/file; pgrep -c sleep")).stdout == "kept\n0\n"


async def test_hundred_commands_at_once(local):
    results = await asyncio.gather(*(local.exec(f"echo {i}") for i in range(100)))
    assert [result.stdout for result in results] == [f"{i}\n" for i in range(100)]


async def test_after_stop_commands_are_refused_by_name(start):
    environment = await start()
    await environment.stop(delete=True)
    await environment.stop(delete=True)
    with pytest.raises(SandboxError, match="task__env is not running"):
        await environment.exec("true")


async def test_unknown_option_is_refused_with_the_nearest_name(start):
    with pytest.raises(ConfigError, match="did you mean allow_network"):
        await start(allow_netwrk=True)
    with pytest.raises(ConfigError, match="storage"):
        await start(storage="tape")


async def test_output_callback_gets_the_streams(local):
    seen = []

    async def take(text, stream):
        seen.append((text, stream))

    with local.scoped_output_callback(take):
        await local.exec("echo a; echo b >&2")
    assert seen == [("a\n", "stdout"), ("b\n", "stderr")]


async def test_nothing_is_leaked_by_many_sandboxes(tmp_path):
    async def life(number):
        environment = build_environment(LocalEnvironment, tmp_path / str(number), "FROM debian\n")
        await environment.start(force_build=False)
        await environment.exec("(sleep 289 &)", timeout_sec=10)
        await environment.stop(delete=True)

    await life(0)
    before = sorted(entry.name for entry in Path("/proc/self/fd").iterdir())
    for number in range(1, 6):
        await life(number)
    assert sorted(entry.name for entry in Path("/proc/self/fd").iterdir()) == before
