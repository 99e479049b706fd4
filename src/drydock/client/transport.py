"""HTTP under the client: address, credentials, retries, and refusals turned into errors that name the call.

What is worth another attempt is `retrying`'s to say; what may be sent again after its answer was lost is the caller's
(`Resend`), since a server without idempotency keys would run it twice. The token is only ever in the Authorization
header: not in `repr`, and cut out of any message that a server echoes it in.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote, urljoin, urlsplit

import httpx

from drydock.amount import amount
from drydock.client.call import Call
from drydock.client.retrying import RetryPolicy, passing, patient, turned_away
from drydock.errors import Blame, ServiceError, ServiceUnavailable, UserError
from drydock.wire.chunks import PIECE_BYTES, ChunkBody

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_MESSAGE_CHARS: Final = 2000


class Resend(StrEnum):
    """When a request may be sent a second time."""

    ALWAYS = "always"
    UNSENT = "unsent"
    """Only when the first sending certainly did not reach the server or was turned away."""


class Refused(ServiceError):
    """The server answered a call with an HTTP status that a retry would not change."""

    def __init__(self, message: str, status: int, body: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = body


class RefusedAsAsked(Refused):
    """The caller has to act: another token, another job, another value."""

    blame = Blame.USER


_CALLERS_FAULT: Final = frozenset({400, 401, 403, 404, 409, 410, 412, 413, 422, 501})


class Transport:
    """Sends requests to one service; an async context manager that owns the connections.

    base_url: scheme, host and port, without the API's path. token: a bearer token or, with `pat`, a Snowflake
    programmatic access token. read_timeout_s: longest silence of the server before an attempt counts as lost.
    """

    def __init__(
        self,
        base_url: str,
        prefix: str,
        *,
        token: str | None = None,
        pat: bool = False,
        verify_ssl: bool | ssl.SSLContext = True,
        connect_timeout_s: float = 10.0,
        read_timeout_s: float = 90.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError("base_url must be http://host[:port] or https://host[:port]")
        self.address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._url = base_url.rstrip("/") + prefix
        self._token = token
        self._pat = pat
        self._retry = retry or RetryPolicy()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if token and pat:
            headers["X-Snowflake-Authorization-Token-Type"] = "PROGRAMMATIC_ACCESS_TOKEN"
        self._answered = False
        options: dict[str, Any] = {
            "verify": verify_ssl if parts.scheme == "https" else False,
            "trust_env": parts.hostname not in _LOOPBACK,
            "timeout": httpx.Timeout(read_timeout_s, connect=connect_timeout_s, pool=None),
        }
        limits = httpx.Limits(max_connections=2048, max_keepalive_connections=512, keepalive_expiry=4.0)
        self._http = httpx.AsyncClient(headers=headers, limits=limits, **options)
        self._files = httpx.AsyncClient(follow_redirects=True, **options)

    def __repr__(self) -> str:
        return f"Transport({self.address})"

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        await self._files.__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        await self._files.aclose()
        await self._http.aclose()

    async def send(
        self,
        call: Call,
        method: str,
        path: str,
        *,
        content: bytes | ChunkBody | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        resend: Resend = Resend.ALWAYS,
    ) -> dict[str, Any]:
        """The answer's JSON object ({} for an empty body).

        Raises Refused for a permanent refusal, ServiceUnavailable when the attempts run out without a usable answer,
        ServiceError for a body that is not a JSON object.
        """
        response = await self._attempts(
            call,
            lambda: self._http.build_request(
                method, self._url + path, params=params, **_sendable(content, dict(headers or {}))
            ),
            resend,
        )
        return self._parse(call, response)

    @contextlib.asynccontextmanager
    async def stream(
        self, call: Call, path: str, *, params: Mapping[str, str] | None, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx.Response]:
        """A GET whose answer is read as it comes; opened with the same retries and refusals as `send`.

        Reading it may raise httpx.TransportError.
        """
        response = await self._attempts(
            call,
            lambda: self._http.build_request("GET", self._url + path, params=params, headers=dict(headers)),
            stream=True,
        )
        try:
            yield response
        finally:
            await response.aclose()

    async def download(self, call: Call, url: str, target: Path, size_bytes: int) -> None:
        """Fetches a file, going on where `target` ends already; no credentials are sent with it.

        url: absolute, or relative to the service's address. Raises ServiceError when the file has another size.
        """
        file_url = urljoin(self._url, url)
        for _ in range(self._retry.attempts):
            start = target.stat().st_size if target.exists() else 0
            if start > size_bytes:
                target.unlink()
                start = 0
            if start == size_bytes and target.exists():
                return
            ranged = {"Range": f"bytes={start}-", "Accept-Encoding": "identity"}
            response = await self._attempts(
                call,
                lambda ranged=ranged: self._files.build_request("GET", file_url, headers=ranged),
                stream=True,
                client=self._files,
            )
            try:
                with target.open("ab" if response.status_code == 206 else "wb") as file:
                    async for data in response.aiter_bytes(1 << 20):
                        await asyncio.to_thread(file.write, data)
            except httpx.TransportError as error:
                call.last_failure = f"lost connection to {urlsplit(file_url).netloc}: {type(error).__name__}"
            finally:
                await response.aclose()
        got = target.stat().st_size if target.exists() else 0
        if got != size_bytes:
            raise ServiceError(f"{call.label}: {target.name} has {got} bytes, announced were {size_bytes}")

    async def _attempts(
        self,
        call: Call,
        build: Callable[[], httpx.Request],
        resend: Resend = Resend.ALWAYS,
        *,
        stream: bool = False,
        client: httpx.AsyncClient | None = None,
    ) -> httpx.Response:
        """The first good answer. Raises Refused, or ServiceUnavailable when there is no use in going on."""
        attempt, reached, gone_since = 0, 0, 0.0
        clock = asyncio.get_running_loop().time
        while True:
            response, again, patience, unconnected = None, True, False, False
            attempt += 1
            request = build()
            asked = f"{request.url.scheme}://{request.url.netloc.decode()}"
            try:
                response = await (client or self._http).send(request, stream=stream)
                if stream and not response.is_success:
                    await response.aread()
                    await response.aclose()
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                call.last_failure = f"no connection to {asked}: {self._reason(error)}"
                gone_since, unconnected = gone_since or clock(), True
                limit_s = self._retry.outage_s if self._answered else self._retry.unreachable_s
                patience = clock() - gone_since < limit_s
            except httpx.TransportError as error:
                call.last_failure = f"lost connection to {asked}: {self._reason(error)}"
                reached += 1
                again = resend is Resend.ALWAYS
            else:
                self._answered = True
                gone_since = 0.0
                reached += 1
                if response.is_success:
                    return response
                call.last_failure = f"HTTP {response.status_code}: {self._clean(server_message(response.text))}"
                if response.status_code == 401:
                    call.last_failure += self._credentials_hint
                if not passing(response):
                    kind = RefusedAsAsked if response.status_code in _CALLERS_FAULT else Refused
                    raise kind(f"{call.label}: {call.last_failure}", response.status_code, response.text)
                again = resend is Resend.ALWAYS or turned_away(response)
                patience = patient(response)
            exhausted = unconnected or reached >= self._retry.attempts
            if not again or (exhausted and not patience):
                hint = "" if again else " (not sent again: it may have taken effect)"
                raise ServiceUnavailable(f"{call.label}: {call.last_failure}, after {amount(attempt, 'attempt')}{hint}")
            await asyncio.sleep(self._retry.delay_s(attempt - 1, response))

    def _parse(self, call: Call, response: httpx.Response) -> dict[str, Any]:
        if not response.content:
            return {}
        try:
            answer = json.loads(response.content)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            text = self._clean(response.text)[:200]
            raise ServiceError(f"{call.label}: the answer is not a JSON object: {text}")
        return answer

    @property
    def _credentials_hint(self) -> str:
        """What a caller without a token that counts is to do; the commands take theirs from the environment."""
        if self._pat:
            return "; the personal access token is missing, wrong or past its date"
        return (
            "; set DRYDOCK_SERVICE_TOKEN (in Python: the client's token) to a token of this service; `drydock service "
            "token create` makes one, on the service's machine"
        )

    def _reason(self, error: Exception) -> str:
        return self._clean(str(error)) or type(error).__name__

    def _clean(self, text: str) -> str:
        return text.replace(self._token, "***") if self._token else text


def _sendable(content: bytes | ChunkBody | None, headers: dict[str, str]) -> dict[str, Any]:
    """Body and headers for one attempt; a large body is handed over in pieces, so that it is never copied whole."""
    if not isinstance(content, ChunkBody):
        return {"content": content, "headers": headers}
    if len(content) <= PIECE_BYTES:
        return {"content": bytes(content), "headers": headers}

    async def pieces() -> AsyncIterator[memoryview]:
        for piece in content.pieces():
            yield piece

    return {"content": pieces(), "headers": {**headers, "Content-Length": str(len(content))}}


def job_path(job_id: str, rest: str = "") -> str:
    """Path of a job below the API's prefix."""
    return f"/{quote(job_id, safe=':')}{rest}"


def server_message(body: str) -> str:
    """What a refusal's body says: its message, detail or error field where it has one, else its text."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = body
    for key in ("message", "detail", "error"):
        if isinstance(answer, dict) and answer.get(key):
            answer = answer[key]
            break
    return (answer if isinstance(answer, str) else json.dumps(answer))[:_MESSAGE_CHARS] or "(no message)"
