"""What a driver and a shard say to each other arrives as it was said, whatever its size, or not at all."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drydock.errors import Blame
from drydock.rollout import RolloutSpec
from drydock.rollout.shards import shares
from drydock.rollout.shards.channel import Channel, ChannelClosed
from drydock.rollout.shards.messages import (
    Alive,
    Cancel,
    Cancelled,
    Done,
    Failed,
    Message,
    Ready,
    Refused,
    Run,
    Setup,
)

texts = st.text(max_size=40)
specs = st.builds(
    RolloutSpec,
    task=texts,
    task_path=st.sampled_from([Path("/tasks/a"), Path("relative/é")]),
    step=st.integers(0, 10**6),
    split=st.sampled_from(["train", "eval"]),
    repetition=st.integers(0, 100),
    attempt=st.integers(0, 5),
    rollout_id=st.text(min_size=1, max_size=40),
)
messages = st.one_of(
    st.builds(Setup),
    st.builds(Ready),
    st.builds(Alive),
    st.builds(Refused, error=texts, blame=st.sampled_from(Blame)),
    st.builds(Run, pool=texts, spec=specs, out_dir=st.sampled_from([None, Path("/out")])),
    *(st.builds(kind, rollout_id=texts) for kind in (Cancel, Done, Cancelled)),
    st.builds(Failed, rollout_id=texts, error=texts),
)


@asynccontextmanager
async def two_ends() -> AsyncIterator[tuple[Channel, Channel]]:
    one, other = [await Channel.over(end) for end in socket.socketpair()]
    try:
        yield one, other
    finally:
        one.close()
        other.close()


@given(st.lists(st.tuples(messages, st.binary(max_size=200)), max_size=20))
def test_messages_arrive_in_order_and_as_they_were_said(said: list[tuple[Message, bytes]]) -> None:
    async def say() -> list[tuple[Message, bytes]]:
        async with two_ends() as (one, other):
            for message, payload in said:
                one.write(message, payload)
            return [await other.receive() for _ in said]

    assert asyncio.run(say()) == said


async def test_a_large_trajectory_arrives_whole() -> None:
    payload = bytes(range(256)) * (1 << 18)
    async with two_ends() as (one, other):
        one.write(Done(rollout_id="large"), payload)
        one.write(Cancelled(rollout_id="next"))
        assert await other.receive() == (Done(rollout_id="large"), payload)
        assert await other.receive() == (Cancelled(rollout_id="next"), b"")


@pytest.mark.parametrize(
    "end",
    [
        lambda sock: sock.close(),
        lambda sock: (sock.sendall(b"\0\0\0\4\0\0"), sock.close()),
        lambda sock: (sock.sendall(b"\0\0\0\x0f\0\0\0\0" + b'{"kind":"ready"'), sock.close()),
        lambda sock: sock.sendall(b"\xff" * 8),
        lambda sock: sock.sendall(b"\0\0\0\2\0\0\0\0{}"),
    ],
    ids=["ended", "half of the lengths", "half of a message", "impossible lengths", "no message"],
)
async def test_whatever_is_no_whole_message_ends_the_channel(end: Callable[[socket.socket], object]) -> None:
    ours, theirs = socket.socketpair()
    channel = await Channel.over(ours)
    end(theirs)
    with pytest.raises(ChannelClosed):
        await channel.receive()
    channel.close()
    channel.write(Ready())
    theirs.close()


@given(st.integers(1, 10_000), st.integers(1, 64))
def test_shares_are_even_and_lose_nothing(total: int, shards: int) -> None:
    parts = shares(total, shards)
    assert len(parts) == shards
    assert sum(parts) == max(total, shards)
    assert max(parts) - min(parts) <= 1
