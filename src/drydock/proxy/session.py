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
from collections.abc import Callable
from typing import Self

from drydock.chat.parsers.base import ToolCallParser
from drydock.chat.refusal import RequestRefused
from drydock.chat.template import ChatTemplate
from drydock.errors import TemplateError
from drydock.proxy.admission import Admission
from drydock.proxy.call_rules import admit, answer_call, rollout_closed, spoilt
from drydock.proxy.completion import Completion, finish_reason
from drydock.proxy.dialects.base import Dialect
from drydock.proxy.dialects.chat import CHAT
from drydock.proxy.known_messages import KnownMessages
from drydock.proxy.ledger import Ledger, Prompt
from drydock.proxy.record import RolloutRecord
from drydock.proxy.recorder import Recorder
from drydock.proxy.reply import Reply
from drydock.proxy.request import ChatRequest
from drydock.proxy.sampler import Sampler
from drydock.proxy.segment import Segment
from drydock.proxy.settings import ProxySettings
from drydock.proxy.turn_log import TurnLog
from drydock.proxy.turn_sampling import TurnSampling
from drydock.wire.rest import SamplingParams

logger = logging.getLogger(__name__)

CANCEL_S = 15.0
"""How long a closing session waits for a sampler to give up what it samples, in seconds."""


class RolloutSession:
    """Made by `ChatProxy.open_rollout`; close it, or use it as an async context manager.

    base_url and api_key: what the rollout's agent is given. The key appears nowhere else.
    known: messages of its latest request, for whoever reads the next one.
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
        admission: Admission | None = None,
    ) -> None:
        """admission: shared by all rollouts of a proxy; without one the rollout has `max_concurrent_calls` itself."""
        self.rollout_id = rollout_id
        self.base_url = base_url
        self.api_key = api_key
        self.known = KnownMessages()
        self._template = template
        self._parser = parser
        self._on_close = on_close
        self._recorder = Recorder(rollout_id, turn_log)
        self._ledger = Ledger(template, thinking=settings.thinking)
        admission = admission or Admission(settings.max_concurrent_calls)
        self._sampling = TurnSampling(rollout_id, sampler, settings, admission)
        self._tasks: dict[Segment, asyncio.Task[Completion | None]] = {}
        self._completions: dict[Segment, Completion] = {}
        self._short_id = hashlib.sha256(rollout_id.encode()).hexdigest()[:10]
        self._call_count = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"RolloutSession({self.rollout_id!r}, {'closed' if self._closed else 'open'})"

    @property
    def record(self) -> RolloutRecord:
        """What is known of the rollout; complete when it is closed."""
        return self._recorder.record

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def answer(self, body: bytes, dialect: Dialect = CHAT) -> Reply:
        """Answer the body of one call; what is refused becomes a reply too. The HTTP route is this and a key."""
        return await answer_call(self, body, dialect)

    async def complete(self, request: ChatRequest) -> Completion:
        """The turn that answers one call: sampled and written down, or found again.

        Raises RequestRefused with status 400 for a request that cannot be served (`code` is `chat_template` where the
        template refuses it, `context_length_exceeded` where it leaves no room), 500 (`sampler_error`) once sampling
        has failed, and 403 (`closed`) when the rollout is over, also while the call was waiting.
        """
        admit(request, self.record, closed=self._closed)
        try:
            prompt = self._ledger.extend(request.messages, request.tools)
        except TemplateError as error:
            logger.warning("rollout %s: %s", self.rollout_id, error)
            raise RequestRefused(str(error), param="messages", code="chat_template") from error
        if (completion := self._completions.get(prompt.segment)) is not None:
            return completion
        task = self._tasks.get(prompt.segment) or self._start(prompt, request)
        await asyncio.wait({task})
        if task.cancelled():
            raise rollout_closed()
        completion = task.result()
        if completion is None:
            raise rollout_closed() if self.record.sampler_error is None else spoilt(self.record)
        return completion

    async def close(self) -> RolloutRecord:
        """Revoke the key, cancel sampling in flight, and return the record; closing again returns the same one."""
        if not self._closed:
            self._closed = True
            self._on_close(self)
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            try:
                if tasks:
                    _, stuck = await asyncio.wait(tasks, timeout=CANCEL_S)
                    if stuck:
                        logger.warning(
                            "rollout %s: %d calls still sample %g s after the rollout was closed",
                            self.rollout_id,
                            len(stuck),
                            CANCEL_S,
                        )
            finally:
                self._recorder.finish(self._ledger)
        return self.record

    def _start(self, prompt: Prompt, request: ChatRequest) -> asyncio.Task[Completion | None]:
        try:
            params = self._sampling.params(len(prompt.ids), request.max_tokens)
        except RequestRefused:
            self._ledger.abandon(prompt)
            self.record.context_full = True
            raise
        task = asyncio.create_task(self._sample(prompt, request, params))
        self._tasks[prompt.segment] = task
        task.add_done_callback(lambda _: self._tasks.pop(prompt.segment))
        return task

    async def _sample(self, prompt: Prompt, request: ChatRequest, params: SamplingParams) -> Completion | None:
        """Sample and write down; None when that failed or came too late."""
        recorded = False
        try:
            turn, timing = await self._sampling.sample(prompt.ids, params)
            if self._closed:
                return None
            text = self._template.turn_text(turn.sampled_ids)
            parser = self._parser if request.tools else self._parser.without_calls()
            reply = parser.parse(text, self._new_call_id, request.tools)
            self._ledger.record(prompt, turn, reply)
            recorded = True
            self._recorder.write(prompt, turn, reply, timing)
        except Exception as error:  # a sampler may raise anything; whatever it was, this rollout has no turn
            logger.warning("rollout %s: sampling failed", self.rollout_id, exc_info=error)
            self.record.sampler_error = f"{type(error).__name__}: {error}"
            return None
        finally:
            if not recorded:
                self._ledger.abandon(prompt)
        segment = prompt.segment
        completion = Completion(
            id=f"{self._short_id}-{segment.index}",
            created=int(timing.started_at),
            model=request.model,
            reply=reply,
            finish_reason=finish_reason(reply, turn.finish_reason),
            prompt_tokens=segment.prompt_length,
            completion_tokens=len(turn.sampled_ids),
            cached_tokens=segment.parent.path_length if segment.parent else 0,
        )
        self._completions[segment] = completion
        return completion

    def _new_call_id(self) -> str:
        self._call_count += 1
        return self._parser.call_id(self._call_count, self._short_id)
