"""URLs that open one file for a while, to whoever holds them: a path, an end, and an HMAC-SHA256 over both.

The key is made once and kept in the state folder (mode 0600), so that a URL outlives a restart of the service. A
wrong or spent signature is refused without saying which file there is.
"""

import hashlib
import hmac
import secrets
import time
from pathlib import Path
from urllib.parse import quote

from drydock.atomic import replace_file
from drydock.service.problems import Refusal

KEY_FILE = "signing.key"
KEY_BYTES = 32
VALID_S = 3600.0


class SignedUrls:
    """Makes and checks signed paths of one service."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def of(cls, state_dir: Path) -> "SignedUrls":
        """With the key in `state_dir`, made when missing or not whole: anyone could sign with an empty one."""
        path = state_dir / KEY_FILE
        key = path.read_bytes() if path.exists() else b""
        if len(key) != KEY_BYTES:
            key = secrets.token_bytes(KEY_BYTES)
            with replace_file(path) as temporary:
                temporary.touch(mode=0o600)
                temporary.write_bytes(key)
        return cls(key)

    def sign(self, path: str, expires_at: int) -> str:
        """The path, percent-encoded, with its end (seconds since 1970) and signature as a query."""
        return f"{quote(path)}?expires={expires_at}&signature={self._signature(path, expires_at)}"

    def check(self, path: str, expires: str, signature: str) -> None:
        """Raises Refusal 403 unless the signature belongs to the path and its end, and the end is still to come."""
        known = expires.isascii() and expires.isdigit() and len(expires) <= 12
        expected = self._signature(path, int(expires)) if known else ""
        if not known or not hmac.compare_digest(expected.encode(), signature.encode()):
            raise Refusal(403, "this address is not one that the service signed: export the checkpoint again")
        if time.time() > int(expires):
            raise Refusal(403, "this address has expired: export the checkpoint again")

    def _signature(self, path: str, expires_at: int) -> str:
        return hmac.new(self._key, f"{expires_at}\n{path}".encode(), hashlib.sha256).hexdigest()
