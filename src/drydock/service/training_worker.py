"""The training worker: one operation after the other, in the order they came."""

import logging
import time
from pathlib import Path
from typing import Any

import numpy as np

from drydock.engine.training import TrainingEngine
from drydock.errors import EngineError
from drydock.service.channel import Message, WorkerChannel
from drydock.service.worker import error_reply, log_failure
from drydock.wire.frame import decode_frame, encode_frame

logger = logging.getLogger("drydock.worker.training")


class TrainingWorker:
    """Answers training operations with a TrainingEngine."""

    def __init__(self, engine: TrainingEngine, channel: WorkerChannel, sub_job_id: str) -> None:
        self._engine = engine
        self._channel = channel
        self._sub_job_id = sub_job_id

    @classmethod
    def build(cls, config: dict[str, Any], channel: WorkerChannel, sub_job_id: str) -> "TrainingWorker":
        """A worker whose engine is loaded as the sub-job's configuration says."""
        engine = TrainingEngine(
            config["model_name"], config["training_config"], seed=config.get("seed") or 0, dtype=config.get("dtype")
        )
        return cls(engine, channel, sub_job_id)

    def run(self) -> None:
        """Answers messages until the channel closes."""
        while True:
            message = self._channel.receive(None)
            assert message is not None
            number, op = message.header["id"], message.header["op"]
            started = time.monotonic()
            try:
                reply = self._answer(op, message)
            except Exception as error:
                log_failure(logger, op, error)
                reply = error_reply(number, error)
            else:
                logger.info("%s took %.3f s", op, time.monotonic() - started)
            reply.header["id"] = number
            self._channel.send(reply)

    def _answer(self, op: str, message: Message) -> Message:
        match op:
            case "forward-backward":
                return self._forward_backward(message.payload)
            case "step":
                result = self._engine.step(message.header["learning_rate"])
                return Message({"result": {"job_id": self._sub_job_id, **result}})
            case "save":
                path = Path(message.header["path"])
                path.parent.mkdir(parents=True, exist_ok=True)
                return Message({"result": self._engine.save(path, message.header["checkpoint_type"])})
            case "load":
                details = self._engine.load(Path(message.header["path"]))
                return Message({"result": {"job_id": self._sub_job_id, **details}})
            case "export-weights":
                weights = self._engine.export_weights(Path(message.header["path"]))
                return Message(
                    {
                        "result": {
                            "path": str(weights.path),
                            "policy_version": weights.policy_version,
                            "fingerprint": weights.fingerprint,
                        }
                    }
                )
            case other:
                raise EngineError(f"a training worker knows no operation {other!r}")

    def _forward_backward(self, frame: bytes) -> Message:
        result = {"job_id": self._sub_job_id, **self._engine.forward_backward(decode_frame(frame).value)}
        if _holds_arrays(result):
            return Message({"result": {"avg_loss": result["avg_loss"]}}, encode_frame(result))
        return Message({"result": result})


def _holds_arrays(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_holds_arrays(item) for item in value.values())
    return isinstance(value, np.ndarray)
