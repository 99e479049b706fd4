"""The proxy's HTTP routes: a key, a body, a dialect, an answer.

A call that streams gets its status and events as soon as its turn is there. When that takes long, the stream begins
with comments, which keep clients and middleboxes from giving up, and a failure after that is told as an event. A
client that hangs up leaves its turn being sampled: asking again finds it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from drydock.chat.refusal import RequestRefused
from drydock.chat.template import ChatTemplate
from drydock.errors import TemplateError
from drydock.proxy.chat_session import ChatSession
from drydock.proxy.completion import Completion
from drydock.proxy.dialects import ANTHROPIC, CHAT, RESPONSES, Dialect
from drydock.proxy.dialects.sse import KEEP_ALIVE, MEDIA_TYPE
from drydock.proxy.keys import RolloutKeys
from drydock.proxy.reply import Reply, answered, refused
from drydock.proxy.request import ChatRequest
from drydock.proxy.request_body import read_body

MODEL = "policy"
OVERRIDDEN_HEADER = "x-drydock-overridden"
"""Names of the parameters that the agent sent and the run decided."""
RETRY_HEADER = "x-should-retry"
"""What OpenAI's and Anthropic's clients go by before anything else: a refusal stays one, whoever repeats the call."""
WORTH_REPEATING = (429, 503)
_MODELS = {
    "object": "list",
    "data": [
        {
            "id": MODEL,
            "object": "model",
            "type": "model",
            "display_name": MODEL,
            "owned_by": "drydock",
            "created": 0,
            "created_at": "1970-01-01T00:00:00Z",
        }
    ],
    "has_more": False,
    "first_id": MODEL,
    "last_id": MODEL,
}
"""The list of models, with the fields that clients of either API read."""
_STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class ProxyRoutes:
    """Answers calls for the sessions that `keys` knows.

    template: what counts tokens; None where nobody here can. keep_alive_every_s: seconds between two comments of a
    stream that waits for its turn.
    """

    def __init__(self, keys: RolloutKeys, template: ChatTemplate | None, keep_alive_every_s: float) -> None:
        self._keys = keys
        self._template = template
        self._keep_alive_every_s = keep_alive_every_s

    def app(self) -> Starlette:
        """The routes as an ASGI application."""
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._calls(CHAT), methods=["POST"]),
                Route("/v1/messages", self._calls(ANTHROPIC), methods=["POST"]),
                Route("/v1/messages/count_tokens", self._count_tokens, methods=["POST"]),
                Route("/v1/responses", self._calls(RESPONSES), methods=["POST"]),
                Route("/v1/models", self._models, methods=["GET"]),
            ],
            exception_handlers={404: _no_route, 405: _no_route},
        )

    def _calls(self, dialect: Dialect) -> Callable[[Request], Awaitable[Response]]:
        async def route(request: Request) -> Response:
            try:
                session = self._keys.session_of(request.headers)
                call = dialect.parse(await read_body(request), session.known)
            except RequestRefused as refusal:
                return _response(refused(dialect, refusal))
            except ClientDisconnect:
                return Response(status_code=400)
            headers = {OVERRIDDEN_HEADER: ", ".join(call.overridden)} if call.overridden else {}
            if call.stream:
                return await self._streamed(dialect, call, session, headers)
            return _response(await _outcome(dialect, call, session.complete(call)), headers)

        return route

    async def _streamed(
        self, dialect: Dialect, call: ChatRequest, session: ChatSession, headers: dict[str, str]
    ) -> Response:
        turn = asyncio.create_task(session.complete(call))
        try:
            await asyncio.wait({turn}, timeout=self._keep_alive_every_s)
        except asyncio.CancelledError:
            turn.cancel()
            raise
        if turn.done():
            return _response(await _outcome(dialect, call, turn), headers)
        return StreamingResponse(self._waiting(dialect, call, turn), 200, _STREAM_HEADERS | headers, MEDIA_TYPE)

    async def _waiting(
        self, dialect: Dialect, call: ChatRequest, turn: asyncio.Task[Completion]
    ) -> AsyncIterator[bytes]:
        try:
            while not turn.done():
                yield KEEP_ALIVE
                await asyncio.wait({turn}, timeout=self._keep_alive_every_s)
            yield (await _outcome(dialect, call, turn, begun=True)).body
        finally:
            turn.cancel()

    async def _count_tokens(self, request: Request) -> Response:
        """Tokens of an Anthropic request, rendered whole; the rollout's history stays as it is."""
        try:
            self._keys.session_of(request.headers)
            if self._template is None:
                raise RequestRefused("the tokens of this model are not counted here", code="unknown_url", status=404)
            call = ANTHROPIC.parse(await read_body(request))
            messages = [message.template_form() for message in call.messages]
            tokens = len(self._template.first_prompt(messages, call.tools))
        except RequestRefused as refusal:
            return _response(refused(ANTHROPIC, refusal))
        except TemplateError as error:
            return _response(refused(ANTHROPIC, RequestRefused(str(error), param="messages", code="chat_template")))
        except ClientDisconnect:
            return Response(status_code=400)
        return JSONResponse({"input_tokens": tokens})

    async def _models(self, request: Request) -> Response:
        try:
            self._keys.session_of(request.headers)
        except RequestRefused as refusal:
            return _response(refused(ANTHROPIC if "anthropic-version" in request.headers else CHAT, refusal))
        return JSONResponse(_MODELS)


async def _outcome(dialect: Dialect, call: ChatRequest, turn: Awaitable[Completion], *, begun: bool = False) -> Reply:
    """The turn, or its refusal; `begun`: as the rest of a stream."""
    try:
        return answered(dialect, call, await turn)
    except RequestRefused as refusal:
        if begun:
            return Reply(200, dialect.failure(refusal), MEDIA_TYPE)
        return refused(dialect, refusal, call)


def _response(reply: Reply, headers: dict[str, str] | None = None) -> Response:
    headers = dict(headers or {})
    if reply.status >= 400 and reply.status not in WORTH_REPEATING:
        headers[RETRY_HEADER] = "false"
    return Response(reply.body, reply.status, headers, reply.media_type)


async def _no_route(request: Request, error: Exception) -> Response:
    message = (
        f"{request.method} {request.url.path} is not served here; the base URL ends in /v1 for OpenAI's clients and "
        "before it for Anthropic's"
    )
    return _response(refused(CHAT, RequestRefused(message, code="unknown_url", status=404)))
