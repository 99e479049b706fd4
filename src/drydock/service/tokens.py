"""The tokens that a service accepts: the operator's, from its settings, and those of the `tokens` table.

A token is 32 random bytes, shown once when it is made; the table holds its sha256, its user and its role. A running
service reads the table every `REFRESH_S` seconds, so that tokens are made and revoked without a restart. A service
that has neither is open, and then it may listen on loopback only; once a row was ever written it stays closed, also
when every token in it is revoked or past its date.
"""

import asyncio
import base64
import binascii
import hashlib
import ipaddress
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from pydantic import SecretStr
from sqlalchemy import update
from sqlalchemy.exc import SQLAlchemyError

from drydock.errors import UserError
from drydock.service import schema as tables
from drydock.service.identity import EVERYONE, OPERATOR, Identity, Role
from drydock.service.schema import Row
from drydock.service.store import Store

REFRESH_S = 1.0
DAY_S = 86_400.0
_PREFIX = "drydock_"
_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_SNOWFLAKE = re.compile(rb'token="([^"]*)"', re.IGNORECASE)

logger = logging.getLogger(__name__)


class Unauthorized(Exception):
    """A call that carries no token, or one that is not accepted (any more)."""


@dataclass(frozen=True, slots=True)
class _Known:
    identity: Identity
    expires_at: float | None = None
    revoked_at: float | None = None


class Tokens:
    """Says whose token a call carries. `opened` keeps it up to date while a service runs."""

    def __init__(self, store: Store, operator: SecretStr | None) -> None:
        self._store = store
        self._operator: dict[str, _Known] = {}
        if operator is not None:
            known = _Known(Identity(OPERATOR, Role.ADMIN, OPERATOR))
            self._operator[_digest(operator.get_secret_value().encode())] = known
        self._known = self._operator

    @property
    def open(self) -> bool:
        """Whether no token is needed, because none was ever configured."""
        return not self._known

    @classmethod
    @asynccontextmanager
    async def opened(cls, store: Store, operator: SecretStr | None, host: str) -> AsyncIterator["Tokens"]:
        """The tokens of a service that listens on `host`. Raises UserError when it would be open to others."""
        tokens = cls(store, operator)
        await tokens.refresh()
        if tokens.open and not is_loopback(host):
            raise UserError(
                f"the service has no token, so it may not listen on {host}: make one with `drydock service token "
                "create`, set DRYDOCK_SERVICE_TOKEN, or listen on 127.0.0.1"
            )
        watching = asyncio.create_task(tokens._watch(), name="token watch")
        try:
            yield tokens
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def refresh(self) -> None:
        """Reads the table."""
        known = dict(self._operator)
        for row in await self._store.rows(tables.tokens):
            identity = Identity(row["user"], Role(row["role"]), row["token_id"])
            known[row["sha256"]] = _Known(identity, row["expires_at"], row["revoked_at"])
        self._known = known

    def identify(self, authorization: bytes) -> Identity:
        """Who an Authorization header belongs to. Raises Unauthorized.

        The token comes as Bearer, as the password of Basic (credentials in a URL) or as `Snowflake Token="…"`.
        """
        if self.open:
            return EVERYONE
        token = _presented(authorization)
        if not token:
            raise Unauthorized("no token: send Authorization: Bearer <token>")
        known = self._known.get(_digest(token))
        if known is None:
            raise Unauthorized("wrong token: this service does not know it")
        if known.revoked_at is not None:
            raise Unauthorized(f"token {known.identity.token_id} is revoked: ask for another")
        if known.expires_at is not None and known.expires_at <= time.time():
            raise Unauthorized(f"token {known.identity.token_id} is past its date: ask for another")
        return known.identity

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await self.refresh()
            except (SQLAlchemyError, ValueError):
                logger.exception("the tokens could not be read; those known before stay in force")


async def create_token(store: Store, user: str, role: Role, expires_days: float | None = None) -> tuple[str, Row]:
    """A new token and its row, in which it is not. Raises UserError for a user name or a time that cannot be."""
    if not _USER.fullmatch(user):
        raise UserError(f"user {user!r}: 1 to 64 letters, digits, '.', '_', '@' or '-', a letter or digit first")
    if expires_days is not None and expires_days <= 0:
        raise UserError(f"expires-days {expires_days:g}: must be above 0")
    token = _PREFIX + secrets.token_urlsafe(32)
    now = time.time()
    row: Row = {
        "token_id": f"tok_{secrets.token_hex(5)}",
        "sha256": _digest(token.encode()),
        "user": user,
        "role": role.value,
        "created_at": now,
        "expires_at": now + expires_days * DAY_S if expires_days is not None else None,
        "revoked_at": None,
    }
    await store.put(tables.tokens, [row])
    return token, row


async def list_tokens(store: Store) -> list[Row]:
    """Every token ever made, oldest first, without its hash."""
    rows = sorted(await store.rows(tables.tokens), key=lambda row: row["created_at"])
    return [{key: value for key, value in row.items() if key != "sha256"} for row in rows]


async def revoke_token(store: Store, token_id: str) -> None:
    """Makes a token worthless; revoking it again changes nothing. Raises UserError for an unknown id."""
    if await store.one(tables.tokens, token_id=token_id) is None:
        raise UserError(f"no token {token_id!r}: `drydock service token list` shows them")
    revoke = update(tables.tokens).where(tables.tokens.c.token_id == token_id, tables.tokens.c.revoked_at.is_(None))
    await store.run(lambda connection: connection.execute(revoke.values(revoked_at=time.time())))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`, an address (one of IPv6 with or without brackets) or a name."""
    name = host.lower().strip("[]")
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _digest(token: bytes) -> str:
    return hashlib.sha256(token).hexdigest()


def _presented(header: bytes) -> bytes:
    scheme, _, credentials = header.partition(b" ")
    credentials = credentials.strip()
    match scheme.lower():
        case b"bearer":
            return credentials
        case b"basic":
            try:
                return base64.b64decode(credentials, validate=True).partition(b":")[2]
            except binascii.Error:
                return b""
        case b"snowflake":
            found = _SNOWFLAKE.search(credentials)
            return found[1] if found else b""
        case _:
            return b""
