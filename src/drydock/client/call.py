"""One call of the client: its name for messages, its deadline, and what last went wrong inside it.

Every public method runs in `open_call`, so that no wait is endless and the DeadlineExceeded it ends with names the
call, the job and the last failure that was being retried. An async iterator makes its `Call` with `start_call` and
limits each of its waits by itself: a time limit may not stay open while the caller's own code runs.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from drydock.errors import DeadlineExceeded, ServiceError


@dataclass(slots=True)
class Call:
    """A call in progress.

    name: the operation, "generate" or "cancel job". job_id: its job, None for calls without one.
    deadline_s: how long it may take. ends_at: time of the running loop's clock at which that is over.
    last_failure: why the latest attempt failed, "" while none did.
    """

    name: str
    job_id: str | None
    deadline_s: float
    ends_at: float
    last_failure: str = field(default="")

    @property
    def label(self) -> str:
        """What messages call it: "generate on job j1", "cancel job j1"."""
        if self.job_id is None:
            return self.name
        return f"{self.name} {self.job_id}" if self.name.endswith(" job") else f"{self.name} on job {self.job_id}"

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline, never below 0."""
        return max(0.0, self.ends_at - asyncio.get_running_loop().time())

    def read[A, R](self, reader: Callable[[A], R], answer: A) -> R:
        """`reader(answer)`, with anything malformed in the answer as a ServiceError that names the call."""
        try:
            return reader(answer)
        except (ServiceError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise ServiceError(f"{self.label}: the server's answer is unusable: {error}") from error

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        """Run the block under the call's deadline. Raises DeadlineExceeded."""
        scope = asyncio.timeout_at(self.ends_at)
        try:
            async with scope:
                yield
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise DeadlineExceeded(self.label, self.deadline_s, self.last_failure) from error


def start_call(name: str, job_id: str | None, deadline_s: float) -> Call:
    """A call whose time starts now."""
    return Call(name, job_id, deadline_s, asyncio.get_running_loop().time() + deadline_s)


@asynccontextmanager
async def open_call(name: str, job_id: str | None, deadline_s: float) -> AsyncIterator[Call]:
    """Run the block as one call. Raises DeadlineExceeded when it takes longer than `deadline_s`."""
    call = start_call(name, job_id, deadline_s)
    async with call.limited():
        yield call
