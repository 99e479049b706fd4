"""The training worker: one operation after the other, in the order they came."""

import logging
from pathlib import Path
from typing import Any

import numpy as np

from drydock.engine.training import TrainingEngine
from drydock.errors import EngineError
from drydock.service.channel import Message
from drydock.service.worker import answer_in_turn
from drydock.service.worker_link import WorkerLink
from drydock.wire.blob import Bytes
from drydock.wire.frame import decode_frame, encode_buffer

logger = logging.getLogger("drydock.worker.training")


class TrainingWorker:
    """Answers training operations with a TrainingEngine."""

    def __init__(self, engine: TrainingEngine, link: WorkerLink, sub_job_id: str) -> None:
        self._engine = engine
        self._link = link
        self._sub_job_id = sub_job_id
        link.note = self._note()

    @classmethod
    def build(
        cls, config: dict[str, Any], link: WorkerLink, sub_job_id: str, source: Path | None = None
    ) -> "TrainingWorker":
        """A worker whose engine is loaded as the sub-job's configuration says, from the checkpoint `source` if any."""
        engine = TrainingEngine(
            config["model_name"], config["training_config"], seed=config.get("seed") or 0, dtype=config.get("dtype")
        )
        if source is not None:
            with_optimizer = config["training_config"].get("load_optimizer_states") is not False
            state = engine.load(source, optimizer_states=with_optimizer)
            logger.info("starts from checkpoint %s at step %d", source.name, state["global_steps"])
        return cls(engine, link, sub_job_id)

    def run(self) -> None:
        """Answers operations for ever."""
        answer_in_turn(self._link, logger, self._answer, self._note)

    def _note(self) -> dict[str, Any]:
        """Where training stands: what would be lost if this process died now."""
        steps, accumulated = self._engine.global_steps, self._engine.pending_calls
        return {"progress": {"global_steps": steps, "accumulated": accumulated}}

    def _answer(self, op: str, message: Message) -> Message:
        match op:
            case "forward-backward":
                return self._forward_backward(message.payload)
            case "forward":
                request = decode_frame(message.payload, copy=False).value
                frame = encode_buffer({"job_id": self._sub_job_id, **self._engine.forward(request)})
                return Message({"result": {}, "tokens": real_tokens(request)}, frame)
            case "step":
                result = self._engine.step(message.header["learning_rate"])
                return Message({"result": {"job_id": self._sub_job_id, **result}})
            case "save":
                path = Path(message.header["path"])
                path.parent.mkdir(parents=True, exist_ok=True)
                merge = message.header.get("merge") or False
                return Message({"result": self._engine.save(path, message.header["checkpoint_type"], merge=merge)})
            case "load":
                details = self._engine.load(Path(message.header["path"]))
                return Message({"result": {"job_id": self._sub_job_id, **details}})
            case "export-weights":
                weights = self._engine.export_weights(Path(message.header["path"]), message.header.get("weight_format"))
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

    def _forward_backward(self, frame: Bytes) -> Message:
        request = decode_frame(frame, copy=False).value
        result = {"job_id": self._sub_job_id, **self._engine.forward_backward(request)}
        tokens = real_tokens(request)
        if _holds_arrays(result):
            return Message({"result": {"avg_loss": result["avg_loss"]}, "tokens": tokens}, encode_buffer(result))
        return Message({"result": result, "tokens": tokens})


def real_tokens(request: dict[str, Any]) -> int:
    """Tokens of a batch without its padding."""
    kwargs = request["kwargs"]
    mask = kwargs.get("attention_mask")
    return int(np.count_nonzero(mask)) if mask is not None else int(np.size(kwargs["input_ids"]))


def _holds_arrays(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_holds_arrays(item) for item in value.values())
    return isinstance(value, np.ndarray)
