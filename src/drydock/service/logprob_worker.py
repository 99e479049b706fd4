"""The log-probability worker: scores rows with a model that never changes, one operation after the other."""

import logging
from pathlib import Path
from typing import Any

from drydock.engine.logprob_engine import LogProbEngine
from drydock.errors import EngineError
from drydock.service.channel import Message
from drydock.service.training_worker import real_tokens
from drydock.service.worker import answer_in_turn
from drydock.service.worker_link import WorkerLink
from drydock.wire.frame import decode_frame, encode_buffer

logger = logging.getLogger("drydock.worker.log_probability")


class LogProbWorker:
    """Answers forward operations with a LogProbEngine."""

    def __init__(self, engine: LogProbEngine, link: WorkerLink, sub_job_id: str) -> None:
        self._engine = engine
        self._link = link
        self._sub_job_id = sub_job_id

    @classmethod
    def build(
        cls, config: dict[str, Any], link: WorkerLink, sub_job_id: str, source: Path | None = None
    ) -> "LogProbWorker":
        """A worker whose engine is loaded as the sub-job's configuration says, from the checkpoint `source` if any."""
        engine = LogProbEngine(
            config["model_name"], config["inference_config"], dtype=config.get("dtype"), checkpoint=source
        )
        return cls(engine, link, sub_job_id)

    def run(self) -> None:
        """Answers operations for ever."""
        answer_in_turn(self._link, logger, self._answer)

    def _answer(self, op: str, message: Message) -> Message:
        if op != "forward":
            raise EngineError(f"a log-probability worker knows no operation {op!r}")
        request = decode_frame(message.payload, copy=False).value
        frame = encode_buffer({"job_id": self._sub_job_id, **self._engine.forward(request)})
        return Message({"result": {}, "tokens": real_tokens(request)}, frame)
