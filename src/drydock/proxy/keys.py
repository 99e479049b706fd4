"""API keys of rollouts: one each, good until its rollout ends, told apart afterwards from a key that never was one.

A key is a public name, by which it is looked up, and a secret, which is compared in constant time with a digest. Only
digests are kept, so that no record, log or traceback can show a key.
"""

import hashlib
import logging
import secrets
import weakref
from collections.abc import Mapping
from dataclasses import dataclass

from drydock.bounded_cache import BoundedCache
from drydock.chat.refusal import RequestRefused
from drydock.proxy.chat_session import ChatSession
from drydock.proxy.record import RolloutRecord

logger = logging.getLogger(__name__)

REVOKED_KEYS = 16_384
"""Keys of ended rollouts whose late calls are told apart from calls with an unknown key."""
_PREFIX = "dd"
_NOBODY = b"\0" * 32


def new_key() -> str:
    """A key that nobody has: `dd-<name>-<secret>`."""
    return f"{_PREFIX}-{secrets.token_hex(8)}-{secrets.token_urlsafe(32)}"


@dataclass(frozen=True, slots=True)
class _Revoked:
    digest: bytes
    record: weakref.ref[RolloutRecord]


class RolloutKeys:
    """The sessions that are open, by their keys."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[bytes, ChatSession]] = {}
        self._revoked: BoundedCache[str, _Revoked] = BoundedCache(REVOKED_KEYS)

    def sessions(self) -> list[ChatSession]:
        """The open sessions."""
        return [session for _, session in self._open.values()]

    def add(self, key: str, session: ChatSession) -> None:
        """Let `key`, one of `new_key`, open `session`."""
        self._open[_name(key)] = (_digest(key), session)

    def revoke(self, key: str) -> None:
        """End a key that was added."""
        digest, session = self._open.pop(_name(key))
        self._revoked.put(_name(key), _Revoked(digest, weakref.ref(session.record)))

    def session_of(self, headers: Mapping[str, str]) -> ChatSession:
        """The session whose key a request carries, as a bearer token or as `x-api-key`.

        Raises RequestRefused (401) for an unknown key and (403) for one whose rollout is over; the latter is counted.
        """
        scheme, _, token = headers.get("authorization", "").partition(" ")
        key = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "").strip()
        name, digest = _name(key), _digest(key)
        held, session = self._open.get(name, (_NOBODY, None))
        if secrets.compare_digest(digest, held) and session is not None:
            return session
        revoked = self._revoked.get(name)
        if revoked is not None and secrets.compare_digest(digest, revoked.digest):
            record = revoked.record()
            if record is not None:
                record.late_calls += 1
                logger.info("rollout %s: call after its end", record.rollout_id)
            raise RequestRefused("this rollout is over; its key is revoked", code="revoked", status=403)
        raise RequestRefused("unknown API key", code="invalid_api_key", status=401)


def _name(key: str) -> str:
    return "-".join(key.split("-", 2)[:2])


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
