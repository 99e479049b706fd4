"""What all calls of a client share: one service's address and credentials, and how a POST becomes a result.

The calls themselves stand in one module a noun (`job_calls`, `request_calls`, `training_calls`, `sampling_calls`,
`checkpoint_calls`, `log_calls`), each a class over this one; `TrainingClient` is all of them.
"""

import json
import ssl
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from pydantic import SecretStr

from drydock.client.access import ServiceAccess
from drydock.client.call import Call, open_call
from drydock.client.polling import prefer_wait, result_of
from drydock.client.retrying import RetryPolicy
from drydock.client.transport import Resend, Transport, job_path
from drydock.errors import UserError
from drydock.wire.chunks import MAX_BODY_BYTES

CONTROL_DEADLINE_S: Final = 60.0
DATA_DEADLINE_S: Final = 1800.0


class Connection:
    """A client's connection to one service; an async context manager.

    database, schema, endpoint: names in the API's path; our service takes any.
    verify_ssl: whether the server's certificate is checked, or the context that checks it
    (`ssl.create_default_context(cafile=...)`).
    hold_s: how long one answer may be held by the server. max_body_bytes: larger bodies are sent in chunks.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str | SecretStr | None = None,
        database: str = "drydock",
        schema: str = "PUBLIC",
        endpoint: str = "cortex-training",
        hold_s: float = 30.0,
        connect_timeout_s: float = 10.0,
        verify_ssl: bool | ssl.SSLContext = True,
        retry: RetryPolicy | None = None,
        max_body_bytes: int = MAX_BODY_BYTES,
        hosted: bool = False,
    ) -> None:
        """Raises UserError when `base_url` is no http(s) URL. `hosted`: leave out what only our service understands."""
        self._hold_s = hold_s
        self._hosted = hosted
        self._max_body_bytes = max_body_bytes
        self._verify_ssl = verify_ssl
        secret = token.get_secret_value() if isinstance(token, SecretStr) else token
        self._access = ServiceAccess(base_url, secret, database, schema, endpoint, hosted)
        self._transport = Transport(
            base_url,
            f"/api/v2/databases/{database}/schemas/{schema}/{endpoint}",
            token=secret,
            pat=hosted,
            verify_ssl=verify_ssl,
            connect_timeout_s=connect_timeout_s,
            read_timeout_s=hold_s + 60.0,
            retry=retry,
        )

    @classmethod
    def from_pat(cls, host: str, pat: str | SecretStr, **settings: Any) -> Self:
        """Client of the hosted service; `host` may carry a port, `settings` are those of the constructor."""
        return cls(hosted_url(host), token=pat, hosted=True, **settings)

    @classmethod
    def of(cls, access: ServiceAccess, **settings: Any) -> Self:
        """Client of a service that another process told of; `settings` are those of the constructor."""
        return cls(
            access.base_url,
            token=access.token,
            database=access.database,
            schema=access.schema,
            endpoint=access.endpoint,
            hosted=access.hosted,
            **settings,
        )

    @property
    def access(self) -> ServiceAccess:
        """Of the same service for a client elsewhere.

        Raises UserError where the server's certificate is checked in a way of this client's own.
        """
        if self._verify_ssl is not True:
            raise UserError("a client with certificate settings of its own cannot be made anew in another process")
        return self._access

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transport.address})"

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        await self._transport.__aexit__(*exc_info)

    @property
    def _harmful_resend(self) -> Resend:
        """For what must not happen twice: only a server with idempotency keys may be sent it again."""
        return Resend.UNSENT if self._hosted else Resend.ALWAYS

    async def _get[R](
        self,
        reader: Callable[[dict[str, Any]], R],
        name: str,
        job_id: str | None,
        path: str,
        deadline_s: float,
        params: Mapping[str, str | None] | None = None,
    ) -> R:
        """A GET as a whole call: ask, read the answer; parameters that are None are left out."""
        given = {key: value for key, value in (params or {}).items() if value is not None}
        async with open_call(name, job_id, deadline_s) as call:
            return call.read(reader, await self._transport.send(call, "GET", path, params=given or None))

    async def _run[R](
        self,
        reader: Callable[[dict[str, Any]], R],
        name: str,
        job_id: str,
        path: str,
        body: Mapping[str, Any],
        deadline_s: float,
        resend: Resend = Resend.ALWAYS,
        idempotency_key: str | None = None,
    ) -> R:
        """An asynchronous request as a whole call: POST, wait, read the result."""
        async with open_call(name, job_id, deadline_s) as call:
            accepted = await self._post_json(call, job_id, path, body, resend, idempotency_key)
            return call.read(reader, await result_of(self._transport, call, job_id, accepted, self._hold_s))

    async def _operate(self, call: Call, job_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The result of an operation, which a server gives at once or names a request for."""
        answer = await self._post_json(call, job_id, "/operation", body)
        if answer.get("request_id"):
            return await result_of(self._transport, call, job_id, answer, self._hold_s)
        return answer

    async def _post_json(
        self,
        call: Call,
        job_id: str,
        path: str,
        body: Mapping[str, Any],
        resend: Resend = Resend.ALWAYS,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        return await self._transport.send(
            call,
            "POST",
            job_path(job_id, path),
            content=json.dumps(body).encode(),
            headers=self._headers(call, "application/json", idempotency_key),
            resend=resend,
        )

    def _headers(self, call: Call, content_type: str, idempotency_key: str | None = None) -> dict[str, str]:
        key = idempotency_key or str(uuid.uuid4())
        return {"Content-Type": content_type, "Idempotency-Key": key, **prefer_wait(call, self._hold_s)}


def hosted_url(host: str) -> str:
    """Base URL of a host name, which may carry a port, a scheme or a trailing slash."""
    return f"https://{host.removeprefix('https://').rstrip('/')}"
