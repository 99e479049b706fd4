"""The worker's end of the link: what it remembers, sends again, and never runs twice."""

import asyncio
import os
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from drydock.service.channel import ChannelClosed, Message, ServiceChannel
from drydock.service.worker_link import WorkerLink

OUTLIVE_S = 86_400.0
"""A link that nobody comes back to for so long ends its process, which is here that of the tests."""


@pytest_asyncio.fixture
async def path() -> AsyncIterator[Path]:
    with tempfile.TemporaryDirectory(prefix="link") as folder:
        yield Path(folder) / "w.sock"


class Echo:
    """A worker that runs operations one after the other; `go` lets each of them end."""

    def __init__(self, path: Path) -> None:
        self.link = WorkerLink(path, "nonce", OUTLIVE_S)
        self.ran: list[str] = []
        self.go = threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            message = self.link.receive(None)
            assert message is not None
            self.ran.append(message.header["id"])
            self.go.acquire()
            self.link.send(Message({"id": message.header["id"], "result": message.header["n"]}, message.payload))


async def attach(path: Path, nonce: str = "nonce") -> tuple[ServiceChannel, dict]:
    channel = await ServiceChannel.connect(path)
    await channel.send(Message({"op": "attach", "nonce": nonce}))
    hello = await asyncio.wait_for(channel.receive(), 5)
    return channel, hello.header["hello"]


async def reply(channel: ServiceChannel) -> Message:
    while True:
        message = await asyncio.wait_for(channel.receive(), 5)
        if "heartbeat" not in message.header:
            return message


async def states(path: Path, wanted: dict[str, str]) -> ServiceChannel:
    """A new connection whose hello shows these operations."""
    for _ in range(100):
        channel, hello = await attach(path)
        found = {name: entry["state"] for name, entry in hello["operations"].items()}
        if found == wanted:
            return channel
        await channel.close()
        await asyncio.sleep(0.02)
    raise AssertionError(found)


async def test_operations_outlive_the_connection_and_replies_are_kept_until_acknowledged(path: Path):
    worker = Echo(path)
    channel, hello = await attach(path)
    assert (hello["operations"], hello["pid"]) == ({}, os.getpid())
    for n, name in enumerate(("a", "b", "c")):
        await channel.send(Message({"op": "work", "id": name, "n": n}, b"x" * n))
    await channel.close()
    worker.go.release()
    channel = await states(path, {"a": "finished", "b": "running", "c": "queued"})
    assert await reply(channel) == Message({"id": "a", "result": 0}, b"")
    await channel.send(Message({"op": "ack", "ids": ["a"]}))
    await channel.send(Message({"op": "work", "id": "b", "n": 9}))
    await channel.send(Message({"op": "work", "id": "a", "n": 9}))
    worker.go.release()
    worker.go.release()
    assert (await reply(channel)).header == {"id": "b", "result": 1}
    assert (await reply(channel)).header == {"id": "c", "result": 2}
    await channel.close()
    channel = await states(path, {"b": "finished", "c": "finished"})
    assert {(await reply(channel)).header["id"] for _ in range(2)} == {"b", "c"}
    assert worker.ran == ["a", "b", "c"]
    await channel.close()


async def test_who_does_not_know_the_nonce_is_turned_away(path: Path):
    Echo(path)
    with pytest.raises(ChannelClosed):
        await attach(path, "another")
    channel, _ = await attach(path)
    assert path.stat().st_mode & 0o777 == 0o600
    await channel.close()


async def test_a_heartbeat_comes_each_second_also_during_an_operation(path: Path):
    worker = Echo(path)
    channel, _ = await attach(path)
    await channel.send(Message({"op": "work", "id": "a", "n": 0}))
    beats = [(await asyncio.wait_for(channel.receive(), 3)).header["heartbeat"] for _ in range(2)]
    assert beats[1]["running"] == ["work"]
    assert beats[1]["resident_bytes"] > 1 << 20
    worker.go.release()
    await channel.close()


async def test_an_operation_that_was_cut_off_half_sent_is_not_known(path: Path):
    worker = Echo(path)
    channel, _ = await attach(path)
    writer = channel._writer
    writer.write(b"\0\0\0\x20\0\0\0\0\0\0\0\0" + b'{"op":"work"')
    await writer.drain()
    await channel.close()
    channel = await states(path, {})
    assert worker.ran == []
    await channel.close()
