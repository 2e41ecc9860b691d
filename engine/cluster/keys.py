"""Keys of this user and those that it allows, in files that no one else can read."""

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import zmq
from zmq.utils import z85

from ..errors import InputFileError, OutputFileError, UsageError
from ..files.base.output_file import replacing
from ..paths import config_file

# What an administrator mounts read-only is taken too, as Kubernetes mounts a Secret: files of root behind
# links within their folder, readable for a group of ours at most.


def read_private(path: Path, most_bytes: int) -> str | None:
    """Return the text of a private file, or None if it is missing.

    Args:
        most_bytes: A longer file is refused.

    Raises:
        InputFileError: It, or its folder, is open to others or somebody else's; or it is not text.
    """
    try:
        descriptor = _open(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}; expected a file of your own") from error
    with os.fdopen(descriptor, "rb") as file:
        if _is_read_only(path.parent):
            _check_mounted(path, os.fstat(descriptor))
        else:
            _check(path.parent, path.parent.stat(), 0o700)
            _check(path, os.fstat(descriptor), 0o600)
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise InputFileError(f"{path}: longer than {most_bytes} bytes; expected a file that vramscope wrote")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputFileError(f"{path}: not UTF-8 text at byte {error.start}") from error


def write_private(path: Path, text: str) -> None:
    """Replace a private file at once and whole; its folder is made where it is missing.

    Raises:
        InputFileError: The folder is open to others or somebody else's.
        OutputFileError: The file cannot be written.
    """
    try:
        make_private_folder(path.parent)
        with replacing(path, is_durable=True) as stream:
            stream.write(text.encode())
    except OSError as error:
        raise OutputFileError(f"{path}: {error.strerror or error}") from error


def make_private_folder(folder: Path) -> None:
    """Make a private folder where it is missing.

    Raises:
        InputFileError: It is there, and open to others or somebody else's.
        OutputFileError: It cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check(folder, folder.stat(), 0o700)
    except OSError as error:
        raise OutputFileError(f"{folder}: {error.strerror or error}") from error


def _open(path: Path) -> int:
    """Return a descriptor of a file; a link is followed only within its folder, and only where nobody writes.

    Raises:
        OSError: It cannot be opened, or is a link that is not followed.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(path, flags)
    except OSError as error:
        place = path.resolve()
        is_within = place.is_relative_to(path.parent.resolve())
        if error.errno != errno.ELOOP or not is_within or not _is_read_only(path.parent):
            raise
        return os.open(place, flags)


def _is_read_only(folder: Path) -> bool:
    """Return whether nobody writes to a folder where it is mounted here."""
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def _check_mounted(path: Path, found: os.stat_result) -> None:
    """Refuse a file on a read-only mount that others could read, or that neither root nor we own."""
    if not stat.S_ISREG(found.st_mode):
        raise InputFileError(f"{path}: expected a file")
    if found.st_uid not in (0, os.geteuid()):
        raise InputFileError(
            f"{path}: belongs to user id {found.st_uid}: expected a file of yours or of root"
        )
    is_given = found.st_uid == 0 and found.st_gid in (os.getegid(), *os.getgroups())
    if stat.S_IMODE(found.st_mode) & (0o037 if is_given else 0o077):
        raise InputFileError(
            f"{path}: is open to other users (mode {stat.S_IMODE(found.st_mode):04o}, expected 0400, "
            "or 0440 for a group of yours): change it in the mount (`defaultMode: 0400` of a Secret)"
        )


