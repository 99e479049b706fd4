"""Secrets hidden in what a server says, before any of it is cut: half a secret would not be found any more."""

from collections.abc import Collection
from dataclasses import dataclass

HIDDEN = "[hidden]"
LEAST_SECRET_CHARS = 4
"""A shorter secret is not hidden: it would be found in most texts."""


@dataclass(frozen=True, slots=True)
class Hiding:
    """What to hide: longer secrets first, because one may be a part of another."""

    secrets: tuple[str, ...] = ()

    @classmethod
    def of(cls, secrets: Collection[str]) -> "Hiding":
        kept = {one for one in secrets if len(one) >= LEAST_SECRET_CHARS}
        return cls(tuple(sorted(kept, key=lambda one: (-len(one), one))))

    def __call__(self, text: str) -> str:
        """The text with every secret hidden."""
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN)
        return text

    def end_of(self, text: str, max_chars: int) -> str:
        """The last characters of a text whose beginning is lost already, perhaps in the middle of a secret."""
        lost = max((_known_end(secret, text) for secret in self.secrets), default=0)
        return self(text[lost:]).strip()[-max_chars:]


def _known_end(secret: str, text: str) -> int:
    """How many characters at the beginning of the text are the end of the secret and tell something of it."""
    sizes = range(len(secret) - 1, LEAST_SECRET_CHARS - 1, -1)
    return next((size for size in sizes if text.startswith(secret[-size:])), 0)
