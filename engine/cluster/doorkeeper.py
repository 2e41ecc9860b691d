"""Who may come in at the tcp port of an agent, and what they may do: answers ZeroMQ (ZAP, RFC 27)."""

from pathlib import Path

from ..errors import InputFileError
from .allow_list import ALLOW_LIST_NAME, AllowList, Role, read_allow_list
from .keys import KEY_BYTES, KeyPair

VISITOR = "visitor"
"""What a peer is called that shows no key."""
_FRAMES_BEFORE_CREDENTIALS = 6
_ALLOWED = b"200"
_REFUSED = b"400"


class Doorkeeper:
    """Knows keys and roles, and reads the list anew when it changes.

    Args:
        pair: Key of the user of this agent, who may do everything; None to let everybody in, to read.
        folder: Folder of the list of keys that are allowed.
    """

    def __init__(self, pair: KeyPair | None, folder: Path) -> None:
        self.note: str | None = None
        """Why the list cannot be read, in one sentence: nobody on it is let in."""
        self._pair = pair
        self._path = folder / ALLOW_LIST_NAME
        self._allowed, self._stamp = AllowList(), self._look()
        self._read()

    def has_changed(self) -> bool:
        """Return whether the list is another than it was, and read it."""
        stamp = self._look()
        if self._pair is None or stamp == self._stamp:
            return False
        self._stamp = stamp
        self._read()
        return True

    def role_of(self, user: str) -> Role | None:
        """Return what a peer may do, by the user that ZeroMQ tells with each message; None for nothing."""
        if self._pair is None:
            return "viewer"
        try:
            public = bytes.fromhex(user)
        except ValueError:
            return None
        return "controller" if public == self._pair.public else self._allowed.role_of(public)

    def answer(self, question: list[bytes]) -> list[bytes]:
        """Return the answer to one question of ZeroMQ: whether a peer may come in, and who it is.

        Args:
            question: The frames of ZAP: version, number, domain, address, identity, mechanism, credentials.
        """
        user = self._name_user(question)
        is_allowed = user is not None and self.role_of(user) is not None
        number = question[1] if len(question) > 1 else b""
        if user is None or not is_allowed:
            return [b"1.0", number, _REFUSED, b"this key is not allowed", b"", b""]
        return [b"1.0", number, _ALLOWED, b"", user.encode(), b""]

    def _name_user(self, question: list[bytes]) -> str | None:
        if len(question) < _FRAMES_BEFORE_CREDENTIALS:
            return None
        mechanism = question[5]
        credentials = question[_FRAMES_BEFORE_CREDENTIALS:]
        if self._pair is None:
            return VISITOR if mechanism == b"NULL" else None
        is_key = mechanism == b"CURVE" and len(credentials) == 1 and len(credentials[0]) == KEY_BYTES
        return credentials[0].hex() if is_key else None

    def _look(self) -> tuple[int, int, int] | None:
        """Return what changes when the list is replaced or edited."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ctime_ns, found.st_ino

    def _read(self) -> None:
        if self._pair is None:
            return
        try:
            self._allowed = read_allow_list(self._path.parent)
            self.note = None
        except InputFileError as error:
            self._allowed = AllowList()
            self.note = f"nobody but you is let in: {error}"
