#!/bin/bash
cat > /app/queued.py << 'END'
import asyncio
import contextlib
import heapq
import os
import signal
import sys

ready = []
leases = {}
waiting = []
count = 0


def offer():
    while ready and waiting:
        if not waiting[0].done():
            waiting[0].set_result(heapq.heappop(ready))
        waiting.pop(0)


def put(text):
    global count
    priority, blank, body = text.partition(" ")
    if not blank:
        raise ValueError("PUT PRIORITY TEXT")
    number = int(priority)
    count += 1
    heapq.heappush(ready, (-number, count, body))
    offer()
    return f"OK {count}"


async def take(text, mine):
    seconds = float(text)
    if ready:
        job = heapq.heappop(ready)
    else:
        future = asyncio.get_running_loop().create_future()
        waiting.append(future)
        try:
            job = await asyncio.wait_for(future, seconds)
        except asyncio.TimeoutError:
            return "NONE"
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                heapq.heappush(ready, future.result())
            raise
        finally:
            if future in waiting:
                waiting.remove(future)
    mine[job[1]] = job
    leases[job[1]] = job
    return f"JOB {job[1]} {job[2]}"


async def answer(line, mine):
    word, _, rest = line.partition(" ")
    if word == "PUT":
        return put(rest)
    if word == "TAKE":
        return await take(rest, mine)
    if word == "DONE":
        if mine.pop(int(rest), None) is None:
            return "ERROR not leased"
        del leases[int(rest)]
        return "OK"
    if line == "STATS":
        return f"READY {len(ready)} LEASED {len(leases)} WAITING {sum(not one.done() for one in waiting)}"
    return "ERROR unknown request"


async def serve(reader, writer):
    mine = {}
    requests = asyncio.Queue()

    async def work():
        while True:
            line = (await requests.get()).decode().rstrip("\n")
            try:
                reply = await answer(line, mine)
            except ValueError as error:
                reply = f"ERROR {error}".replace("\n", " ")
            writer.write(reply.encode() + b"\n")

    worker = asyncio.create_task(work())
    try:
        while (line := await reader.readline()).endswith(b"\n"):
            requests.put_nowait(line)
    except ConnectionError:
        pass
    finally:
        worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await worker
        for key, job in mine.items():
            del leases[key]
            heapq.heappush(ready, job)
        offer()
        writer.close()


async def main(path):
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    server = await asyncio.start_unix_server(serve, path)

    def stop():
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        os._exit(0)

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    await server.serve_forever()


asyncio.run(main(sys.argv[1]))
END
