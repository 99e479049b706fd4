"""The process of one sub-job: `python -m drydock.service.worker <socket> <nonce> <seconds to outlive> <parent pid>`.

It owns one engine and nothing else: no port, no store. It is told what to be by its first operation, answers every
later one over its link (worker_link.py), which also says when it ends. A process that is kept ready (standby.py) is
told to `prepare` before. An error that an operation raises is that operation's answer, with its blame; the process
goes on.
"""

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, Protocol

from drydock.errors import DrydockError, EngineError, UserError, WireError
from drydock.service.channel import Message
from drydock.service.logs import CONSOLE, EXECUTION, JsonLines
from drydock.service.process_death import die_with_parent
from drydock.service.source_checkpoint import source_folder
from drydock.service.worker_link import WorkerLink

logger = logging.getLogger("drydock.worker")

FAREWELL_S = 10.0
"""How long a worker that could not start waits for the service to have read why."""


class Worker(Protocol):
    """One kind of worker, with its engine built."""

    def run(self) -> None:
        """Answers operations for ever; the link ends the process."""
        ...


def error_reply(number: str, error: BaseException, *, cancelled: bool = False) -> Message:
    """The answer to an operation that raised."""
    ours = isinstance(error, DrydockError)
    return Message(
        {
            "id": number,
            "error": {
                "message": str(error) if ours else f"{type(error).__name__}: {error}",
                "type": type(error).__name__,
                "blame": error.blame.value if ours else "infrastructure",
                "cancelled": cancelled,
            },
        }
    )


def log_failure(log: logging.Logger, op: str, error: Exception) -> None:
    """One line for input that was refused, which is the caller's to mend; the traceback of everything else."""
    if isinstance(error, UserError | WireError | EngineError):
        log.warning("%s was refused: %s", op, error)
    else:
        log.error("%s failed", op, exc_info=error)


def answer_in_turn(
    link: WorkerLink,
    log: logging.Logger,
    answer: Callable[[str, Message], Message],
    note: Callable[[], dict[str, Any]] = dict,
) -> NoReturn:
    """Answers operations for ever, one after the other, in the order they came.

    note: what every reply tells beside the answer, and `hello` as well.
    """
    while True:
        message = link.receive(None)
        assert message is not None
        number, op = message.header["id"], message.header["op"]
        started = time.monotonic()
        try:
            reply = answer(op, message)
        except Exception as error:
            log_failure(log, op, error)
            reply = error_reply(number, error)
        else:
            log.info("%s took %.3f s", op, time.monotonic() - started)
        link.note = note()
        link.send(Message({**reply.header, "id": number, **link.note}, reply.payload))


def main(arguments: list[str]) -> int:
    """Runs a worker to its end; the exit code."""
    path, nonce, outlive_s, parent_pid = arguments
    if float(outlive_s) == 0:
        die_with_parent(int(parent_pid), signal.SIGKILL)
    link = WorkerLink(Path(path), nonce, float(outlive_s))
    start = link.receive(None)
    assert start is not None
    if start.header["op"] == "prepare":
        _import_engines()
        start = link.receive(None)
        assert start is not None
        _print_to(Path(start.header["log_dir"]))
    number = start.header["id"]
    _log_to(Path(start.header["log_dir"]))
    try:
        worker = _build(start.header, link)
    except Exception as error:
        logger.exception("%s could not start", start.header["sub_job_id"])
        link.send(error_reply(number, error))
        link.flush(FAREWELL_S)
        link.close()
        return 1
    logger.info("%s is ready", start.header["sub_job_id"])
    link.send(Message({"id": number, "result": {}, **link.note}))
    worker.run()
    return 0


def _import_engines() -> None:
    """What takes longest of a start and is the same for every sub-job. A failure shows when the engine is built."""
    with contextlib.suppress(Exception):
        import drydock.service.logprob_worker
        import drydock.service.sampling_worker
        import drydock.service.training_worker  # noqa: F401


def _print_to(folder: Path) -> None:
    """Sends what the process prints to the sub-job's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / CONSOLE).open("ab") as console:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(console.fileno(), stream.fileno())


def _build(header: dict[str, Any], link: WorkerLink) -> Worker:
    import torch

    torch.set_num_threads(header["threads"])
    config = header["config"]
    source = source_folder(Path(header["log_dir"]).parent.parent, config)
    logger.info("%s loads %s with %d threads", header["sub_job_id"], config["model_name"], header["threads"])
    match header["job_type"]:
        case "training":
            from drydock.service.training_worker import TrainingWorker

            return TrainingWorker.build(config, link, header["sub_job_id"], source)
        case "sampling":
            from drydock.service.sampling_worker import SamplingWorker

            return SamplingWorker.build(config, link, source)
        case "log_probability":
            from drydock.service.logprob_worker import LogProbWorker

            return LogProbWorker.build(config, link, header["sub_job_id"], source)
        case other:
            raise EngineError(f"no worker serves job type {other!r}")


def _log_to(folder: Path) -> None:
    handler = logging.FileHandler(folder / EXECUTION)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
