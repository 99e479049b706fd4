"""One check: what it looks at, how long it may take, and what to do when it raises instead of answering.

A check answers with findings. An error that Drydock raises on purpose becomes a failed finding, so that one broken
thing does not hide the others; what two checks stumble over is reported once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from drydock.deadline import deadline
from drydock.errors import DrydockError
from drydock.finding import Finding, Level

type Found = tuple[str, Finding]
"""An area and what was found there."""


@dataclass(frozen=True, slots=True)
class Check:
    """area, name: how its findings are filed when it raises. waiting_for: what the user waits for meanwhile.

    limit_s: seconds it may take. remedy: what to do about an error or a time-out.
    """

    area: str
    name: str
    waiting_for: str
    limit_s: float
    remedy: str
    find: Callable[[], Awaitable[list[Finding]]]

    async def findings(self) -> list[Finding]:
        """What is found; never raises a DrydockError or an OSError."""
        try:
            async with deadline(self.waiting_for, self.limit_s):
                return await self.find()
        except (DrydockError, OSError) as error:
            return [self._failed(error)]
        except ExceptionGroup as group:
            ours, other = group.split((DrydockError, OSError))
            if ours is None or other is not None:
                raise
            return [self._failed(error) for error in _leaves(ours)]

    def _failed(self, error: Exception) -> Finding:
        return Finding(self.name, Level.FAIL, str(error), self.remedy)


def _leaves(group: ExceptionGroup[Exception]) -> Iterator[Exception]:
    for error in group.exceptions:
        yield from _leaves(error) if isinstance(error, ExceptionGroup) else [error]


def in_thread(find: Callable[[], list[Finding]]) -> Callable[[], Awaitable[list[Finding]]]:
    """A check that blocks, for `Check.find`."""

    async def run() -> list[Finding]:
        return await asyncio.to_thread(find)

    return run


async def find_all(checks: Sequence[Check], waiting: Callable[[str], None]) -> list[Found]:
    """The findings of all checks, one after the other. `waiting` is told what is waited for."""
    found: list[Found] = []
    failures: set[str] = set()
    for check in checks:
        waiting(check.waiting_for)
        for finding in await check.findings():
            if finding.ok or finding.detail not in failures:
                found.append((check.area, finding))
            if not finding.ok:
                failures.add(finding.detail)
    return found
