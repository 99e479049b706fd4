"""The service's processes from outside: what remains when one of them is killed, and what a restart finds."""

import asyncio
import os
import signal
import socket
import sys
import time
from pathlib import Path

import psutil
import pytest
from builders.service_api import HELD, Api, sampling_config

from drydock.errors import UserError
from drydock.service.embedded import EmbeddedService

OWNER = """
import asyncio, sys
from pathlib import Path
import psutil
from builders.service_api import Api, sampling_config
from drydock.service.embedded import EmbeddedService

async def main(state_dir, model):
    async with EmbeddedService(Path(state_dir)) as service, Api.of(service) as api:
        await api.post("", json={"sub_job_configs": [sampling_config(model), sampling_config(model)]})
        server = psutil.Process(service.pid)
        while len(server.children(recursive=True)) < 2:
            await asyncio.sleep(0.05)
        print(service.pid, *(child.pid for child in server.children(recursive=True)), flush=True)
        await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


async def gone(pids: list[int], limit_s: float) -> float:
    """Seconds until none of the processes is alive any more."""
    started = time.monotonic()
    while any(_alive(pid) for pid in pids):
        assert time.monotonic() - started < limit_s, [pid for pid in pids if _alive(pid)]
        await asyncio.sleep(0.02)
    return time.monotonic() - started


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_nothing_stays_when_the_owner_is_killed(state_dir: Path, model: str):
    tests = str(Path(__file__).parents[1])
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER, str(state_dir), model),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": tests},
    )
    assert owner.stdout is not None
    line = await asyncio.wait_for(owner.stdout.readline(), 60)
    pids = [int(word) for word in line.split()]
    assert len(pids) == 3
    assert all(_alive(pid) for pid in pids)
    owner.kill()
    await owner.wait()
    await gone(pids, limit_s=10)


async def test_a_port_that_is_taken_and_a_folder_in_use_are_the_users_to_change(state_dir: Path, tmp_path: Path):
    async with EmbeddedService(state_dir) as service:
        port = int(service.base_url.rpartition(":")[2])
        with pytest.raises(UserError, match=rf"port {port} of 127\.0\.0\.1 is taken"):
            async with EmbeddedService(tmp_path / "other", port=port):
                pass
        with pytest.raises(UserError, match=r"another service runs on .*state"):
            async with EmbeddedService(state_dir):
                pass
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be used"):
        async with EmbeddedService(tmp_path / "file"):
            pass
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "service.sqlite").write_text("no database, just some text that is long enough" * 10)
    with pytest.raises(UserError, match="not a usable database"):
        async with EmbeddedService(tmp_path / "foreign"):
            pass
    with socket.socket() as free:
        free.bind(("127.0.0.1", port))


async def test_a_restart_on_the_same_folder_finds_results_and_fails_what_was_running(state_dir: Path, model: str):
    sampling = {"max_tokens": 4, "ignore_eos": True}
    key = {"Idempotency-Key": "again"}
    async with EmbeddedService(state_dir) as service:
        async with Api.of(service) as api:
            await api.post("", json={"job_id": "j", "comment": "kept", "sub_job_configs": [sampling_config(model)]})
            await api.wait_for_job("j")
            body = {"prompts": [[5, 6]], "sampling_params": sampling}
            finished = await api.post("/j/generate", json=body, headers={**HELD, **key})
            longer = {"prompts": [[5, 6]], "sampling_params": {**sampling, "max_tokens": 2000}}
            unfinished = (await api.post("/j/generate", json=longer))["request_id"]
            await asyncio.sleep(0.15)
        workers = [child.pid for child in psutil.Process(service.pid).children(recursive=True)]
        assert len(workers) == 1
        assert service.pid is not None
        os.kill(service.pid, signal.SIGKILL)
        await gone([service.pid, *workers], limit_s=5)
    async with EmbeddedService(state_dir) as service, Api.of(service) as api:
        job = await api.get("/j")
        assert (job["status"], job["comment"]) == ("failed", "kept")
        assert "restarted" in job["reason"]
        assert job["sub_jobs"][0]["status"] == "failed"
        assert await api.poll("j", finished["request_id"]) == finished
        assert await api.post("/j/generate", json=body, headers={**HELD, **key}) == finished
        lost = await api.poll("j", unfinished)
        assert lost["status"] == "failed"
        assert "restarted" in lost["error"]
        assert (await api.call("POST", "/j/generate", json=body)).status_code == 410
        assert [entry["job_id"] for entry in (await api.get("", params={"comment": "kept"}))["jobs"]] == ["j"]


async def test_leaving_the_block_while_a_job_starts_ends_at_once(state_dir: Path, model: str):
    async with EmbeddedService(state_dir) as service:
        api = Api.of(service)
        created = await api.post("", json={"job_id": "j", "sub_job_configs": [sampling_config(model)]})
        assert created["status"] == "pending"
        pid = service.pid
        started = time.monotonic()
    assert time.monotonic() - started < 5
    assert pid is not None
    assert not _alive(pid)
    await api.http.aclose()
    async with EmbeddedService(state_dir) as service, Api.of(service) as api:
        job = await api.get("/j")
        assert job["status"] in ("terminated", "failed")
        assert job["reason"] == "the service was stopped"


async def test_a_service_started_by_hand_says_where_it_is_and_ends_on_a_signal(state_dir: Path):
    code = f"""
from pathlib import Path
from drydock.service.server import serve
from drydock.service.settings import ServiceSettings
serve(ServiceSettings(state_dir=Path({str(state_dir)!r})))
"""
    unset = {key: value for key, value in os.environ.items() if key != "DRYDOCK_SERVICE_TOKEN"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code), stdout=asyncio.subprocess.PIPE, env=unset
    )
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), 30)).decode()
    url = next(word for word in line.split() if word.startswith("http://"))
    async with Api(url, None) as api:
        assert await api.get("") == {"jobs": []}
    process.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(process.wait(), 10) == 0


async def test_the_api_process_loads_no_model_library():
    code = "import sys, drydock.service.server; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert (await process.communicate())[0].strip() == b"[]"
