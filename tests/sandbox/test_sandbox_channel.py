"""The driver believes nothing that comes out of a sandbox: any message on the socket is survived."""

import asyncio
import os
import random
import socket

import pytest

from drydock.errors import DeadlineExceeded, SandboxError
from drydock.sandbox.channel import Channel


@pytest.fixture
async def pair():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = Channel(ours, id_base=0, max_output_bytes=1000)
    yield channel, theirs
    channel.close()
    theirs.close()


async def receive(theirs: socket.socket) -> tuple[list[str], list[int]]:
    theirs.setblocking(False)
    while True:
        try:
            data, descriptors, _, _ = socket.recv_fds(theirs, 1 << 18, 8)
            return data.decode().split("\0"), list(descriptors)
        except BlockingIOError:
            await asyncio.sleep(0.01)


def run(channel: Channel, timeout_s: float | None = None):
    return asyncio.create_task(channel.run(["/bin/x"], user="", cwd="/", env={"A": "b"}, timeout_s=timeout_s))


async def test_request_and_answer(pair):
    channel, theirs = pair
    task = run(channel)
    fields, descriptors = await receive(theirs)
    assert fields == ["R", "1", "", "/", "1", "A=b", "/bin/x"]
    os.write(descriptors[0], b"out")
    os.write(descriptors[1], b"err")
    theirs.send(b"D\x001\x00768")
    done = await task
    assert (done.return_code, done.stdout, done.stderr) == (3, b"out", b"err")
    for descriptor in descriptors:
        os.close(descriptor)


async def test_nonsense_is_ignored(pair):
    channel, theirs = pair
    task = run(channel)
    _, descriptors = await receive(theirs)
    generator = random.Random(0)
    for message in (
        b"D\x009\x000",
        b"D\x001\x00-1",
        b"D\x001\x0099999999",
        b"D\x001",
        b"H\x00H",
        b"E",
        b"A",
        b"\xff\x00",
    ):
        theirs.send(message)
    for _ in range(50):
        theirs.send(b"\x00" + generator.randbytes(generator.randrange(1, 2000)))
    theirs.send(b"D\x001\x000")
    theirs.send(b"D\x001\x00256")
    assert (await task).return_code == 0
    for descriptor in descriptors:
        os.close(descriptor)


async def test_the_end_of_the_socket_ends_everything(pair):
    channel, theirs = pair
    tasks = [run(channel), run(channel)]
    await receive(theirs)
    theirs.close()
    for task in tasks:
        with pytest.raises(SandboxError, match="ended"):
            await task
    with pytest.raises(SandboxError):
        await run(channel)


async def test_a_process_one_that_does_not_answer_is_noticed(pair):
    channel, _ = pair
    with pytest.raises(DeadlineExceeded, match="processes to die"):
        await channel.kill_all(timeout_s=0.1)


async def test_unsendable_requests_are_refused(pair):
    channel, _ = pair
    with pytest.raises(SandboxError, match="NUL"):
        await channel.run(["a\0b"], user="", cwd="/", env={})
    with pytest.raises(SandboxError, match="150000"):
        await channel.run(["x"], user="", cwd="/", env={"BIG": "y" * 200_000})
