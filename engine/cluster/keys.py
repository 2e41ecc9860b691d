"""The key of this user: a CURVE pair by which viewers and agents know one another beyond this machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import zmq
from zmq.utils import z85

from ..errors import InputFileError, UsageError
from ..paths import config_file
from .private_files import read_private, write_private

KEY_BYTES = 32
KEY_DIGITS = 2 * KEY_BYTES
_MOST_FILE_BYTES = 4096
_HEAD = (
    "# The secret key of a user of vramscope. Whoever has it is you: give the public one away, never this.\n"
)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A public key and the secret one that belongs to it, 32 bytes each."""

    public: bytes
    secret: bytes = field(repr=False)

    @property
    def public_text(self) -> str:
        """The public key as people see and type it: 64 hexadecimal digits."""
        return self.public.hex()


def keys_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of this user's keys, which need not exist."""
    return config_file(environ).parent / "keys"


def make_key_pair() -> KeyPair:
    """Return a new key pair.

    Raises:
        UsageError: The ZeroMQ library at hand was built without CURVE.
    """
    if not zmq.has("curve"):
        raise UsageError("this ZeroMQ library was built without CURVE: install pyzmq from its wheels")
    _, secret = zmq.curve_keypair()
    return _pair_of(z85.decode(secret))


def save_key_pair(pair: KeyPair, folder: Path) -> Path:
    """Write this user's key and return the file.

    Raises:
        InputFileError: The folder is open to others or somebody else's.
        OutputFileError: The file cannot be written.
    """
    path = folder / "own.key"
    write_private(path, f"{_HEAD}{pair.secret.hex()}\n")
    return path


def read_key_pair(folder: Path) -> KeyPair | None:
    """Return this user's key, or None where there is none yet.

    Raises:
        InputFileError: The file is open to others, somebody else's, or holds no key.
    """
    path = folder / "own.key"
    text = read_private(path, _MOST_FILE_BYTES)
    if text is None:
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    secret = parse_key(lines[0]) if len(lines) == 1 else None
    if secret is None:
        raise InputFileError(
            f"{path}: expected one line of {KEY_DIGITS} hexadecimal digits: restore the file, or make "
            "another key with `vramscope keys new --replace`"
        )
    return _pair_of(secret)


def parse_key(text: str) -> bytes | None:
    """Return the 32 bytes of a key as people type it, or None where it is none."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        return None
    return key if len(key) == KEY_BYTES and len(text) == KEY_DIGITS else None


def _pair_of(secret: bytes) -> KeyPair:
    return KeyPair(z85.decode(zmq.curve_public(z85.encode(secret))), secret)
