"""Users and passwords of a web configuration: bcrypt, in the same time whether a user is known or not."""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Mapping
from importlib.util import find_spec

from ...engine.errors import UsageError

MOST_COST = 16
"""Above this a single scrape would take a core for seconds."""
MOST_BYTES = 72
"""Of a password bcrypt takes so many; what follows is left out, as Prometheus's exporters do."""
MOST_CHECKS = 2
CHECKED_WITHIN_S = 2.0
"""Passwords that are checked at a time, and how long others wait before they are refused."""
_HASH = re.compile(r"\$2[abxy]\$(\d\d)\$[./A-Za-z0-9]{53}")


def check_users(users: Mapping[str, str]) -> None:
    """Refuse users whose passwords could not be checked; the text goes on after the name of a file.

    Args:
        users: Bcrypt hash of the password of each.

    Raises:
        UsageError: bcrypt is not installed, or one has no bcrypt hash of a bearable cost.
    """
    if find_spec("bcrypt") is None:
        raise UsageError(
            "passwords are checked by bcrypt, which is not installed: pip install 'vramscope[prometheus]'"
        )
    for name, hashed in users.items():
        found = _HASH.fullmatch(hashed)
        if not name or ":" in name or found is None:
            raise UsageError(
                f"{name}: expected a user without a colon and the bcrypt hash of a password, "
                "as `htpasswd -nB USER` prints both"
            )
        if not 4 <= int(found[1]) <= MOST_COST:
            raise UsageError(f"{name}: expected a bcrypt hash of cost 4 to {MOST_COST}, not {found[1]}")


class Passwords:
    """Says whether a request may be answered.

    Checking a password takes tens of milliseconds on purpose. So of each user the newest that was right is
    known again by a keyed digest; of others few are checked at a time, so that guessing takes few cores.

    Args:
        users: Bcrypt hash of the password of each; see `check_users`.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        self._hashes = {name.encode(): hashed.encode() for name, hashed in users.items()}
        self._stranger = next(iter(self._hashes.values()), b"")
        self._secret = secrets.token_bytes(32)
        self._known = dict[bytes, bytes]()
        self._places = threading.BoundedSemaphore(MOST_CHECKS)

    def knows(self, authorization: str | None) -> bool:
        """Return whether a header names a user with the password that was right before; takes no time."""
        named = _read(authorization or "")
        if named is None:
            return False
        user, password = named
        return hmac.compare_digest(self._known.get(user, b""), self._digest(password))

    def allow(self, authorization: str | None) -> bool:
        """Return whether the header `Authorization` of a request names a user with the right password."""
        named = _read(authorization or "")
        if named is None or not self._hashes:
            return False
        if self.knows(authorization):
            return True
        user, password = named
        is_right = self._check(password, self._hashes.get(user, self._stranger)) and user in self._hashes
        if is_right:
            self._known[user] = self._digest(password)
        return is_right

    def _digest(self, password: bytes) -> bytes:
        return hmac.digest(self._secret, password, hashlib.sha256)

    def _check(self, password: bytes, hashed: bytes) -> bool:
        import bcrypt

        if not self._places.acquire(timeout=CHECKED_WITHIN_S):
            return False
        try:
            return bcrypt.checkpw(password[:MOST_BYTES], hashed)
        except ValueError:  # a password that bcrypt does not take
            return False
        finally:
            self._places.release()


def _read(authorization: str) -> tuple[bytes, bytes] | None:
    """Return user and password of a header; None where it holds none."""
    scheme, _, coded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(coded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if colon else None
