"""One rollout whose calls an endpoint answers: its key, its turns, its calls in flight.

The run's sampling settings win over what the agent sends, as with a sampler of our own. The same call asked again gets
the same turn. After a failure the rollout is spoilt. What is recorded is what there is: messages and the endpoint's
token counts. Token ids and log-probs are not made up, so there is nothing to train on.
"""

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable
from typing import Any

from drydock.chat.refusal import RequestRefused
from drydock.deadline import deadline
from drydock.proxy.admission import Admission
from drydock.proxy.call_rules import admit, answer_call, rollout_closed, spoilt
from drydock.proxy.completion import Completion, finish_reason
from drydock.proxy.dialects.base import Dialect
from drydock.proxy.dialects.chat import CHAT, assistant_message
from drydock.proxy.endpoint.answer import EndpointTurn
from drydock.proxy.endpoint.client import EndpointClient
from drydock.proxy.endpoint.history import EndpointHistory
from drydock.proxy.known_messages import KnownMessages
from drydock.proxy.record import EndpointUse, RolloutRecord, TurnRecord
from drydock.proxy.recorder import Timing
from drydock.proxy.reply import Reply
from drydock.proxy.request import ChatRequest
from drydock.proxy.settings import ProxySettings
from drydock.proxy.turn_params import TurnParams
from drydock.wire.rest import SamplingParams

logger = logging.getLogger(__name__)


class EndpointSession:
    """Made by `EndpointRelay.open_rollout`; close it. base_url and api_key: what the rollout's agent is given."""

    def __init__(
        self,
        rollout_id: str,
        *,
        base_url: str,
        api_key: str,
        client: EndpointClient,
        settings: ProxySettings,
        admission: Admission,
        on_close: Callable[[], None],
    ) -> None:
        self.rollout_id = rollout_id
        self.base_url = base_url
        self.api_key = api_key
        self.known = KnownMessages()
        self._client = client
        self._settings = settings
        self._admission = admission
        self._on_close = on_close
        self._params = TurnParams(rollout_id, settings)
        self._history = EndpointHistory()
        self._use = EndpointUse(url=client.address.base_url, model=client.address.model)
        self._record = RolloutRecord(rollout_id=rollout_id, endpoint=self._use)
        self._calls: dict[str, asyncio.Task[Completion]] = {}
        self._closed = False

    @property
    def record(self) -> RolloutRecord:
        return self._record

    async def answer(self, body: bytes, dialect: Dialect = CHAT) -> Reply:
        """Answer the body of one call; what is refused becomes a reply too."""
        return await answer_call(self, body, dialect)

    async def complete(self, request: ChatRequest) -> Completion:
        """The endpoint's turn. Raises RequestRefused with the codes and statuses of the chat proxy."""
        admit(request, self.record, closed=self._closed)
        asked = _fingerprint(request)
        call = self._calls.get(asked)
        if call is None:
            call = self._calls[asked] = asyncio.create_task(self._ask(request))
        await asyncio.wait({call})
        if call.cancelled():
            raise rollout_closed()
        return call.result()

    async def close(self) -> RolloutRecord:
        if not self._closed:
            self._closed = True
            self._on_close()
            for call in self._calls.values():
                call.cancel()
            if self._calls:
                await asyncio.wait(self._calls.values())
        return self.record

    async def _ask(self, request: ChatRequest) -> Completion:
        try:
            turn, timing = await self._turn(request)
        except RequestRefused as refusal:
            self.record.context_full |= refusal.code == "context_length_exceeded"
            raise
        except Exception as error:  # whatever it was, this rollout has no turn
            logger.warning("rollout %s: the endpoint gave no turn", self.rollout_id, exc_info=error)
            self.record.sampler_error = f"{type(error).__name__}: {error}"
            raise spoilt(self.record) from error
        return self._recorded(request, turn, timing)

    async def _turn(self, request: ChatRequest) -> tuple[EndpointTurn, Timing]:
        settings = self._settings
        params = self._params.next(self._known_tokens(request), request.max_tokens)
        started_at, started = time.time(), time.perf_counter()
        async with self._admission.place(self.rollout_id, settings.admission_deadline_s):
            admitted = time.perf_counter()
            async with deadline(f"a turn of rollout {self.rollout_id} at the endpoint", settings.call_deadline_s):
                turn = await self._client.ask(_body(self._use.model, request, params))
        return turn, Timing(started_at, admitted - started, time.perf_counter() - admitted)

    def _known_tokens(self, request: ChatRequest) -> int:
        """Tokens of the history that the request goes on from, by the endpoint's count; 0 where it is not known."""
        parent = self._history.place(request.messages).parent
        if parent is None:
            return 0
        return (self._use.prompt_tokens[parent] or 0) + (self._use.completion_tokens[parent] or 0)

    def _recorded(self, request: ChatRequest, turn: EndpointTurn, timing: Timing) -> Completion:
        place, record, index = self._history.place(request.messages), self.record, len(self.record.turns)
        self._history.add(place, request.messages, turn.reply)
        if place.reason is not None:
            record.branch_reasons[place.reason.value] = record.branch_reasons.get(place.reason.value, 0) + 1
        message = assistant_message(turn.reply)
        record.turns.append(
            TurnRecord(
                index=index,
                parent=place.parent,
                prompt_length=turn.prompt_tokens or 0,
                prompt_sha256="",
                sampled_ids=[],
                logprobs=[],
                policy_version=None,
                finish_reason=turn.finish_reason,
                started_at=timing.started_at,
                waited_s=timing.waited_s,
                seconds=timing.seconds,
                branch=place.branch,
                reason=place.reason.value if place.reason else None,
                given=[given.wire_form() for given in place.given],
                reply=message,
                tools=self._tool_place(request),
            )
        )
        self._use.prompt_tokens.append(turn.prompt_tokens)
        self._use.completion_tokens.append(turn.completion_tokens)
        record.messages = [*(given.wire_form() for given in request.messages), message]
        return Completion(
            id=f"{hashlib.sha256(self.rollout_id.encode()).hexdigest()[:10]}-{index}",
            created=int(timing.started_at),
            model=request.model,
            reply=turn.reply,
            finish_reason=finish_reason(turn.reply, turn.finish_reason),
            prompt_tokens=turn.prompt_tokens or 0,
            completion_tokens=turn.completion_tokens or 0,
        )

    def _tool_place(self, request: ChatRequest) -> int | None:
        if not request.tools:
            return None
        if request.tools not in self.record.tool_sets:
            self.record.tool_sets.append(request.tools)
        return self.record.tool_sets.index(request.tools)


def _body(model: str, request: ChatRequest, params: SamplingParams) -> dict[str, Any]:
    """The call as the endpoint gets it: the run's sampling, and only what departs from an endpoint's defaults beyond
    temperature and length, since not every endpoint knows every field."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [message.wire_form() for message in request.messages],
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
    }
    if params.top_p < 1:
        body["top_p"] = params.top_p
    if params.top_k > 0:
        body["top_k"] = params.top_k
    if params.seed is not None:
        body["seed"] = params.seed
    if request.tools:
        body["tools"] = request.tools
    return body


def _fingerprint(request: ChatRequest) -> str:
    content = [[message.wire_form() for message in request.messages], request.tools, request.max_tokens]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
