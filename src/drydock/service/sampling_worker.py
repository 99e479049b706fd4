"""The sampling worker: decodes a step, looks for new work, decodes a step.

New requests join the running batch between two steps. Loading weights and forgetting the prefix cache wait until
nothing is being decoded, and what came after them waits for them, so that no sequence is sampled under two policies.
Adapters are loaded and dropped in between in the same way.

A prompt that fails fails the call that it came with, and no other. A streamed call is told its tokens as they come.
"""

import logging
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drydock.engine.base import SamplingEngine
from drydock.engine.sampling import TorchSamplingEngine
from drydock.engine.types import SampleResult
from drydock.engine.weights import adapter_fingerprint
from drydock.errors import ConfigError, EngineError
from drydock.service.channel import Message
from drydock.service.sample_form import on_the_wire, piece_on_the_wire
from drydock.service.source_checkpoint import global_steps, holds_adapter
from drydock.service.worker import error_reply, log_failure
from drydock.service.worker_link import WorkerLink
from drydock.wire.rest import SamplingParams

logger = logging.getLogger("drydock.worker.sampling")

_AFTER_DRAIN = frozenset({"load-weights", "reset-prefix-cache", "load-adapter", "drop-adapter"})


@dataclass(slots=True, eq=False)
class _Call:
    """A generate operation under way. results: by prompt, the samples that have ended, by index."""

    number: str
    request_id: str
    params: list[SamplingParams]
    results: dict[int, dict[int, SampleResult]] = field(default_factory=dict)
    waiting: int = 0


