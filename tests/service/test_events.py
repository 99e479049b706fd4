"""Server-sent events of requests, jobs and logs, as a plain HTTP client reads them."""

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from builders.service_api import HELD, Api, chunks_of, sampling_config, sft_batch

from drydock.service import sse
from drydock.service.changes import QUEUED, Changes
from drydock.service.embedded import EmbeddedService
from drydock.wire.results import join_result, read_result_event

pytestmark = pytest.mark.asyncio(loop_scope="session")

EVENTS = {"Accept": "text/event-stream"}
ONE_TOKEN = {"prompts": [[5]], "sampling_params": {"max_tokens": 1}}
Event = tuple[str, dict[str, Any], str]


@contextlib.asynccontextmanager
async def listening(api: Api, path: str, **fields: Any) -> AsyncIterator[AsyncIterator[Event]]:
    """The events at a path: (name, data, id)."""
    headers = {**EVENTS, **fields.pop("headers", {})}
    async with api.stream("GET", path, headers=headers, **fields) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")

        async def events() -> AsyncIterator[Event]:
            fields: dict[str, str] = {}
            async for line in answer.aiter_lines():
                if not line and "data" in fields:
                    yield fields["event"], json.loads(fields["data"]), fields.get("id", "")
                    fields = {}
                elif line and not line.startswith(":"):
                    name, _, value = line.partition(": ")
                    fields[name] = value

        yield events()


async def all_events(api: Api, path: str, **fields: Any) -> list[Event]:
    async with asyncio.timeout(30), listening(api, path, **fields) as events:
        return [event async for event in events]


async def test_a_streaming_request_tells_each_prompt_and_can_be_resumed(api: Api, job: str):
    body = {"prompts": [[5, 6], [7, 8], [9]], "sampling_params": {"max_tokens": 3, "ignore_eos": True}}
    started = await api.post(f"/{job}/generate-stream", json=body)
    path = f"/{job}/requests/{started['request_id']}"
    events = await all_events(api, path)
    produced = [event for event in events if event[0] not in ("status", "end")]
    assert sorted(data["index"] for name, data, _ in produced if name == "result") == [0, 1, 2], events
    assert produced[-1][0] == "done"
    assert [place for _, _, place in produced] == ["1", "2", "3", "4"]
    assert events[-1][0] == "end"
    assert events[-1][1]["status"] == "completed"
    again = await all_events(api, path, headers={"Last-Event-ID": "2"})
    assert again[:-1] == produced[2:]
    assert (await api.get(path, params={"cursor": "0"}))["events"] == [data for _, data, _ in produced]


async def test_any_request_ends_with_its_whole_state(api: Api, job: str):
    started = await api.post(f"/{job}/generate", json=ONE_TOKEN)
    *_, (name, state, _) = await all_events(api, f"/{job}/requests/{started['request_id']}")
    assert (name, state["status"]) == ("end", "completed"), state
    assert len(state["result"]["results"]) == 1


async def test_a_large_result_comes_as_chunks_before_the_end(api: Api, job: str):
    ids = np.random.default_rng(0).integers(5, 200, (1400, 256))
    (body,) = chunks_of(sft_batch(ids, post=["compute_logprobs"]), tensors=True)
    headers = {**HELD, "Content-Type": "application/octet-stream"}
    done = await api.post(f"/{job}/forward-backward", content=body, headers=headers, timeout=120)
    path = f"/{job}/requests/{done['request_id']}"
    *chunks, (name, state, _) = await all_events(api, path)
    assert (name, state["status"], "result" in state) == ("end", "completed", False)
    assert [name for name, _, _ in chunks] == ["result_chunk"] * len(chunks)
    result = join_result(read_result_event(data) for _, data, _ in chunks)
    assert result["post_process_outputs"]["logprobs"].shape == (1400, 256)
    assert [place for _, _, place in await all_events(api, path, headers={"Last-Event-ID": "1"})] == [
        str(place) for place in (*range(2, len(chunks) + 1), len(chunks))
    ]
    await api.result(f"/{job}/step", json={"learning_rate": 0.0})


