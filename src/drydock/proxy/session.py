"""One rollout at the proxy: its key, its ledger, its calls in flight.

A call is placed in the ledger, sampled in a task of its own, written down, and only then answered. The task belongs to
the session, not to the HTTP request: when a client gives up and asks again, the second request finds the first one's
turn instead of sampling twice. Closing the session revokes the key, cancels what is being sampled, lets the waiting
calls end with an error, and gives the record.

After a sampler failure the rollout is spoilt: the failure is recorded, and every later call gets the same error
without sampling.
"""

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from drydock.chat.messages import Message
from drydock.chat.parsers.base import ParsedReply, ToolCallParser
from drydock.chat.refusal import RequestRefused, error_body
from drydock.chat.template import ChatTemplate
from drydock.deadline import deadline
from drydock.errors import ServiceError, TemplateError
from drydock.proxy.ledger import Ledger, Prompt, Segment
from drydock.proxy.record import LoggedTurn, RolloutRecord, TurnRecord
from drydock.proxy.reply import assistant_message, completion_body
from drydock.proxy.request import ChatRequest, parse_request
from drydock.proxy.sampler import SampledTurn, Sampler
from drydock.proxy.settings import ProxySettings
from drydock.proxy.turn_log import TurnLog
from drydock.wire.rest import SamplingParams

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reply:
    """Status and JSON body of an answer."""

    status: int
    body: bytes


