"""Servers over their standard streams, well-behaved and not, in a directory of this machine."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from builders.bash_environment import BashEnvironment
from builders.mcp_sessions import SDK_SCRIPT, Watched, called, scripted, started

from drydock.errors import TaskError
from drydock.harness.failures import SandboxCommandFailed
from drydock.harness.mcp.servers import ServerLimits

ENDED = (
    "error: [the MCP server scripted failed: it ended with exit code 3; the end of its standard error:\nit is all over]"
)


@pytest.fixture(autouse=True)
async def watched(bash: BashEnvironment) -> AsyncIterator[Watched]:
    """Whatever a test does, nothing of its servers is left."""
    watched = Watched(bash)
    yield watched
    watched.after = None
    await watched.nothing_is_left()


async def test_tools_are_listed_page_by_page_and_called(bash):
    async with started(bash, scripted()) as servers:
        assert [tool.name for tool in servers.tools][:6] == ["echo", "size", "big", "flood", "die", "silent"]
        arguments = {"text": 'it\'s "é" \n \u2028 𝄞 END-OF-MESSAGE $HOME `x`', "count": 3}
        assert json.loads(await called(servers, "echo", **arguments)) == arguments
        assert await called(servers, "mixed") == "first\n[image of type image/png left out]\nin a resource"
        assert await called(servers, "structured") == '{"celsius": 21.5}'
        assert await called(servers, "fails") == "error: no such city"


async def test_the_server_works_where_the_agent_does_and_is_told_when_its_input_ends(bash):
    script = bash.root / "server.sh"
    script.write_text(
        "while read -r line; do case $line in\n"
        """*'"initialize"'*) echo '{"id":1,"result":{"protocolVersion":"2024-11-05"}}' ;;\n"""
        """*'"tools/list"'*) echo '{"id":2,"result":{"tools":[]}}' ;; esac; done\necho "ended" > state\n"""
    )
    async with started(bash, scripted("shell", python="sh", script="server.sh")) as servers:
        assert servers.tools == ()
    assert (bash.root / "state").read_text() == "ended\n"


async def test_large_arguments_and_results_are_carried(bash):
    async with started(bash, scripted(), max_output_chars=2_000_000) as servers:
        assert await called(servers, "size", text="x" * 90_000) == "90000"
        assert await called(servers, "big", count=1_000_000) == "é" * 1_000_000
        assert "100000 are possible" in await called(servers, "size", text="x" * 100_000)
        assert await called(servers, "size", text="x") == "1"


async def test_a_result_is_cut_in_its_middle(bash):
    async with started(bash, scripted(), max_output_chars=100) as servers:
        assert await called(servers, "big", count=1_000) == f"{'é' * 50}\n[... 900 characters left out ...]\n{'é' * 50}"


async def test_junk_and_strange_answers_on_the_way_are_left_out(bash):
    async with started(bash, scripted()) as servers:
        assert await called(servers, "junk") == "after junk"


async def test_what_the_server_asks_in_the_middle_of_a_call_is_answered(bash):
    async with started(bash, scripted()) as servers:
        assert await called(servers, "chatty") == '[{}, {"roots": []}, -32601]'


async def test_a_dead_server_is_told_to_the_model_every_time(bash):
    async with started(bash, scripted()) as servers:
        assert await called(servers, "die") == ENDED
        assert await called(servers, "echo") == ENDED


async def test_a_server_that_the_agent_kills_is_gone(bash, watched):
    async with started(bash, scripted()) as servers:
        (home,) = watched.homes
        shell = (home / "pid").read_text().strip()
        children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        (server,) = [pid for pid in children if Path(f"/proc/{pid}/exe").resolve() == Path(sys.executable).resolve()]
        os.kill(int(server), signal.SIGKILL)
        assert "it ended with exit code 137" in await called(servers, "echo")


@pytest.mark.slow
async def test_a_late_answer_is_not_taken_for_the_next(bash):
    async with started(bash, scripted(), timeout_s=1) as servers:
        assert "it did not answer within 1 s" in await called(servers, "silent", count=3)
        while "did not answer" in (answer := await called(servers, "echo", text="next")):
            pass
        assert answer == '{"text": "next"}'


@pytest.mark.slow
async def test_a_flood_ends_the_server_and_not_the_rollout(bash):
    async with started(bash, scripted()) as servers:
        assert "it wrote a line of more than" in await called(servers, "flood")
        assert "it wrote a line of more than" in await called(servers, "echo")


@pytest.mark.slow
async def test_a_server_that_reads_no_more_is_given_up_when_its_pipe_is_full(bash):
    async with started(bash, scripted(), timeout_s=1) as servers:
        assert "did not answer" in await called(servers, "silent", count=60)
        assert "it did not read the message within 1 s" in await called(servers, "size", text="x" * 90_000)


async def test_a_call_that_is_cancelled_leaves_nothing(bash):
    async with started(bash, scripted()) as servers:
        call = asyncio.create_task(called(servers, "silent", count=60))
        await asyncio.sleep(0.3)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_a_start_that_is_cancelled_leaves_nothing(bash):
    async def start() -> None:
        async with started(bash, scripted("s", "--start", "silent")):
            pass

    starting = asyncio.create_task(start())
    await asyncio.sleep(0.3)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting


async def test_a_sandbox_that_breaks_is_not_the_servers_fault(bash):
    async with started(bash, scripted()) as servers:
        bash.fail_exec = True
        with pytest.raises(SandboxCommandFailed):
            await called(servers, "echo")
        bash.fail_exec = False


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (scripted("db", "--start", "crash"), "ended with exit code 1; .*:\nthe database is not there"),
        (scripted("db", "--start", "silent"), "did not answer within 3 s; .*:\nwaiting for the database"),
        (scripted("db", "--start", "old"), "speaks version '1999-01-01' of the protocol, not one of 2025-06-18"),
        (
            scripted("db", python="no-such-program"),
            "ended with exit code 127; .*:\n.*no-such-program: command not found",
        ),
        (scripted("db", python="cat"), "ended with exit code 1; .*No such file"),
    ],
)
async def test_a_server_that_does_not_start_is_the_tasks_fault(bash, server, said):
    if server.command == "cat":
        server = server.model_copy(update={"args": ["nothing"]})
    with pytest.raises(TaskError, match=rf"the MCP server 'db' of the task did not start: it (?s:{said})"):
        async with started(bash, server, limits=ServerLimits(start_s=3 if "silent" in server.args else 20)):
            pass


async def test_one_bad_server_among_good_ones_is_named_and_all_are_closed(bash):
    with pytest.raises(TaskError, match="the MCP server 'bad'"):
        async with started(bash, scripted("good"), scripted("bad", "--start", "crash")):
            pass


async def test_tools_of_two_servers_with_one_name_go_to_their_own(bash):
    first, second = scripted("a", "--names", "echo,terminal"), scripted("b", "--names", "echo,die")
    async with started(bash, first, second) as servers:
        assert [tool.name for tool in servers.tools] == ["a_echo", "a_terminal", "b_echo", "die"]
        assert await called(servers, "a_terminal", text="x") == '{"text": "x"}'
        await called(servers, "die")
        assert (await called(servers, "b_echo", text="x")).startswith("error: [the MCP server b failed: it ended")
        assert await called(servers, "a_echo", text="y") == '{"text": "y"}'


async def test_standard_error_is_kept_to_its_end_and_bounded(bash):
    noise = "import sys\nfor n in range(3000): print('line', n, 'x' * 100, file=sys.stderr)\nsys.exit(4)"
    (bash.root / "noise.py").write_text(noise)
    with pytest.raises(TaskError) as failure:
        async with started(bash, scripted("noisy", script="noise.py")):
            pass
    assert "line 2999" in str(failure.value)
    assert len(str(failure.value)) < 3_000


async def test_a_secret_on_standard_error_is_hidden_wherever_it_is_cut(bash):
    secret = "open-sesame-and-be-quick-about-it"
    noise = f"import sys\nfor before in (1990, 1500): print('x' * before + '{secret}', file=sys.stderr)\nsys.exit(4)"
    (bash.root / "noise.py").write_text(noise)
    with pytest.raises(TaskError) as failure:
        async with started(bash, scripted("noisy", script="noise.py"), secrets=[secret]):
            pass
    assert f"{'x' * 1500}[hidden]" in str(failure.value)
    assert not [part for part in secret.split("-") if len(part) > 3 and part in str(failure.value)]


async def test_secrets_are_hidden_in_strings_and_break_no_schema(bash):
    said = 'say "é\\'
    async with started(bash, scripted(), secrets=["1000000", said]) as servers:
        assert servers.tools[0].schema["function"]["parameters"]["properties"]["count"]["maximum"] == 1_000_000
        assert await called(servers, "repeat", text=said) == '{"[hidden]": ["[hidden]"]}'


async def test_half_a_surrogate_pair_is_replaced(bash):
    async with started(bash, scripted()) as servers:
        assert await called(servers, "broken") == "half a pair: \N{REPLACEMENT CHARACTER}"


async def test_a_server_that_asks_too_much_at_once_is_given_up(bash):
    async with started(bash, scripted(), scripted("long", "--names", "pings")) as servers:
        assert await called(servers, "scripted_pings", text="p", count=20) == "answered"
        assert "it asks the client more at once" in await called(servers, "scripted_pings", text="p", count=1_000)
        assert "it asks the client more at once" in await called(servers, "long_pings", text="p" * 20_000, count=6)


async def test_a_closing_that_hangs_is_cancelled(bash, watched):
    async def hang(script: str) -> None:
        if script.startswith("over()"):
            await asyncio.Event().wait()

    before = asyncio.all_tasks()
    async with started(bash, scripted(), limits=ServerLimits(close_s=0.3)):
        watched.after = hang
    assert asyncio.all_tasks() <= before


@pytest.mark.slow
async def test_a_server_of_the_projects_own_sdk_is_understood(bash):
    async with started(bash, scripted("weather", "stdio", "0", script=SDK_SCRIPT)) as servers:
        assert await called(servers, "add", first=1, second=2) == "3"
        assert (await called(servers, "add", first="x", second=2)).startswith("error: ")
        assert await called(servers, "alive") == "the client is alive"


@pytest.mark.slow
async def test_many_servers_at_once_do_not_get_into_each_others_way(bash):
    async def one(number: int) -> None:
        async with started(bash, scripted(f"s{number}")) as servers:
            for turn in range(5):
                assert await called(servers, "echo", count=number * turn) == f'{{"count": {number * turn}}}'

    await asyncio.gather(*(one(number) for number in range(12)))
