"""Attach by `sys.remote_exec` of Python 3.14 (PEP 768): no debugger, and nothing is stopped."""

import os
import subprocess
from pathlib import Path

from ..errors import AttachRefusedError
from ..sources.process_status import PROC, read_variables

SINCE = (3, 14)
ANSWERS_WITHIN_S = 20.0
_SWITCH = "PYTHON_DISABLE_REMOTE_DEBUG"
_CODE = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"


def find_switch(pid: int, proc: Path = PROC) -> str | None:
    """Return by what a process was told to refuse `sys.remote_exec`, or None."""
    if read_variables(pid, proc).get(_SWITCH):
        return f"{_SWITCH} in its environment"
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    is_off = any(
        word.replace(b"_", b"-").removeprefix(b"-X").strip() == b"disable-remote-debug" for word in words
    )
    return "-X disable-remote-debug on its command line" if is_off else None


def inject(pid: int, payload: Path, proc: Path = PROC) -> None:
    """Hand a payload to a process through its own interpreter, as both must be of the same version.

    Args:
        pid: The process.
        payload: File with the code.
        proc: Where the kernel tells of processes.

    Raises:
        AttachRefusedError: It was refused; the text says by what.
    """
    switch = find_switch(pid, proc)
    if switch is not None:
        raise AttachRefusedError(
            f"process {pid} was started with {switch}, which forbids attaching: "
            "start it without, or with `vramscope run`"
        )
    environment = {name: value for name, value in os.environ.items() if name != _SWITCH}
    try:
        done = subprocess.run(
            [_locate_interpreter(pid, proc), "-I", "-S", "-c", _CODE, str(pid), str(payload)],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=ANSWERS_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AttachRefusedError(f"the Python of process {pid} could not be asked: {error}") from error
    if done.returncode != 0:
        told = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise AttachRefusedError(f"sys.remote_exec could not reach process {pid}: {told[-1]}")


def _locate_interpreter(pid: int, proc: Path) -> str:
    """Return the program of a process by its own path, from which it finds its library, or by /proc."""
    link = proc / str(pid) / "exe"
    path = link.readlink()
    return str(path) if path.exists() else str(link)
