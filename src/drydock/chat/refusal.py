"""A request that the proxy refuses, and the error body in which an OpenAI client reads why."""

import json

from drydock.errors import ProxyError


class RequestRefused(ProxyError):
    """The agent's request cannot be served as it is; `param` names the field."""

    retryable = False

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.status = status

    def body(self) -> bytes:
        """The JSON error body."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return error_body(str(self), kind, code=self.code, param=self.param)


def error_body(message: str, kind: str, *, code: str | None = None, param: str | None = None) -> bytes:
    """OpenAI's error object."""
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}}).encode()
