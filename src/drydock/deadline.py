"""A wait with a name and a limit.

`async with deadline("the job to be running", 60):` raises `DeadlineExceeded` that says what was waited for. Only the
time-out of this very block is translated; one that belongs to an outer or inner block passes through untouched.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from drydock.errors import DeadlineExceeded


@asynccontextmanager
async def deadline(waiting_for: str, seconds: float, hint: str | Callable[[], str] = "") -> AsyncIterator[None]:
    """Limit the block to `seconds`; `waiting_for` and `hint` make up the message of the DeadlineExceeded it raises.

    hint: a text, or a function that is asked for it when the time is up.
    """
    scope = asyncio.timeout(seconds)
    try:
        async with scope:
            yield
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise DeadlineExceeded(waiting_for, seconds, hint() if callable(hint) else hint) from error
