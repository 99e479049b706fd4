"""The host sandbox: the machine itself, with private directories."""

from pathlib import Path

import pytest

from drydock.errors import TaskError

pytestmark = pytest.mark.sandbox


async def test_private_directories_are_private_and_gone_afterwards(start_host, tmp_path):
    one, two = await start_host(name="one"), await start_host(name="two")
    await one.exec("for d in /app /logs/agent /tests /solution /tmp; do mkdir -p $d; echo one > $d/mark; done")
    assert (await one.exec("cat /app/mark /tmp/mark")).stdout == "one\none\n"
    assert (await two.exec("cat /app/mark /tmp/mark")).stdout == ""
    assert not Path("/app/mark").exists()
    await one.stop(delete=True)
    assert list((tmp_path / "one" / "state").iterdir()) == []


async def test_dockerfile_is_replayed_and_hosts_files_are_seen(start_host, tmp_path):
    context = tmp_path / "host" / "environment"
    context.mkdir(parents=True)
    (context / "file").write_text("copied")
    environment = await start_host("FROM any\nENV A=b\nWORKDIR /workspace/in\nCOPY file sub/\nRUN echo ran-$A > made\n")
    shown = await environment.exec("cat sub/file made; pwd; cat /etc/hostname")
    assert shown.stdout == f"copiedran-b\n/workspace/in\n{Path('/etc/hostname').read_text()}"
    assert not Path("/workspace").exists()


async def test_writing_into_the_hosts_directories_is_refused(start_host):
    with pytest.raises(TaskError, match=r"Dockerfile:2: /usr/local/bin/x is in the host's own /usr"):
        await start_host("FROM any\nCOPY x /usr/local/bin/x\n")


async def test_transfers_use_the_view(start_host, tmp_path):
    environment = await start_host()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test.sh").write_text("echo hi")
    await environment.upload_dir(tmp_path / "tests", "/tests")
    assert (await environment.exec("cat /tests/test.sh")).stdout == "echo hi"
    assert not Path("/tests/test.sh").exists()
    await environment.exec("echo result > /logs/verifier/out")
    await environment.download_dir("/logs/verifier", tmp_path / "logs")
    assert (tmp_path / "logs" / "out").read_text() == "result\n"


async def test_kill_processes_spares_the_host(start_host):
    environment = await start_host()
    await environment.exec("setsid sleep 290 >/dev/null 2>&1 &")
    await environment.kill_processes()
    assert (await environment.exec("pgrep -c -f 'sleep 290'")).stdout == "0\n"
