import time
from typing import Any

import numpy as np
import pytest
from builders.service_api import Api

from drydock.wire.frame import encode_frame

pytestmark = pytest.mark.asyncio(loop_scope="session")

SHORT = {"max_tokens": 2, "ignore_eos": True}


async def events_of(api: Api, job_id: str, request_id: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All events, read by following cursors, and the last page."""
    events, cursor = [], "0"
    while True:
        page = await api.get(f"/{job_id}/requests/{request_id}", params={"cursor": cursor, "max_events": 3})
        events += page["events"]
        if not page.get("next_cursor"):
            return events, page
        cursor = page["next_cursor"]


async def test_a_frame_starts_a_stream_once_per_key_and_its_events_can_be_read_again(api: Api, job: str):
    prompts = [np.array([5, 6, 7], np.int32), np.array([8], np.int32), np.array([9, 10], np.int32)]
    frame = encode_frame({"prompts": prompts, "sampling_params": SHORT})
    headers = {"Idempotency-Key": "stream-1"}
    started = await api.post(f"/{job}/generate-stream", content=frame, headers=headers)
    assert started["count"] == 3
    events, last = await events_of(api, job, started["request_id"])
    assert sorted(event["index"] for event in events[:-1]) == [0, 1, 2]
    assert all(len(event["result"]["token_ids"]) == 2 for event in events[:-1])
    assert events[-1] == {"type": "done", "completed": 3, "failed": 0}
    assert (last["status"], last["result"]) == ("completed", {"completed": 3, "failed": 0})
    assert await api.post(f"/{job}/generate-stream", content=frame, headers=headers) == started
    assert (await events_of(api, job, started["request_id"]))[0] == events


async def test_a_prompt_that_fails_leaves_the_others(api: Api, job: str):
    body = {"prompts": ["grep " * 4000, [5, 6]], "sampling_params": SHORT}
    started = await api.post(f"/{job}/generate-stream", json=body)
    events, last = await events_of(api, job, started["request_id"])
    kinds = {event.get("index"): event for event in events}
    assert kinds[0]["type"] == "error"
    assert "max_seq_len" in kinds[0]["error"]
    assert kinds[1]["type"] == "result"
    assert events[-1] == {"type": "done", "completed": 1, "failed": 1}
    assert last["status"] == "completed"


async def test_a_stream_is_cancelled_and_keeps_what_it_told(api: Api, job: str):
    params = [{"max_tokens": 1, "ignore_eos": True}, {"max_tokens": 2000, "ignore_eos": True}]
    body = {"prompts": [[5, 6], [7, 8]], "sampling_params": params}
    request_id = (await api.post(f"/{job}/generate-stream", json=body))["request_id"]
    page = await api.get(f"/{job}/requests/{request_id}", params={"cursor": "0"})
    assert [event["index"] for event in page["events"]] == [0]
    answer = await api.operation(job, "cancel-request", payload={"request_id": request_id})
    assert answer["cancelled"] is True
    events, last = await events_of(api, job, request_id)
    assert [event["index"] for event in events] == [0]
    assert last["status"] == "cancelled"


async def test_a_poll_at_the_end_of_a_running_stream_is_held_for_a_moment(api: Api, job: str):
    body = {"prompts": [[5, 6]], "sampling_params": {"max_tokens": 1500, "ignore_eos": True}}
    request_id = (await api.post(f"/{job}/generate-stream", json=body))["request_id"]
    polls, started = 0, time.monotonic()
    cursor: str | None = "0"
    while cursor and time.monotonic() - started < 30:
        cursor = (await api.get(f"/{job}/requests/{request_id}", params={"cursor": cursor})).get("next_cursor")
        polls += 1
    assert cursor is None
    assert polls <= 3 + (time.monotonic() - started)
