"""HTTP under the client: address, credentials, retries, and refusals turned into errors that name the call.

Retried, with jittered backoff until the call's deadline or the attempts run out: lost connections, 429, 500, 502, 503
and 504. Everything else is permanent and fails at once, an unknown job (404) included. What may be sent again after
its answer was lost is the caller's to say (`Resend`), since a server without idempotency keys would run it twice. The
token is only ever in the Authorization header: not in `repr`, and cut out of any message that a server echoes it in.
"""

import asyncio
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self
from urllib.parse import quote, urlsplit

import httpx

from drydock.client.call import Call
from drydock.errors import ServiceError, ServiceUnavailable, UserError

RETRIED_STATUSES: Final = frozenset({429, 500, 502, 503, 504})
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_MESSAGE_CHARS: Final = 2000


class Resend(StrEnum):
    """When a request may be sent a second time."""

    ALWAYS = "always"
    UNSENT = "unsent"
    """Only when the first sending certainly did not reach the server or was turned away."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Backoff between attempts: `first_s` doubled each time up to `cap_s`, times a random factor in [0.5, 1]."""

    attempts: int = 10
    first_s: float = 0.25
    cap_s: float = 10.0

    def delay_s(self, attempt: int, response: httpx.Response | None) -> float:
        """Seconds to wait after failed attempt number `attempt` (from 0); a server's Retry-After is a lower bound."""
        delay = min(self.cap_s, self.first_s * 2**attempt) * random.uniform(0.5, 1.0)
        announced = response.headers.get("retry-after", "") if response is not None else ""
        return max(delay, min(float(announced), 60.0)) if announced.isdigit() else delay


class Refused(ServiceError):
    """The server answered a call with an HTTP status that a retry would not change."""

    def __init__(self, message: str, status: int, body: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = body


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
        verify_ssl: bool = True,
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
        self._retry = retry or RetryPolicy()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if token and pat:
            headers["X-Snowflake-Authorization-Token-Type"] = "PROGRAMMATIC_ACCESS_TOKEN"
        self._http = httpx.AsyncClient(
            headers=headers,
            verify=verify_ssl if parts.scheme == "https" else False,
            trust_env=parts.hostname not in _LOOPBACK,
            timeout=httpx.Timeout(read_timeout_s, connect=connect_timeout_s, pool=None),
            limits=httpx.Limits(max_connections=2048, max_keepalive_connections=512, keepalive_expiry=4.0),
        )

    def __repr__(self) -> str:
        return f"Transport({self.address})"

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        await self._http.aclose()

    async def send(
        self,
        call: Call,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        resend: Resend = Resend.ALWAYS,
    ) -> dict[str, Any]:
        """The answer's JSON object ({} for an empty body).

        Raises Refused for a permanent refusal, ServiceUnavailable when the attempts run out without a usable answer,
        ServiceError for a body that is not a JSON object.
        """
        attempt = 0
        while True:
            response, again = None, True
            request = self._http.build_request(
                method, self._url + path, content=content, params=params, headers=dict(headers or {})
            )
            try:
                response = await self._http.send(request)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                call.last_failure = (
                    f"no connection to {self.address}: {self._clean(str(error)) or type(error).__name__}"
                )
            except httpx.TransportError as error:
                call.last_failure = (
                    f"lost connection to {self.address}: {self._clean(str(error)) or type(error).__name__}"
                )
                again = resend is Resend.ALWAYS
            else:
                if response.is_success:
                    return self._parse(call, response)
                call.last_failure = f"HTTP {response.status_code}: {self._clean(server_message(response.text))}"
                if response.status_code not in RETRIED_STATUSES:
                    raise Refused(f"{call.label}: {call.last_failure}", response.status_code, response.text)
                again = resend is Resend.ALWAYS or response.status_code in (429, 503)
            attempt += 1
            if not again or attempt >= self._retry.attempts:
                hint = "" if again else " (not sent again: it may have taken effect)"
                raise ServiceUnavailable(f"{call.label}: {call.last_failure}, after {attempt} attempt(s){hint}")
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

    def _clean(self, text: str) -> str:
        return text.replace(self._token, "***") if self._token else text


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
