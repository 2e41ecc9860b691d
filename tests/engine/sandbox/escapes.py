"""Ways out of a process that somebody runs who came in by a file: each is tried for real."""

import ctypes
import fcntl
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from errno import EACCES, errorcode
from pathlib import Path
from typing import Any

from vramscope.engine.errors import OutputFileError, VramscopeError
from vramscope.engine.files.base.output_file import write_new, write_whole
from vramscope.engine.files.base.output_route import make_folder
from vramscope.engine.settings import save_settings

ESCAPED = "escaped"
_TIOCSTI, _PTRACE_SEIZE, _CLONE_NEWUSER = 0x5412, 0x4206, 0x10000000
# `process_vm_readv`, `io_uring_setup` and `shmget` by machine.
_CALLS = {"x86_64": (310, 425, 29), "aarch64": (270, 425, 194)}.get(os.uname().machine, (0, 0, 0))


def _call(number: int, *arguments: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(number, *(ctypes.c_long(it) for it in arguments)) < 0:
        raise OSError(ctypes.get_errno(), "refused")


def _trace_parent() -> None:
    library = ctypes.CDLL(None, use_errno=True)
    library.ptrace.argtypes = [ctypes.c_long] * 4
    if library.ptrace(_PTRACE_SEIZE, os.getppid(), 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "refused")
    os._exit(0)  # so that the parent is let go


def _in_child(action: Callable[[], object]) -> None:
    """Do it in a child, which has the same rights, and raise here what happened there."""
    child = os.fork()
    if child == 0:
        try:
            action()
        except OSError as error:
            os._exit(error.errno or 255)
        os._exit(0)
    number = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if number:
        raise OSError(number, "refused")


def _send_datagram(folder: Path) -> None:
    pair, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    pair.sendto(b"out", str(folder / "post"))


def _ask_helper(target: Path) -> None:
    """Ask the process that puts outputs in place for another one; where there is none, this one does it."""
    try:
        write_whole(b"ours", target)
    except OutputFileError as error:
        raise error.__cause__ or error from None


def _save_command() -> None:
    """Ask the process that saves how a screen looks to save what every agent of later would run."""
    try:
        save_settings({"alerts.command": "echo out"})
    except VramscopeError as error:
        raise PermissionError(EACCES, str(error)) from None


def _find_drawing_settings() -> Path:
    """Return where Matplotlib looks for settings, which may name code, in processes of later."""
    return Path.home() / ".cache" / "matplotlib"


def list_escapes(secret: Path, folder: Path, home: Path) -> dict[str, Callable[[], Any]]:
    """Return what to try.

    Args:
        secret: A file that is none of the process's.
        folder: One with files `removable` and `movable` and a datagram socket `post`.
        home: The folder of the output, with a file `profile` and a folder `.ssh`.
    """
    parent = os.getppid()
    profile = home / "profile"
    keys = home / ".ssh" / "authorized_keys"
    return {
        "open another file": secret.read_bytes,
        "list a folder": lambda: os.listdir(folder),  # noqa: PTH208 - as it comes
        "write a file": lambda: (folder / "written").write_bytes(b""),
        "replace a file": lambda: (folder / "movable").replace(secret),
        "remove a file": (folder / "removable").unlink,
        "read a neighbour of the output": profile.read_bytes,
        "list the folder of the output": lambda: os.listdir(home),  # noqa: PTH208 - as it comes
        "write into a neighbour of the output": lambda: profile.open("r+b").write(b"ours"),
        "make a neighbour of the output": lambda: (home / "made").write_bytes(b""),
        "make a file below the folder of the output": lambda: keys.write_bytes(b""),
        "make a folder next to the output": (home / "folder").mkdir,
        "link a neighbour of the output": lambda: (folder / "linked").hardlink_to(profile),
        "remove a neighbour of the output": (home / "other").unlink,
        "ask for a neighbour of the output": lambda: _ask_helper(profile),
        "ask for a file below the folder of the output": lambda: _ask_helper(keys),
        "ask for a new file next to the output": lambda: write_new(b"", home / "asked"),
        "ask for a folder next to the output": lambda: make_folder(home / ".config"),
        "ask for a hidden file": lambda: _ask_helper(home / ".asked.svg"),
        "save a command among the settings": _save_command,
        "remove an empty folder of temporary files": (folder.parent / "empty").rmdir,
        "change Matplotlib's settings": (_find_drawing_settings() / "matplotlibrc").touch,
        "make a socket": lambda: socket.socket(socket.AF_INET).close(),
        "make a socket of this machine": lambda: socket.socket(socket.AF_UNIX).close(),
        "send a datagram": lambda: _send_datagram(folder),
        "run a program": lambda: subprocess.run(["/bin/true"], check=True),
        "signal another process": lambda: os.kill(parent, 0),
        "trace another process": lambda: _in_child(_trace_parent),
        "read another process's variables": Path(f"/proc/{parent}/environ").read_bytes,
        "read another process's memory": lambda: _call(_CALLS[0], parent, 0, 0, 0, 0, 0),
        "limit another process": lambda: resource.prlimit(parent, resource.RLIMIT_CORE, (0, 0)),
        "ask the kernel by a ring": lambda: _call(_CALLS[1], 0, 0),
        "share memory": lambda: _call(_CALLS[2], 0x5EC2E7, 4096, 0o600),
        "become root in a namespace": lambda: _in_child(_enter_namespace),
        "type into the terminal": lambda: fcntl.ioctl(0, _TIOCSTI, b"x"),
    }


def _enter_namespace() -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(_CLONE_NEWUSER) < 0:
        raise OSError(ctypes.get_errno(), "refused")


def try_all(secret: str, folder: str, home: str) -> dict[str, str]:
    """Try every way, and write on standard error as JSON what came of each: `escaped`, or a name of errno."""
    found = {}
    for name, escape in list_escapes(Path(secret), Path(folder), Path(home)).items():
        try:
            escape()
            found[name] = ESCAPED
        except OSError as error:
            found[name] = errorcode.get(error.errno or 0, str(error))
    os.write(2, json.dumps(found).encode() + b"\n")
    return found


class Hole:
    """Pickled, it is what a hole in the unpickler would let through."""

    def __init__(self, *places: Path) -> None:
        self._places = tuple(map(str, places))

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, ...]]:
        return try_all, self._places


if __name__ == "__main__":
    try_all(*sys.argv[1:])
