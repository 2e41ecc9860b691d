"""Where vramscope keeps its files: the private runtime folder, the settings file, the state folder."""

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from .errors import RuntimeFolderError

# Longest path of a unix socket: `sun_path` of unix(7) has 108 bytes with its closing zero.
SOCKET_PATH_LIMIT_BYTES = 107

# Room for the slash and the name of a socket in the runtime folder.
SOCKET_NAME_LIMIT_BYTES = 24

_TEMPORARY = Path("/tmp")  # noqa: S108 - the folder below it is private and checked on every use


ROOT_VARIABLE = "VRAMSCOPE_ROOT"


def locate_root() -> Path:
    """Return the folder that stands for `/` when devices and the host are read: `VRAMSCOPE_ROOT`, else `/`.

    For a container that has the host's /sys, /proc and /dev in a folder of its own, and for a copy of these.
    """
    return Path(os.environ.get(ROOT_VARIABLE) or "/")


def locate_runtime_folder(environ: Mapping[str, str] | None = None, *, uid: int | None = None) -> Path:
    """Return the runtime folder of this user without touching the disk.

    `VRAMSCOPE_RUNTIME_DIR`, else `vramscope` in `XDG_RUNTIME_DIR` if that folder is the user's own (su and
    sudo leave the variable of somebody else), else `/tmp/vramscope-<uid>`. A path too long for the sockets
    inside it is replaced by a short one below `/tmp/vramscope-<uid>` that follows from it, so that every
    process of the user arrives at the same folder.
    """
    environ = os.environ if environ is None else environ
    uid = os.geteuid() if uid is None else uid
    chosen = _choose_runtime_folder(environ, uid)
    if len(os.fsencode(chosen)) + SOCKET_NAME_LIMIT_BYTES <= SOCKET_PATH_LIMIT_BYTES:
        return chosen
    import hashlib

    return _TEMPORARY / f"vramscope-{uid}" / hashlib.sha256(os.fsencode(chosen)).hexdigest()[:12]


def open_runtime_folder(folder: Path | None = None, *, uid: int | None = None) -> Path:
    """Create the runtime folder if missing and return it, once it is proven private.

    Args:
        folder: None for the one `locate_runtime_folder` names.
        uid: Owner to expect; None for the user of this process.

    Raises:
        RuntimeFolderError: It is somebody else's, a link, open to others, or cannot be made.
    """
    uid = os.geteuid() if uid is None else uid
    folder = locate_runtime_folder(uid=uid) if folder is None else folder
    shared = _TEMPORARY / f"vramscope-{uid}"
    if folder.parent == shared:
        _make_private(shared, uid)
    _make_private(folder, uid)
    return folder


def check_private(folder: Path, *, uid: int | None = None) -> None:
    """Refuse a folder that another user could read, write or have put there.

    Raises:
        RuntimeFolderError: The folder is missing, a link, not a folder, not ours, or open to others.
    """
    uid = os.geteuid() if uid is None else uid
    try:
        found = folder.lstat()
    except OSError as error:
        raise RuntimeFolderError(f"runtime folder {folder}: {error.strerror or error}") from error
    problem = _name_problem(found, uid)
    if problem is not None:
        raise RuntimeFolderError(f"runtime folder {folder} {problem}")


def explain_unwritable(path: Path, error: OSError) -> str:
    """Return why a file of the runtime folder cannot be written, and what to do."""
    remedy = {
        errno.ENOSPC: "make room",
        errno.EDQUOT: "make room",
        errno.EISDIR: "remove that folder",
    }.get(error.errno or 0, "make it writable")
    return (
        f"{path} cannot be written: {error.strerror or error}; {remedy}, or set VRAMSCOPE_RUNTIME_DIR to "
        "another folder"
    )


def config_file(environ: Mapping[str, str] | None = None) -> Path:
    """The user's settings file, which need not exist."""
    return _user_folder(environ, "XDG_CONFIG_HOME", ".config") / "config.toml"


def state_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The folder of what outlives a run (error reports, logs), which need not exist."""
    return _user_folder(environ, "XDG_STATE_HOME", ".local/state")


def _choose_runtime_folder(environ: Mapping[str, str], uid: int) -> Path:
    explicit = environ.get("VRAMSCOPE_RUNTIME_DIR")
    if explicit:
        return Path(explicit).expanduser().absolute()
    session = environ.get("XDG_RUNTIME_DIR")
    if session and Path(session).is_absolute() and _is_own_folder(Path(session), uid):
        return Path(session) / "vramscope"
    return _TEMPORARY / f"vramscope-{uid}"


def _is_own_folder(folder: Path, uid: int) -> bool:
    try:
        found = folder.stat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid


def _make_private(folder: Path, uid: int) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        pass
    except OSError as error:
        raise RuntimeFolderError(
            f"cannot create the runtime folder {folder}: {error.strerror or error}; choose another "
            "with VRAMSCOPE_RUNTIME_DIR"
        ) from error
    check_private(folder, uid=uid)


def _name_problem(found: os.stat_result, uid: int) -> str | None:
    """Return what makes a folder unsafe with what to do about it, or None."""
    if stat.S_ISLNK(found.st_mode):
        return "is a symbolic link; expected a folder of your own: remove it or set VRAMSCOPE_RUNTIME_DIR"
    if not stat.S_ISDIR(found.st_mode):
        return "is not a folder: remove it or set VRAMSCOPE_RUNTIME_DIR"
    if found.st_uid != uid:
        return (
            f"belongs to user id {found.st_uid}, not to you ({uid}): "
            "set VRAMSCOPE_RUNTIME_DIR to a folder of your own"
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        return f"is open to other users (mode {mode:04o}, expected 0700): run chmod 700 on it"
    return None


def _user_folder(environ: Mapping[str, str] | None, variable: str, below_home: str) -> Path:
    environ = os.environ if environ is None else environ
    chosen = environ.get(variable)
    if chosen and Path(chosen).is_absolute():
        return Path(chosen) / "vramscope"
    home = environ.get("HOME")
    if home:
        return Path(home) / below_home / "vramscope"
    # A container may run a user id without a home or a passwd entry.
    return locate_runtime_folder(environ) / below_home.rsplit("/", 1)[-1].lstrip(".")


_ENGINE = Path(__file__).resolve().parent

PROBE = _ENGINE / "probe"
# Folder of the `sitecustomize` that a job's interpreters import first.
SHIM = PROBE / "shim"
SIMULATION = _ENGINE / "simulation"


def locate_allocator_model() -> Path:
    """Return the folder of the allocator model, next to the engine wherever that is."""
    return _ENGINE.parent / "analyzers" / "allocator_model"
