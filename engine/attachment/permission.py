"""Whether the kernel lets this process put anything into another one, and what would permit it."""

import os
import pwd
from pathlib import Path

from ..errors import AttachRefusedError, UsageError
from .process import PROC, ProcessStatus

INSTEAD = "or start the job with `vramscope run`, which needs no permission"
_CAN_TRACE_BIT = 19
"""CAP_SYS_PTRACE in capabilities(7)."""


def check_permitted(status: ProcessStatus, proc: Path = PROC) -> None:
    """Refuse a process that is another user's, that is stopped, or that the kernel protects.

    Raises:
        UsageError: It is stopped, so that nothing would happen in it.
        AttachRefusedError: It must not be attached to; the text says what would permit it.
    """
    who = f"process {status.pid} ({status.name})"
    if status.uid != os.geteuid():
        user = _name_user(status.uid)
        raise AttachRefusedError(
            f"{who} belongs to {user}, and what it reports would not reach your agent: "
            f"run `vramscope attach {status.pid}` as {user}"
        )
    if status.state == "T":
        raise UsageError(f"{who} is stopped: let it go on first, with `fg` or `kill -CONT {status.pid}`")
    try:
        # The kernel asks here what it would ask of a debugger (PTRACE_MODE_ATTACH), and nothing is touched.
        os.close(os.open(proc / str(status.pid) / "mem", os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        raise AttachRefusedError(f"{who} must not be traced: {_explain(status.pid, proc)}") from None
    except OSError as error:
        raise UsageError(f"{who} cannot be looked into: {error.strerror or error}") from None


def check_untraced(status: ProcessStatus, proc: Path = PROC) -> None:
    """Refuse a process that a debugger or tracer holds: there can be only one.

    Raises:
        AttachRefusedError: It is being traced; the text names the tracer.
    """
    if status.tracer_pid == 0:
        return
    try:
        name = (proc / str(status.tracer_pid) / "comm").read_text().strip()
    except OSError:
        name = "unknown"
    raise AttachRefusedError(
        f"process {status.pid} ({status.name}) is being traced by process {status.tracer_pid} ({name}), and "
        "the kernel lets only one trace it: end that one first"
    )


def _explain(pid: int, proc: Path) -> str:
    """Say which rule of ptrace(2) forbids it, and what would permit it."""
    scope = _read_number(proc / "sys/kernel/yama/ptrace_scope")
    if (proc / str(pid)).stat().st_uid != os.geteuid():
        return (
            "it runs with rights of its own, or asked for this (PR_SET_DUMPABLE); "
            f"CAP_SYS_PTRACE would permit it, {INSTEAD}"
        )
    if scope == 1:
        return (
            "this system lets only the parents of a process do so (kernel.yama.ptrace_scope is 1); "
            f"`sudo sysctl kernel.yama.ptrace_scope=0` would permit it, {INSTEAD}"
        )
    if scope == 2:
        return (
            "this system lets only administrators do so (kernel.yama.ptrace_scope is 2); "
            f"CAP_SYS_PTRACE would permit it, {INSTEAD}"
        )
    if scope == 3:
        return (
            f"this system forbids it until it is booted anew (kernel.yama.ptrace_scope is 3); {INSTEAD[3:]}"
        )
    if _can_trace(proc):
        return f"a security module or the container forbids it; {INSTEAD[3:]}"
    return (
        "a security module, the container or its own rights forbid it; CAP_SYS_PTRACE would permit it "
        f"(for a container: --cap-add=SYS_PTRACE), {INSTEAD}"
    )


def _can_trace(proc: Path) -> bool:
    """Return whether this process has CAP_SYS_PTRACE."""
    try:
        lines = (proc / "self/status").read_text().splitlines()
    except OSError:
        return False
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> _CAN_TRACE_BIT & 1)


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _name_user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user id {uid}"