class RolloutSession:
    """Made by `ChatProxy.open_rollout`; close it, or use it as an async context manager.

    base_url and api_key: what the rollout's agent is given. The key appears nowhere else.
    """

    def __init__(
        self,
        rollout_id: str,
        *,
        base_url: str,
        api_key: str,
        template: ChatTemplate,
        parser: ToolCallParser,
        sampler: Sampler,
        settings: ProxySettings,
        turn_log: TurnLog,
        on_close: Callable[["RolloutSession"], None],
    ) -> None:
        self.rollout_id = rollout_id
        self.base_url = base_url
        self.api_key = api_key
        self.record = RolloutRecord(rollout_id=rollout_id)
        self._template = template
        self._parser = parser
        self._sampler = sampler
        self._settings = settings
        self._turn_log = turn_log
        self._on_close = on_close
        self._ledger = Ledger(template)
        self._tasks: dict[Segment, asyncio.Task[Reply]] = {}
        self._answers: dict[Segment, Reply] = {}
        self._short_id = hashlib.sha256(rollout_id.encode()).hexdigest()[:10]
        self._call_count = 0
        self._sample_count = 0
        self._conversation: tuple[tuple[Message, ...], dict[str, Any]] | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"RolloutSession({self.rollout_id!r}, {'closed' if self._closed else 'open'})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def answer(self, body: bytes) -> Reply:
        """Answer the body of one call; what is refused becomes a reply too. The HTTP route is this and a key."""
        try:
            return await self.complete(parse_request(body))
        except RequestRefused as refusal:
            return Reply(refusal.status, refusal.body())
        except TemplateError as error:
            logger.warning("rollout %s: %s", self.rollout_id, error)
            return Reply(400, error_body(str(error), "invalid_request_error", code="chat_template"))

    async def complete(self, request: ChatRequest) -> Reply:
        """Answer one call. Raises RequestRefused or TemplateError for a request that cannot be served."""
        if self._closed:
            self.record.late_calls += 1
            return self._closed_reply()
        if self.record.sampler_error is not None:
            return self._sampler_error_reply()
        prompt = self._ledger.extend(request.messages, request.tools)
        if (answer := self._answers.get(prompt.segment)) is not None:
            return answer
        task = self._tasks.get(prompt.segment)
        if task is None:
            task = self._start(prompt, request)
        await asyncio.wait({task})
        return self._closed_reply() if task.cancelled() else task.result()

    async def close(self) -> RolloutRecord:
        """Revoke the key, cancel sampling in flight, and return the record; closing again returns the same one."""
        if not self._closed:
            self._closed = True
            self._on_close(self)
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            try:
                await asyncio.gather(*tasks, return_exceptions=True)
            finally:
                self._finish_record()
        return self.record

    def _finish_record(self) -> None:
        self._turn_log.close()
        self.record.samples = self._ledger.samples()
        self.record.branch_reasons = dict(self._ledger.branch_reasons)
        if self._conversation is not None:
            messages, reply = self._conversation
            self.record.messages = [*(message.wire_form() for message in messages), reply]

    def _start(self, prompt: Prompt, request: ChatRequest) -> asyncio.Task[Reply]:
        prompt_tokens = len(prompt.ids)
        room = self._settings.context_tokens - prompt_tokens
        if room < 1:
            self._ledger.abandon(prompt)
            self.record.context_full = True
            raise RequestRefused(
                # litellm and the OpenHands SDK know a full context by its wording only, each by one half of this
                f"context length exceeded: this model's maximum context length is {self._settings.context_tokens} "
                f"tokens and the prompt has {prompt_tokens}",
                param="messages",
                code="context_length_exceeded",
            )
        limit = min(room, self._settings.max_new_tokens, request.max_tokens or room)
        task = asyncio.create_task(self._answer(prompt, request, self._params(limit)))
        self._tasks[prompt.segment] = task
        task.add_done_callback(lambda _: self._tasks.pop(prompt.segment))
        return task

    def _params(self, max_tokens: int) -> SamplingParams:
        sampling = self._settings.sampling
        changes: dict[str, Any] = {"max_tokens": max_tokens}
        if sampling.seed is not None:
            root = f"{sampling.seed}/{self.rollout_id}/{self._sample_count}"
            changes["seed"] = int.from_bytes(hashlib.sha256(root.encode()).digest()[:4]) >> 1
        self._sample_count += 1
        return sampling.model_copy(update=changes)

    async def _answer(self, prompt: Prompt, request: ChatRequest, params: SamplingParams) -> Reply:
        started_at, started = time.time(), time.perf_counter()
        recorded = False
        try:
            async with deadline(f"a sampled turn of rollout {self.rollout_id}", self._settings.call_deadline_s):
                turn = await self._sampler.sample(prompt.ids, params, routing_key=self.rollout_id)
            self._check(turn, params)
            seconds = time.perf_counter() - started
            reply = self._parser.parse(self._template.turn_text(turn.sampled_ids), self._new_call_id)
            index = self._ledger.record(prompt, turn, reply)
            recorded = True
            self._write_down(prompt, turn, index, started_at, seconds)
        except Exception as error:  # a sampler may raise anything; whatever it was, this rollout has no turn
            logger.warning("rollout %s: sampling failed", self.rollout_id, exc_info=error)
            self.record.sampler_error = f"{type(error).__name__}: {error}"
            return self._sampler_error_reply()
        finally:
            if not recorded:
                self._ledger.abandon(prompt)
        return self._keep(prompt, request, turn, reply, int(started_at))

    def _check(self, turn: SampledTurn, params: SamplingParams) -> None:
        if len(turn.logprobs) != len(turn.sampled_ids):
            raise ServiceError(
                f"the sampler returned {len(turn.logprobs)} log-probs for {len(turn.sampled_ids)} tokens"
            )
        if len(turn.sampled_ids) > params.max_tokens:
            raise ServiceError(
                f"the sampler returned {len(turn.sampled_ids)} tokens where {params.max_tokens} were allowed"
            )
        if not all(map(math.isfinite, turn.logprobs)):
            raise ServiceError("the sampler returned a log-prob that is not finite")

    def _write_down(self, prompt: Prompt, turn: SampledTurn, index: int, started_at: float, seconds: float) -> None:
        segment = prompt.segment
        record = TurnRecord.model_construct(
            index=index,
            parent=segment.parent.index if segment.parent else None,
            prompt_length=segment.prompt_length,
            prompt_sha256=segment.prompt_hash.hex,
            sampled_ids=list(turn.sampled_ids),
            logprobs=list(turn.logprobs),
            policy_version=turn.policy_version,
            finish_reason=turn.finish_reason,
            started_at=started_at,
            seconds=seconds,
            branch=segment.branch,
        )
        self.record.turns.append(record)
        if self._turn_log.enabled:
            self._turn_log.append(
                LoggedTurn.model_construct(
                    **record.__dict__, rollout_id=self.rollout_id, added_ids=list(segment.added_ids)
                )
            )

    def _keep(self, prompt: Prompt, request: ChatRequest, turn: SampledTurn, reply: ParsedReply, created: int) -> Reply:
        message = assistant_message(reply)
        self._conversation = (request.messages, message)
        answer = Reply(
            200,
            completion_body(
                completion_id=f"chatcmpl-{self._short_id}-{prompt.segment.index}",
                created=created,
                model=request.model,
                message=message,
                sampler_finish=turn.finish_reason,
                prompt_tokens=prompt.segment.prompt_length,
                completion_tokens=len(turn.sampled_ids),
            ),
        )
        self._answers[prompt.segment] = answer
        return answer

    def _new_call_id(self) -> str:
        self._call_count += 1
        return f"call_{self._short_id}_{self._call_count}"

    def _sampler_error_reply(self) -> Reply:
        message = f"sampling failed for this rollout: {self.record.sampler_error}"
        return Reply(500, error_body(message, "server_error", code="sampler_error"))

    def _closed_reply(self) -> Reply:
        return Reply(
            403, error_body("this rollout is over; its key is revoked", "invalid_request_error", code="closed")
        )
