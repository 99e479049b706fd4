import asyncio
import socket
import threading

import pytest

from drydock.service.channel import ChannelClosed, Message, ServiceChannel, WorkerChannel


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


async def service_end(sock: socket.socket) -> ServiceChannel:
    sock.setblocking(False)
    return ServiceChannel(*await asyncio.open_unix_connection(sock=sock))


async def test_messages_cross_in_order_and_whole_in_both_directions():
    ours, theirs = pair()
    channel, worker = await service_end(ours), WorkerChannel(theirs)
    sent = [Message({"n": n}, bytes([n]) * size) for n, size in enumerate((0, 1, 5_000_000, 0, 70_000))]
    echoed: list[Message] = []

    def echo() -> None:
        for _ in sent:
            message = worker.receive(10)
            assert message is not None
            worker.send(message)

    thread = threading.Thread(target=echo)
    thread.start()
    sending = asyncio.create_task(asyncio.wait_for(_send_all(channel, sent), 20))
    for _ in sent:
        echoed.append(await asyncio.wait_for(channel.receive(), 20))
    await sending
    thread.join()
    assert echoed == sent
    await channel.close()
    theirs.close()


async def _send_all(channel: ServiceChannel, messages: list[Message]) -> None:
    for message in messages:
        await channel.send(message)


async def test_worker_may_look_without_waiting_and_gets_messages_that_arrived_together():
    ours, theirs = pair()
    channel, worker = await service_end(ours), WorkerChannel(theirs)
    assert worker.receive(0) is None
    await _send_all(channel, [Message({"n": 0}), Message({"n": 1}, b"x")])
    assert [worker.receive(1), worker.receive(0), worker.receive(0)] == [
        Message({"n": 0}),
        Message({"n": 1}, b"x"),
        None,
    ]
    await channel.close()
    with pytest.raises(ChannelClosed):
        worker.receive(1)
    theirs.close()


async def test_service_learns_that_the_worker_is_gone_in_the_middle_of_a_message():
    ours, theirs = pair()
    channel = await service_end(ours)
    theirs.sendall(b"\0\0\0\x10")
    theirs.close()
    with pytest.raises(ChannelClosed):
        await channel.receive()
    await channel.close()
