"""Running a coroutine to its end or to a signal: SIGINT and SIGTERM cancel it, so that it stops what it has started.

Whatever still hangs `HARD_STOP_S` after the signal is left: the process ends.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any

HARD_STOP_S = 19.0
"""After a signal, the process ends at the latest after so many seconds, whatever still hangs."""


def run_until_stopped(
    run: Callable[[], Coroutine[Any, Any, None]],
    stopping: Callable[[str], None],
    stopped: Callable[[str], None],
    *,
    saving_s: float = 0.0,
) -> int:
    """Run to the end. Returns 0, or 128 + signal number when a signal stopped it.

    stopping, stopped: told the signal's name when it comes, and once everything has ended. saving_s: how much longer
    than `HARD_STOP_S` the run may take to stop, since it saves something first.
    """
    watchdog: list[threading.Timer] = []
    try:
        return asyncio.run(_stoppable(run, stopping, stopped, watchdog, HARD_STOP_S + saving_s))
    except BaseExceptionGroup as group:
        raise single_cause(group) from group
    finally:
        for timer in watchdog:
            timer.cancel()


async def _stoppable(
    run: Callable[[], Coroutine[Any, Any, None]],
    stopping: Callable[[str], None],
    stopped: Callable[[str], None],
    watchdog: list[threading.Timer],
    hard_stop_s: float,
) -> int:
    """`watchdog` gets the timer of the hard stop, which the caller cancels at the end."""
    task = asyncio.create_task(run(), name="run")
    received: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        if received:
            return
        received.append(number)
        stopping(number.name)
        timer = threading.Timer(hard_stop_s, os._exit, (128 + number,))
        timer.daemon = True
        timer.start()
        watchdog.append(timer)
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not received:
            raise
        stopped(received[0].name)
        return 128 + received[0]
    return 0


def single_cause(error: BaseException) -> BaseException:
    """What is inside groups of one; any other error as it is."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