async def test_a_job_tells_the_ends_of_its_requests_and_those_that_were_missed(api: Api, job: str):
    async with asyncio.timeout(30), listening(api, f"/{job}/events") as events:
        name, data, before = await anext(events)
        assert (name, data["status"]) == ("job", "running")
        await api.result(f"/{job}/generate", json=ONE_TOKEN)
        name, first, place = await anext(events)
        assert (name, first["kind"], first["status"]) == ("request", "generate", "completed")
    missed = await api.post(f"/{job}/generate", json=ONE_TOKEN, headers=HELD)
    for last_id, expected in (
        (place, [missed["request_id"]]),
        (before, [first["request_id"], missed["request_id"]]),
    ):
        headers = {"Last-Event-ID": last_id}
        async with asyncio.timeout(30), listening(api, f"/{job}/events", headers=headers) as events:
            told = [await anext(events) for _ in expected]
            assert [data["request_id"] for _, data, _ in told] == expected
            assert (await anext(events))[0] == "job"


async def test_a_job_and_its_log_end_with_it(api: Api, model: str):
    job_id = f"events-{uuid.uuid4().hex[:8]}"
    await api.post("", json={"job_id": job_id, "sub_job_configs": [sampling_config(model)]})
    async with asyncio.TaskGroup() as tasks:
        told = tasks.create_task(all_events(api, f"/{job_id}/events", params={"only": "job"}))
        log = tasks.create_task(all_events(api, f"/{job_id}/logs"))
        await api.wait_for_job(job_id)
        await asyncio.sleep(0.5)
        await api.post(f"/{job_id}:cancel")
    statuses = [data["status"] for name, data, _ in told.result() if name == "job"]
    assert statuses[-2:] == ["running", "cancelled"]
    assert told.result()[-1][0] == "end"
    *pages, (name, _, cursor) = log.result()
    assert name == "end"
    lines = [entry for _, data, _ in pages for entry in data["entries"]]
    tail = await api.operation(job_id, "tail-logs", payload={"max_lines": 5000})
    assert lines == tail["entries"]
    assert lines
    assert cursor == tail["next_cursor"]
    assert [name for name, _, _ in await all_events(api, f"/{job_id}/events")] == ["job", "end"]


async def test_an_idle_stream_is_kept_open_by_comments():
    queue: asyncio.Queue[int] = asyncio.Queue()
    assert await sse.next_change(queue, 0.01) == (False, None)
    queue.put_nowait(3)
    assert await sse.next_change(queue, 0.01) == (True, 3)


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/nope/events", 404, "nope"),
        ("/shared/events?only=x", 422, "only: 'x'"),
        ("/shared/logs", 400, "sub_job_id"),
        ("/shared/logs?sub_job_id=shared:training:0&cursor=../x", 422, "cursor"),
        ("/shared/requests/none", 404, "no request"),
    ],
)
async def test_refusals_are_plain_answers(api: Api, job: str, path: str, status: int, message: str):
    answer = await api.call("GET", path, headers=EVENTS)
    assert answer.status_code == status
    assert message in answer.json()["message"]


async def test_a_follower_that_falls_behind_is_dropped_and_the_others_are_not():
    changes = Changes()
    with changes.following("j") as slow, changes.following("j") as other:
        for number in range(QUEUED + 1):
            changes.tell("j", number)
            assert other.get_nowait() == number
        assert slow.qsize() == QUEUED + 1
        assert [slow.get_nowait() for _ in range(QUEUED + 1)][-1] is None
        changes.close()
        assert other.get_nowait() is None
    with changes.following("j") as late:
        assert late.get_nowait() is None


async def test_a_service_that_stops_ends_its_streams(tmp_path: Path, model: str):
    async with EmbeddedService(tmp_path / "state") as service:
        api = Api.of(service)
        await api.post("", json={"job_id": "j", "sub_job_configs": [sampling_config(model)]})
        streams = [asyncio.create_task(read_whatever_comes(api, f"/j/{what}")) for what in ("events", "logs")]
        await asyncio.sleep(0.5)
        assert not any(stream.done() for stream in streams)
        started = time.monotonic()
    assert time.monotonic() - started < 6
    async with asyncio.timeout(2), api:
        await asyncio.gather(*streams)


async def read_whatever_comes(api: Api, path: str) -> None:
    with contextlib.suppress(httpx.TransportError):
        async with listening(api, path) as events:
            async for _ in events:
                pass
