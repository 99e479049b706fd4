"""One short operation asked of several workers at once, for a call that is answered inline."""

import asyncio
from collections.abc import Sequence
from typing import Any

from drydock.errors import WorkerLost
from drydock.service.problems import Refusal
from drydock.service.worker_group import OperationError, WorkerGroup


async def ask_all(workers: Sequence[WorkerGroup], op: str, timeout_s: float, **fields: Any) -> list[dict[str, Any]]:
    """Every worker's result.

    Raises Refusal: 504 after `timeout_s`, 422 or 500 when one refuses or fails, 503 when its process died meanwhile
    (such operations may be asked for again).
    """
    try:
        async with asyncio.timeout(timeout_s):
            replies = await asyncio.gather(*(worker.call(op, **fields) for worker in workers))
    except TimeoutError as error:
        raise Refusal(504, f"{op}: running sequences took longer than {timeout_s:g} s") from error
    except OperationError as error:
        raise Refusal(422 if error.blame == "user" else 500, f"{op}: {error.message}") from error
    except WorkerLost as error:
        raise Refusal(503, f"{op}: {error}; ask again") from error
    return [reply.header["result"] for reply in replies]
