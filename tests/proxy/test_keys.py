import logging
from pathlib import Path

import pytest
from builders.proxy_calls import START, call_text, message_of, post
from builders.running_proxy import FailingSampler, Running
from builders.scripted_sampler import scripted

from drydock.chat.refusal import RequestRefused
from drydock.errors import ProxyError
from drydock.proxy import ChatTemplate
from drydock.proxy.keys import RolloutKeys, new_key


def test_keys_are_long_distinct_and_safe_in_a_header() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(len(key) > 60 and key.isascii() and not set(key) & set(" ,;\"'") for key in keys)


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer"}, {"authorization": "Bearer é"}, {"x-api-key": "-"}]
)
def test_what_is_no_key_is_an_unknown_key(headers: dict[str, str]) -> None:
    with pytest.raises(RequestRefused) as caught:
        RolloutKeys().session_of(headers)
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")


async def test_rollouts_see_only_themselves(template: ChatTemplate, running: Running) -> None:
    async with running(scripted(template, [call_text("ls")])) as proxy:
        one, two = proxy.open_rollout("one"), proxy.open_rollout("two")
        with pytest.raises(ProxyError, match="'one' is already open"):
            proxy.open_rollout("one")
        first, second = message_of(await post(one, START)), message_of(await post(two, START))
        assert first["tool_calls"][0]["id"] != second["tool_calls"][0]["id"]
        assert len((await one.close()).turns) == len((await two.close()).turns) == 1
        assert proxy.open_rollout("one").api_key != one.api_key


async def test_keys_are_nowhere(
    template: ChatTemplate, running: Running, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with running(FailingSampler(ValueError("x")), turn_log=tmp_path) as proxy:
        failed = proxy.open_rollout("failed")
        await post(failed, START)
        await post(failed, START, key=failed.api_key + "x")
        record = await failed.close()
        await post(failed, START)
    async with running(scripted(template, ["ok"]), turn_log=tmp_path) as proxy:
        good = proxy.open_rollout("group/good")
        await post(good, START)
        record_good = await good.close()
    shown = caplog.text + repr(failed) + repr(good) + record.model_dump_json() + record_good.model_dump_json()
    shown += (tmp_path / "group_good.jsonl").read_text()
    assert "rollout failed: call after its end" in shown
    for key in (failed.api_key, good.api_key):
        assert len(key) >= 32
        assert key not in shown