class SamplingWorker:
    """Answers sampling operations with a SamplingEngine."""

    def __init__(self, engine: SamplingEngine, link: WorkerLink) -> None:
        self._engine = engine
        self._link = link
        self._sequences: dict[str, tuple[_Call, int]] = {}
        self._queued: deque[Message] = deque()

    @classmethod
    def build(cls, config: dict[str, Any], link: WorkerLink, source: Path | None = None) -> "SamplingWorker":
        """A worker whose engine is loaded as the sub-job's configuration says, from the checkpoint `source` if any."""
        whole = source is not None and not holds_adapter(source)
        if source is not None and not whole and config["inference_config"].get("policy_adapter"):
            raise ConfigError(
                "inference_config.policy_adapter: source_checkpoint_info holds the policy's adapter already; name one"
            )
        model_name = str(source) if whole else config["model_name"]
        engine = TorchSamplingEngine(
            model_name, config["inference_config"], seed=config.get("seed") or 0, dtype=config.get("dtype")
        )
        if source is not None:
            engine.policy_version = global_steps(source)
            if not whole:
                mark = adapter_fingerprint(source)
                engine.load_weights(source, policy_version=engine.policy_version, fingerprint=mark)
            logger.info("starts from checkpoint %s at step %d", source.name, engine.policy_version)
        return cls(engine, link)

    def run(self) -> None:
        """Answers operations for ever."""
        while True:
            message = self._link.receive(0 if self._engine.has_work else None)
            while message is not None:
                self._take(message)
                message = self._link.receive(0)
            if self._engine.has_work:
                self._decode()
            while self._queued and not self._must_wait(self._queued[0]):
                self._answer(self._queued.popleft())

    def _take(self, message: Message) -> None:
        if message.header["op"] == "abort":
            self._abort(message.header["request_id"])
        elif self._queued or self._must_wait(message):
            self._queued.append(message)
        else:
            self._answer(message)

    def _must_wait(self, message: Message) -> bool:
        return message.header["op"] in _AFTER_DRAIN and self._engine.has_work

    def _answer(self, message: Message) -> None:
        number = message.header["id"]
        try:
            result = self._perform(message.header)
        except Exception as error:
            log_failure(logger, message.header["op"], error)
            self._link.send(error_reply(number, error))
            return
        if result is not None:
            self._link.send(Message({"id": number, "result": result}))

    def _perform(self, header: dict[str, Any]) -> dict[str, Any] | None:
        match header["op"]:
            case "generate":
                self._submit(header)
                return None
            case "load-weights":
                before = self._engine.adapters.keys()
                loaded = self._engine.load_weights(
                    Path(header["path"]), policy_version=header["policy_version"], fingerprint=header["fingerprint"]
                )
                self._engine.reset_prefix_cache()
                logger.info("holds policy version %d, fingerprint %s", loaded.policy_version, loaded.fingerprint)
                dropped = sorted(before - self._engine.adapters.keys())
                answer = {"policy_version": loaded.policy_version, "fingerprint": loaded.fingerprint}
                return answer | ({"dropped_adapters": dropped} if dropped else {})
            case "load-adapter":
                mark = self._engine.load_adapter(header["adapter"], Path(header["path"]))
                logger.info("holds adapter %r, fingerprint %s", header["adapter"], mark)
                return {"fingerprint": mark}
            case "drop-adapter":
                return {"dropped": self._engine.drop_adapter(header["adapter"])}
            case "list-adapters":
                return {"adapters": self._engine.adapters}
            case "reset-prefix-cache":
                self._engine.reset_prefix_cache()
                return {}
            case other:
                raise EngineError(f"a sampling worker knows no operation {other!r}")

    def _submit(self, header: dict[str, Any]) -> None:
        prompts = header["prompts"]
        params = [SamplingParams.model_validate(item) for item in header["params"]]
        call = _Call(header["id"], header["request_id"], params * len(prompts) if len(params) == 1 else params)
        try:
            for index, prompt in enumerate(prompts):
                name = f"{call.number}/{index}"
                ids = self._encode(prompt) if isinstance(prompt, str) else prompt
                routing_key, streamed = header["routing_keys"][index], bool(header.get("streamed"))
                self._engine.submit(name, ids, call.params[index], routing_key, streamed=streamed)
                self._sequences[name] = (call, index)
                call.waiting += call.params[index].n
        except BaseException:
            self._drop(call)
            raise

    def _encode(self, text: str) -> list[int]:
        """A text prompt as it stands: callers send rendered chat templates, which hold their own special tokens."""
        return list(self._engine.tokenizer.encode(text, add_special_tokens=False))

    def _decode(self) -> None:
        try:
            finished = self._engine.step()
        except Exception as error:
            logger.exception("decoding failed; every request in the batch fails with it")
            calls = {id(call): call for call, _ in self._sequences.values()}
            for call in calls.values():
                self._drop(call)
                self._link.send(error_reply(call.number, error))
            return
        for piece in self._engine.take_pieces():
            if (entry := self._sequences.get(piece.request_id)) is not None:
                call, index = entry
                self._link.tell(Message({"id": call.number, "piece": piece_on_the_wire(piece, index)}))
        for result in finished:
            self._finish(result)

    def _finish(self, result: SampleResult) -> None:
        entry = self._sequences.get(result.request_id)
        if entry is None:
            return
        call, index = entry
        if result.error is not None:
            self._drop(call)
            error = EngineError(f"prompt {index}: {result.error}")
            log_failure(logger, "generate", error)
            self._link.send(error_reply(call.number, error))
            return
        samples = call.results.setdefault(index, {})
        samples[result.index] = result
        if len(samples) == call.params[index].n:
            del self._sequences[result.request_id]
        call.waiting -= 1
        if call.waiting == 0:
            parts = [(call.results[position], call.params[position]) for position in range(len(call.results))]
            answer = [on_the_wire([samples[k] for k in range(params.n)], params) for samples, params in parts]
            self._link.send(Message({"id": call.number, "result": answer}))

    def _abort(self, request_id: str) -> None:
        cancelled = EngineError("cancelled by request")
        for message in [m for m in self._queued if m.header.get("request_id") == request_id]:
            self._queued.remove(message)
            self._link.send(error_reply(message.header["id"], cancelled, cancelled=True))
        calls = {id(call): call for call, _ in self._sequences.values() if call.request_id == request_id}
        for call in calls.values():
            self._drop(call)
            self._link.send(error_reply(call.number, cancelled, cancelled=True))

    def _drop(self, call: _Call) -> None:
        """Takes the call's sequences out of the engine."""
        for name in [name for name, (owner, _) in self._sequences.items() if owner is call]:
            del self._sequences[name]
            self._engine.abort(name)
