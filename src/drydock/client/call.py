"""One call of the client: its name for messages, its deadline, and what last went wrong inside it.

Every public method runs in `open_call`, so that no wait is endless and the DeadlineExceeded it ends with names the
call, the job and the last failure that was being retried.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from drydock.deadline import deadline
from drydock.errors import ServiceError


@dataclass(slots=True)
class Call:
    """A call in progress.

    name: the operation, "generate" or "cancel job". job_id: its job, None for calls without one.
    ends_at: time of the running loop's clock at which the deadline falls.
    last_failure: why the latest attempt failed, "" while none did.
    """

    name: str
    job_id: str | None
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
async def open_call(name: str, job_id: str | None, deadline_s: float) -> AsyncIterator[Call]:
    """Run the block as one call. Raises DeadlineExceeded when it takes longer than `deadline_s`."""
    call = Call(name, job_id, asyncio.get_running_loop().time() + deadline_s)
    async with deadline(call.label, deadline_s, lambda: call.last_failure):
        yield call