def _check(path: Path, found: os.stat_result, mode: int) -> None:
    kind = "folder" if mode == 0o700 else "file"
    if not (stat.S_ISDIR(found.st_mode) if kind == "folder" else stat.S_ISREG(found.st_mode)):
        raise InputFileError(f"{path}: expected a {kind}")
    if found.st_uid != os.geteuid():
        raise InputFileError(
            f"{path}: belongs to user id {found.st_uid}, not to you ({os.geteuid()}): expected a {kind} "
            "of your own"
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise InputFileError(
            f"{path}: is open to other users (mode {stat.S_IMODE(found.st_mode):04o}, expected {mode:04o}): "
            f"run chmod {mode:o} on it"
        )


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
    """Return this user's key; None before one was made.

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
            f"{path}: expected one line of {KEY_DIGITS} hexadecimal digits: restore the file, or "
            "replace the key with `vramscope keys new --replace`"
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


LOCK_NAME = ".lock"
WITHIN_S = 10.0
"""A change takes milliseconds, on a slow file server seconds."""
_RETRY_S = 0.02
_CANNOT_LOCK = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
"""Errors of file systems without locks, such as NFS without its lock service."""


@contextmanager
def lock_keys(folder: Path, warn: Callable[[str], None], *, within_s: float = WITHIN_S) -> Iterator[None]:
    """Lock the keys of a folder to read and write them, on this node or another that shares it.

    Args:
        folder: Of the keys; made where it is missing.
        warn: Called with one sentence if the file system cannot lock; the change is made nevertheless.
        within_s: How long to wait for others.

    Raises:
        InputFileError: The folder is open to others or somebody else's.
        OutputFileError: The lock cannot be written, or somebody holds it for longer than that.
    """
    path = folder / LOCK_NAME
    make_private_folder(folder)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise OutputFileError(f"{path}: {error.strerror or error}") from error
    try:
        _wait(descriptor, path, warn, time.monotonic() + within_s)
        yield
    finally:
        os.close(descriptor)  # which gives the lock back


def _wait(descriptor: int, path: Path, warn: Callable[[str], None], end_s: float) -> None:
    while True:
        try:
            # The lock belongs to the open file, not to the process; NFS turns it into a lock on its server.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end_s:
                raise OutputFileError(
                    f"{path}: another `vramscope keys` keeps changing the keys: end it, then try again"
                ) from None
            time.sleep(_RETRY_S)
        except OSError as error:
            if error.errno not in _CANNOT_LOCK:
                raise OutputFileError(f"{path}: {error.strerror or error}") from error
            warn("the file system with your keys has no locks: run only one `vramscope keys` at a time")
            return
        else:
            return


Role = Literal["viewer", "controller", "worker", "node"]
"""`viewer` reads. `worker` reads, asks processes for segment maps and stacks, advises them, sends findings.
`controller` does all of that, decides on findings, attaches and detaches, and reads whole command lines.
A `node` may do nothing here: it is an agent elsewhere, which viewers of this user trust by its key."""
ROLES: tuple[Role, ...] = get_args(Role)
MOST_KEYS = 1000
ALLOW_LIST_NAME = "allowed"
_MOST_LIST_BYTES = 256 * 1024
_NAME = re.compile(r"[\w.@:*?\[\]%+-]{1,100}", re.ASCII)
_LIST_HEAD = (
    "# Keys that vramscope allows: role, public key, name. Written by `vramscope keys allow` and `revoke`.\n"
)


class AllowedKey(NamedTuple):
    """One key and what its holder may do."""

    role: Role
    public: bytes
    name: str
    """For a node: the host as viewers type it, or a pattern such as `n*`."""


class AllowList:
    """The keys of one user's list, in its order.

    Args:
        keys: The keys; of two entries for one holder, or for one node by its name, the later counts.
    """

    def __init__(self, keys: Iterable[AllowedKey] = ()) -> None:
        self.keys = tuple({_slot(it): it for it in keys}.values())
        self._roles = {it.public: it.role for it in self.keys if it.role != "node"}

    def role_of(self, public: bytes) -> Role | None:
        """Return what the holder of a key may do at an agent here; None for nothing."""
        return self._roles.get(public)

    def key_of_node(self, *names: str) -> bytes | None:
        """Return the key of the agent that has one of these names, of the first entry that fits."""
        nodes = [it for it in self.keys if it.role == "node"]
        return next((it.public for it in nodes if any(fnmatchcase(name, it.name) for name in names)), None)

    def allow(self, key: AllowedKey) -> "AllowList":
        """Return the list with one more key, or with another role and name for it.

        Raises:
            UsageError: The name is taken or cannot be written, or there are too many keys.
        """
        check_name(key.name)
        others = [it for it in self.keys if _slot(it) != _slot(key)]
        if any(it.name == key.name and it.role != "node" for it in others) and key.role != "node":
            raise UsageError(
                f"{key.name} already names another key: choose another name, or run `vramscope keys "
                f"revoke {key.name}` first"
            )
        if len(others) >= MOST_KEYS:
            raise UsageError(f"cannot allow more than {MOST_KEYS} keys: revoke some first")
        return AllowList([*others, key])

    def revoke(self, word: str) -> tuple["AllowList", tuple[AllowedKey, ...]]:
        """Return the list without the keys of a name, or without one key, and what was taken from it."""
        public = parse_key(word)
        gone = tuple(it for it in self.keys if word == it.name or public == it.public)
        return AllowList(it for it in self.keys if it not in gone), gone


def _slot(key: AllowedKey) -> tuple[bool, bytes | str]:
    """Return what the list has once only: the key of a holder, the name of a node."""
    is_node = key.role == "node"
    return is_node, key.name if is_node else key.public


def check_name(name: str) -> None:
    """Refuse a name that could not be read back from the list.

    Raises:
        UsageError: It is empty, too long, or has other characters than letters, digits and a few signs.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"name {name!r}: expected up to 100 letters, digits and . @ : * ? [ ] % + - _")
    if parse_key(name) is not None:
        raise UsageError(f"name {name}: looks like a key; choose a word")


def read_allow_list(folder: Path) -> AllowList:
    """Return the keys that are allowed; none where there is no list.

    Raises:
        InputFileError: The list is open to others, somebody else's, or a line of it is wrong.
    """
    path = folder / ALLOW_LIST_NAME
    lines = (read_private(path, _MOST_LIST_BYTES) or "").splitlines()
    return AllowList(
        _read_line(f"{path}:{number}", line)
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    )


def save_allow_list(allowed: AllowList, folder: Path) -> None:
    """Replace the list.

    Raises:
        InputFileError: The folder is open to others or somebody else's.
        OutputFileError: The file cannot be written.
    """
    lines = (f"{it.role} {it.public.hex()} {it.name}\n" for it in allowed.keys)
    write_private(folder / ALLOW_LIST_NAME, _LIST_HEAD + "".join(lines))


def _read_line(where: str, line: str) -> AllowedKey:
    words = line.split()
    if len(words) != 3:
        raise InputFileError(f"{where}: expected three words: a role, a public key, a name")
    role, key, name = words
    public = parse_key(key)
    if role not in ROLES:
        raise InputFileError(f"{where}: role {role!r}: expected {', '.join(ROLES)}")
    if public is None:
        raise InputFileError(f"{where}: expected a public key of {KEY_DIGITS} hexadecimal digits")
    try:
        check_name(name)
    except UsageError as error:
        raise InputFileError(f"{where}: {error}") from error
    return AllowedKey(role, public, name)
