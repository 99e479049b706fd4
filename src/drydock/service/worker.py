"""The process of one sub-job: `python -m drydock.service.worker <socket fd> <parent pid>`.

It owns one engine and nothing else: no port, no store. It is told what to be by its first message, answers every
operation on the socket it inherited, and ends when that closes. An error that an operation raises is that
operation's answer, with its blame; the process goes on.
"""

import logging
import signal
import sys
from pathlib import Path
from typing import Any, Protocol

from drydock.errors import DrydockError, EngineError, UserError, WireError
from drydock.service.channel import ChannelClosed, Message, WorkerChannel
from drydock.service.logs import EXECUTION, JsonLines
from drydock.service.process_death import die_with_parent

logger = logging.getLogger("drydock.worker")


class Worker(Protocol):
    """One kind of worker, with its engine built."""

    def run(self) -> None:
        """Answers messages until the channel closes."""
        ...


def error_reply(number: int, error: BaseException, *, cancelled: bool = False) -> Message:
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


def main(arguments: list[str]) -> int:
    """Runs a worker to its end; the exit code."""
    descriptor, parent_pid = (int(argument) for argument in arguments)
    die_with_parent(parent_pid, signal.SIGKILL)
    channel = WorkerChannel.inherited(descriptor)
    try:
        start = channel.receive(None)
        assert start is not None
        _log_to(Path(start.header["log_dir"]))
        try:
            worker = _build(start.header, channel)
        except Exception as error:
            logger.exception("%s could not start", start.header["sub_job_id"])
            channel.send(error_reply(0, error))
            return 1
        logger.info("%s is ready", start.header["sub_job_id"])
        channel.send(Message({"id": 0, "result": {}}))
        worker.run()
    except ChannelClosed:
        logger.info("the service closed the channel")
    return 0


def _build(header: dict[str, Any], channel: WorkerChannel) -> Worker:
    import torch

    torch.set_num_threads(header["threads"])
    config = header["config"]
    logger.info("%s loads %s with %d threads", header["sub_job_id"], config["model_name"], header["threads"])
    match header["job_type"]:
        case "training":
            from drydock.service.training_worker import TrainingWorker

            return TrainingWorker.build(config, channel, header["sub_job_id"])
        case "sampling":
            from drydock.service.sampling_worker import SamplingWorker

            return SamplingWorker.build(config, channel)
        case other:
            raise EngineError(f"no worker serves job type {other!r}")


def _log_to(folder: Path) -> None:
    handler = logging.FileHandler(folder / EXECUTION)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
