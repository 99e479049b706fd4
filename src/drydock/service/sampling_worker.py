"""The sampling worker: decodes a step, looks for new work, decodes a step.

New requests join the running batch between two steps. Loading weights and forgetting the prefix cache wait until
nothing is being decoded, and what came after them waits for them, so that no sequence is sampled under two policies.
"""

import logging
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drydock.engine.base import SamplingEngine
from drydock.engine.sampling import TorchSamplingEngine
from drydock.engine.types import SampleResult
from drydock.errors import EngineError
from drydock.service.channel import Message, WorkerChannel
from drydock.service.worker import error_reply, log_failure
from drydock.wire.rest import SamplingParams

logger = logging.getLogger("drydock.worker.sampling")

_AFTER_DRAIN = frozenset({"load-weights", "reset-prefix-cache"})


@dataclass(slots=True, eq=False)
class _Call:
    """A generate operation under way: its prompts' results, in order, as they come in."""

    number: int
    request_id: str
    params: list[SamplingParams]
    results: dict[int, dict[str, Any]] = field(default_factory=dict)
    waiting: int = 0


class SamplingWorker:
    """Answers sampling operations with a SamplingEngine."""

    def __init__(self, engine: SamplingEngine, channel: WorkerChannel) -> None:
        self._engine = engine
        self._channel = channel
        self._sequences: dict[str, tuple[_Call, int]] = {}
        self._queued: deque[Message] = deque()

    @classmethod
    def build(cls, config: dict[str, Any], channel: WorkerChannel) -> "SamplingWorker":
        """A worker whose engine is loaded as the sub-job's configuration says."""
        engine = TorchSamplingEngine(
            config["model_name"], config["inference_config"], seed=config.get("seed") or 0, dtype=config.get("dtype")
        )
        return cls(engine, channel)

    def run(self) -> None:
        """Answers messages until the channel closes."""
        while True:
            message = self._channel.receive(0 if self._engine.has_work else None)
            while message is not None:
                self._take(message)
                message = self._channel.receive(0)
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
            self._channel.send(error_reply(number, error))
            return
        if result is not None:
            self._channel.send(Message({"id": number, "result": result}))

    def _perform(self, header: dict[str, Any]) -> dict[str, Any] | None:
        match header["op"]:
            case "generate":
                self._submit(header)
                return None
            case "load-weights":
                loaded = self._engine.load_weights(
                    Path(header["path"]), policy_version=header["policy_version"], fingerprint=header["fingerprint"]
                )
                self._engine.reset_prefix_cache()
                logger.info("holds policy version %d, fingerprint %s", loaded.policy_version, loaded.fingerprint)
                return {"policy_version": loaded.policy_version, "fingerprint": loaded.fingerprint}
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
                name = f"{call.request_id}/{index}"
                ids = self._encode(prompt) if isinstance(prompt, str) else prompt
                self._engine.submit(name, ids, call.params[index], header["routing_keys"][index])
                self._sequences[name] = (call, index)
                call.waiting += 1
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
                self._channel.send(error_reply(call.number, error))
            return
        for result in finished:
            self._finish(result)

    def _finish(self, result: SampleResult) -> None:
        entry = self._sequences.pop(result.request_id, None)
        if entry is None:
            return
        call, index = entry
        call.results[index] = _on_the_wire(result, call.params[index])
        call.waiting -= 1
        if call.waiting == 0:
            ordered = [call.results[position] for position in range(len(call.results))]
            self._channel.send(Message({"id": call.number, "result": ordered}))

    def _abort(self, request_id: str) -> None:
        cancelled = EngineError("cancelled by request")
        for message in [m for m in self._queued if m.header.get("request_id") == request_id]:
            self._queued.remove(message)
            self._channel.send(error_reply(message.header["id"], cancelled, cancelled=True))
        calls = {id(call): call for call, _ in self._sequences.values() if call.request_id == request_id}
        for call in calls.values():
            self._drop(call)
            self._channel.send(error_reply(call.number, cancelled, cancelled=True))

    def _drop(self, call: _Call) -> None:
        """Takes the call's sequences out of the engine."""
        for name in [name for name, (owner, _) in self._sequences.items() if owner is call]:
            del self._sequences[name]
            self._engine.abort(name)


def _on_the_wire(result: SampleResult, params: SamplingParams) -> dict[str, Any]:
    wire: dict[str, Any] = {
        "text": result.text,
        "token_ids": list(result.token_ids),
        "finish_reason": result.finish_reason,
        "policy_version": result.policy_version,
    }
    if params.compact_logprobs:
        wire["logprobs"] = list(result.logprobs)
    elif params.logprobs is not None:
        pairs = zip(result.token_ids, result.logprobs, strict=True)
        wire["logprobs"] = [{str(token): {"logprob": logprob}} for token, logprob in pairs]
    return wire
