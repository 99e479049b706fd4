"""Chat completions of an OpenAI-compatible endpoint: one call, one turn; what is overloaded is asked again.

The key is sent to the endpoint and nowhere else: redirects are not followed, and no message shows it, also where the
endpoint's own error does.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Self

import httpx
from pydantic import SecretStr

from drydock.chat.refusal import RequestRefused
from drydock.errors import ServiceError, ServiceUnavailable, UserError
from drydock.proxy.endpoint.answer import EndpointTurn, read_answer

ATTEMPTS = 6
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
_SHOWN = 300
_OVERLOADED = (408, 409, 429)
_NEW_LENGTH = "max_completion_tokens"
"""What OpenAI's reasoning models call `max_tokens`, which they refuse; other endpoints know the old name only."""

_CONTEXT = ("context_length_exceeded", "context length", "maximum context", "context window")


@dataclass(frozen=True, slots=True)
class EndpointAddress:
    """base_url: up to and including the version segment, without credentials. model: its name there."""

    base_url: str
    model: str
    key: SecretStr | None = None

    def __post_init__(self) -> None:
        url = httpx.URL(self.base_url)
        if url.scheme not in ("http", "https") or not url.host:
            raise UserError(f"the endpoint {self.base_url!r} is no http or https URL; give one such as https://host/v1")
        if url.userinfo or url.query or url.fragment:
            raise UserError(
                "the endpoint's URL is written into files, so it may hold no credentials and no query: give the key in "
                "an environment variable"
            )


class EndpointClient:
    """A connection pool to one endpoint, open while its `async with` block runs."""

    def __init__(self, address: EndpointAddress, *, first_pause_s: float = FIRST_PAUSE_S) -> None:
        self.address = address
        self._first_pause_s = first_pause_s
        key = address.key.get_secret_value() if address.key else ""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.AsyncClient(
            base_url=address.base_url.rstrip("/") + "/", headers=headers, timeout=httpx.Timeout(None, connect=30)
        )
        self._key = key
        self._new_length = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._http.aclose()

    async def check(self) -> str | None:
        """Ask for the list of models; a warning where the model is not in it or there is no list, else None.

        Raises UserError where the endpoint cannot be reached or refuses the key.
        """
        try:
            response = await self._http.get("models", timeout=30)
        except httpx.HTTPError as error:
            raise UserError(f"the endpoint {self.address.base_url} cannot be reached: {self._plain(error)}") from None
        if response.status_code in (401, 403):
            raise UserError(self._key_refused(response.status_code))
        try:
            names = [model["id"] for model in response.json()["data"]] if response.is_success else None
        except (ValueError, KeyError, TypeError):
            names = None
        if names is None:
            return (
                f"{self.address.base_url} has no list of models (HTTP {response.status_code}): its key is not checked"
            )
        if self.address.model not in names:
            return f"{self.address.base_url} does not list the model {self.address.model!r}"
        return None

    async def ask(self, body: dict[str, Any]) -> EndpointTurn:
        """One turn. An endpoint that is overloaded or cannot be reached is asked up to `ATTEMPTS` times; one that wants
        the length limit under its new name gets it so from then on.

        Raises RequestRefused (`context_length_exceeded`) where the endpoint says that the context is full,
        ServiceUnavailable once the attempts are used up, ServiceError for any other refusal or an answer that is none.
        """
        said = ""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                response = await self._post(body)
            except httpx.TransportError as error:
                said, pause = f"cannot be reached: {self._plain(error)}", None
            else:
                if response.is_success:
                    return read_answer(response.content)
                said, pause = self._refusal(response), _retry_after(response)
            if attempt < ATTEMPTS:
                backoff = self._first_pause_s * 2 ** (attempt - 1)
                await asyncio.sleep(min(backoff if pause is None else pause, LONGEST_PAUSE_S))
        raise ServiceUnavailable(f"the endpoint {self.address.base_url} {said} (asked {ATTEMPTS} times)")

    async def _post(self, body: dict[str, Any]) -> httpx.Response:
        """The answer to `body`, with its length limit under the name that the model has been found to want."""
        renamed = {_NEW_LENGTH if key == "max_tokens" else key: value for key, value in body.items()}
        if self._new_length:
            return await self._http.post("chat/completions", json=renamed)
        response = await self._http.post("chat/completions", json=body)
        text = response.text.lower()
        wants_it = response.status_code == 400 and _NEW_LENGTH in text and not any(sign in text for sign in _CONTEXT)
        if not wants_it or "max_tokens" not in body:
            return response
        again = await self._http.post("chat/completions", json=renamed)
        if again.status_code in (400, 422):
            return response
        self._new_length = again.is_success
        return again

    def _refusal(self, response: httpx.Response) -> str:
        """What an endpoint that may be asked again said. Raises where asking again is no use."""
        status, text = response.status_code, self._plain(response.text)
        if status in (401, 403):
            raise ServiceError(self._key_refused(status))
        if status in (400, 413, 422) and any(sign in text.lower() for sign in _CONTEXT):
            raise RequestRefused(
                f"context length exceeded: this model's maximum context length is used up: {text[:_SHOWN]}",
                param="messages",
                code="context_length_exceeded",
            )
        said = f"answered HTTP {status}: {text[:_SHOWN]}"
        if status < 500 and status not in _OVERLOADED:
            raise ServiceError(f"the endpoint {self.address.base_url} {said}")
        return said

    def _key_refused(self, status: int) -> str:
        what = "refuses the key" if self._key else "wants a key"
        return f"the endpoint {self.address.base_url} {what} (HTTP {status}): set the environment variable of its key"

    def _plain(self, said: object) -> str:
        text = " ".join(str(said).split()) or type(said).__name__
        return text.replace(self._key, "***") if self._key else text


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds that the endpoint asks to wait, where it says so in seconds."""
    try:
        return max(0.0, float(response.headers["retry-after"]))
    except (KeyError, ValueError):
        return None
