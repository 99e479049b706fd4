"""Who makes a call: a user name and a role, taken from the token that the call carries.

What a role allows is decided here and nowhere else. A job belongs to the user whose token created it.
"""

from dataclasses import dataclass
from enum import StrEnum

from starlette.requests import Request

from drydock.service.problems import Refusal

OPERATOR = "operator"
"""User of the token that the service was started with, and of every call to a service without any token."""


class Role(StrEnum):
    """What the holder of a token may do."""

    USER = "user"
    """Everything with one's own jobs."""
    ADMIN = "admin"
    """Everything with all jobs."""
    VIEWER = "viewer"
    """Reading what belongs to the same user; no changes."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The holder of a token. token_id: what `drydock service token list` calls the token."""

    user: str
    role: Role
    token_id: str

    @property
    def sees_all(self) -> bool:
        """Whether other users' jobs are this one's to see and change."""
        return self.role is Role.ADMIN

    def owns(self, owner: str | None) -> bool:
        """Whether something of `owner` (None: of nobody) is this one's to see."""
        return self.sees_all or (owner is not None and owner == self.user)

    def require_changes(self) -> None:
        """Raises Refusal 403 for a role that only reads."""
        if self.role is Role.VIEWER:
            raise Refusal(403, f"the token of {self.user!r} has the role viewer: it reads and changes nothing")


def visible_owner(identity: Identity, user: str | None) -> str | None:
    """Whose things a list that asks for `user` (None: all) may show; None is everybody's. Raises Refusal 403."""
    if identity.sees_all:
        return user
    if user is not None and user != identity.user:
        raise Refusal(403, f"user: {user!r} is not you; only an admin sees other users' jobs and usage")
    return identity.user


EVERYONE = Identity(OPERATOR, Role.ADMIN, "none")
"""Who calls a service that has no token."""


def identity_of(request: Request) -> Identity:
    """Who made this call; known to every route, since the gate lets nobody else through."""
    identity = request.scope["state"]["identity"]
    assert isinstance(identity, Identity)
    return identity
