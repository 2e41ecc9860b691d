"""Attach to a process: refuse what is impossible, pass the probe over, believe only what the hub hears."""

import os
import pwd
import subprocess
import time
from pathlib import Path
from typing import Literal, NamedTuple

from ..errors import (
    AttachRefusedError,
    DebuggerMissingError,
    ProbeSilentError,
    UnknownInterpreterError,
    UsageError,
)
from ..model import RankSample
from ..paths import PROBE
from ..sources.processes import PROC, ProcessStatus, list_mapped_files, read_status, read_variables
from ..viewer.client import Client, connect
from . import gdb, injector
from .background import find_or_start_hub
from .handover import (
    FAILED,
    IMPORTING,
    STARTED,
    WITHOUT_TORCH,
    Handover,
    remove_left_payloads,
    write_pointer,
)
from .injector import Injection
from .interpreter import Interpreter, find_interpreter, path_seen_from

SINCE = (3, 14)
ANSWERS_WITHIN_S = 20.0
_SWITCH = "PYTHON_DISABLE_REMOTE_DEBUG"
_CODE = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"


def find_switch(pid: int, proc: Path = PROC) -> str | None:
    """Return by what a process was set to refuse `sys.remote_exec`, or None."""
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


def execute_remotely(pid: int, payload: Path, proc: Path = PROC) -> None:
    """Pass a payload to a process through its own interpreter, as both must be of the same version.

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
        raise AttachRefusedError(f"cannot ask the Python of process {pid}: {error}") from error
    if done.returncode != 0:
        errors = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise AttachRefusedError(f"sys.remote_exec could not reach process {pid}: {errors[-1]}")


def _locate_interpreter(pid: int, proc: Path) -> str:
    """Return the program of a process by its own path, from which it finds its library, or by /proc."""
    link = proc / str(pid) / "exe"
    path = link.readlink()
    return str(path) if path.exists() else str(link)


REPORTS_WITHIN_S = 10.0
HUB_ANSWERS_WITHIN_S = 10.0
_POLL_S = 0.1
# From the first report of a probe to the end of the code that started it.
_ENDS_WITHIN_S = 2.0
_LOOKS_EVERY_S = 0.005


# What ran the payload: an entry in the table of pending calls, `sys.remote_exec`, or a debugger.
Way = Literal["injector", "remote_exec", "gdb"]


class Attached(NamedTuple):
    rank: RankSample
    # Before it was attached to.
    was_reporting: bool = False
    # From the first check of the process to its first report.
    taken_s: float = 0.0
    # How long its threads were stopped, at most; None if that was not necessary.
    stopped_s: float | None = None
    way: Way | None = None


def attach(pid: int, runtime_dir: Path, *, timeout_s: float = REPORTS_WITHIN_S) -> Attached:
    """Put the probe into a process, and return once the hub has heard from it.

    Args:
        runtime_dir: Folder of the hub; if none serves it, one is started.
        timeout_s: How long to wait for the first report, after the probe was passed over.

    Raises:
        UsageError: There is no such process, it is not Python, or it is stopped.
        AttachRefusedError: It must not be attached to; the text says what would permit it.
        DebuggerMissingError: It needs gdb, which is not installed.
        HubUnreachableError: There is no hub, and none can be started.
        ProbeSilentError: The probe was passed over and has not reported.
    """
    begun_s = time.monotonic()
    interpreter = check_attachable(pid)
    status = read_status(pid)
    find_or_start_hub(runtime_dir)
    with connect(runtime_dir, timeout_s=HUB_ANSWERS_WITHIN_S) as client:
        rank = find_rank(client, pid)
        if rank is not None:
            return Attached(rank, was_reporting=True)
        _check_sees_folder(status, runtime_dir)
        if interpreter.version < SINCE:
            check_untraced(status)
        remove_left_payloads(runtime_dir)
        handover = Handover(runtime_dir, pid)
        entry = None
        try:
            handover.write()
            entry = _pass_over(interpreter, handover.payload)
            rank = _wait_for_rank(client, status, handover, timeout_s)
            entry = entry._replace(is_pending=False)
            _await_report(handover)
        finally:
            if entry is not None and entry.injection is not None and handover.read_report():
                injector.erase(pid, entry.injection)
            handover.close(is_pending=entry is not None and entry.is_pending)
    taken_s = time.monotonic() - begun_s
    return Attached(rank, taken_s=taken_s, stopped_s=entry.stopped_s, way=entry.way)


def check_attachable(pid: int) -> Interpreter:
    """Return the Python of a process that this user may attach to; nothing is done to it.

    Raises:
        UsageError: There is no such process, it is not Python, or it is stopped.
        AttachRefusedError: It must not be attached to; the text says what would permit it.
    """
    status = read_status(pid)
    check_permitted(status)
    return _examine(status)


def has_torch(pid: int) -> bool:
    """Return whether a process of this user has loaded PyTorch or JAX."""
    try:
        paths = [Path(file.path) for file in list_mapped_files(pid)]
        return any(it.name.startswith("libtorch") or it.parent.name == "jaxlib" for it in paths)
    except OSError:
        return False


def find_rank(client: Client, pid: int) -> RankSample | None:
    """Return the rank of a process in the newest sample of a hub; None if it does not report."""
    sample = client.snapshot(timeout_s=0.0).sample
    ranks = () if sample is None else sample.ranks
    return next((rank for rank in ranks if rank.pid == pid and rank.state != "ended"), None)


def _examine(status: ProcessStatus) -> Interpreter:
    """Return the Python of a process, after checking that it can read the probe's files."""
    try:
        interpreter = find_interpreter(status)
    except OSError as error:
        raise AttachRefusedError(
            f"process {status.pid} ({status.name}) cannot be inspected: {error.strerror or error}"
        ) from error
    if not path_seen_from(status.pid, str(PROBE / "__init__.py")).exists():
        raise AttachRefusedError(_explain_unseen(status, PROBE))
    return interpreter


def _check_sees_folder(status: ProcessStatus, folder: Path) -> None:
    """Refuse a process that has another folder, or none, where the agent has its own."""
    try:
        is_seen = folder.samefile(path_seen_from(status.pid, str(folder)))
    except OSError:
        is_seen = False
    if not is_seen:
        raise AttachRefusedError(_explain_unseen(status, folder))


def _explain_unseen(status: ProcessStatus, path: Path) -> str:
    return (
        f"process {status.pid} ({status.name}) runs in a container or chroot where {path} is not "
        "visible: run vramscope inside it"
    )


class _Entry(NamedTuple):
    """A payload that was passed over."""

    way: Way
    stopped_s: float | None = None
    # Whether the process may open the file yet: gdb has copied the text, the others say only where it is.
    is_pending: bool = False
    injection: Injection | None = None


def _pass_over(interpreter: Interpreter, payload: Path) -> _Entry:
    """Pass the payload over by what the version of the interpreter allows."""
    if interpreter.version >= SINCE:
        execute_remotely(interpreter.pid, payload)
        return _Entry("remote_exec", is_pending=True)
    try:
        injection = injector.enter(interpreter, write_pointer(payload))
    except UnknownInterpreterError as unknown:
        # gdb calls functions by their addresses, which mean something else once another program was started.
        if _examine(read_status(interpreter.pid)) != interpreter:
            raise AttachRefusedError(
                f"process {interpreter.pid} has started another program meanwhile; try again"
            ) from unknown
        try:
            return _Entry("gdb", gdb.inject(interpreter, payload))
        except DebuggerMissingError as error:
            raise DebuggerMissingError(
                f"the Python of process {interpreter.pid} is unknown to vramscope ({unknown}): {error}"
            ) from error
    return _Entry("injector", injection.stopped_s, is_pending=True, injection=injection)


def _wait_for_rank(client: Client, status: ProcessStatus, handover: Handover, timeout_s: float) -> RankSample:
    deadline_s = time.monotonic() + timeout_s
    who = f"process {status.pid} ({status.name})"
    while time.monotonic() < deadline_s:
        client.snapshot(timeout_s=_POLL_S)
        rank = find_rank(client, status.pid)
        if rank is not None:
            return rank
        if handover.read_report().startswith((FAILED, WITHOUT_TORCH)):
            break
        try:
            read_status(status.pid)
        except UsageError:
            raise ProbeSilentError(f"{who} ended before the probe could report") from None
    raise ProbeSilentError(f"{who} {_explain_silence(handover.read_report(), timeout_s)}")


def _await_report(handover: Handover) -> None:
    """Wait until the payload has ended, which may be a little after its first report to the hub.

    Only then its text is erased: without that, many attachments would fill the room that texts have.
    """
    deadline_s = time.monotonic() + _ENDS_WITHIN_S
    while not handover.read_report() and time.monotonic() < deadline_s:
        time.sleep(_LOOKS_EVERY_S)


def _explain_silence(report: str, timeout_s: float) -> str:
    """Return why a process that has the probe did not report."""
    if report.startswith(FAILED):
        return (
            f"could not start the probe: {report.removeprefix(FAILED).strip()[:300] or 'no reason is known'}"
        )
    if report == WITHOUT_TORCH:
        return "has the probe but has not imported torch yet; it will report once it does"
    if report == IMPORTING:
        return "has the probe but is still importing torch; it will report once it has"
    if report == STARTED:
        return f"has started the probe, but the agent received nothing within {timeout_s:g} s"
    return (
        f"has been sent the probe, but its main thread has run no Python for {timeout_s:g} s; it will "
        "report once that thread continues"
    )


INSTEAD = "or start the job with `vramscope run`, which needs no permission"
# CAP_SYS_PTRACE in capabilities(7).
_CAN_TRACE_BIT = 19


def check_permitted(status: ProcessStatus, proc: Path = PROC) -> None:
    """Refuse a process of another user, a stopped one, and one that the kernel protects.

    Raises:
        UsageError: It is stopped, so that nothing would happen in it.
        AttachRefusedError: It must not be attached to; the text says what would permit it.
    """
    who = f"process {status.pid} ({status.name})"
    if status.uid != os.geteuid():
        user = _name_user(status.uid)
        raise AttachRefusedError(
            f"{who} belongs to {user}, so its reports would not reach your agent: run `vramscope "
            f"attach {status.pid}` as {user}"
        )
    if status.state == "T":
        raise UsageError(f"{who} is stopped: continue it first, with `fg` or `kill -CONT {status.pid}`")
    try:
        # The kernel asks here what it would ask of a debugger (PTRACE_MODE_ATTACH), and nothing is touched.
        os.close(os.open(proc / str(status.pid) / "mem", os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        raise AttachRefusedError(f"{who} must not be traced: {_explain(status.pid, proc)}") from None
    except OSError as error:
        raise UsageError(f"{who} cannot be inspected: {error.strerror or error}") from None
    _check_unfiltered(status, proc)


def _check_unfiltered(status: ProcessStatus, proc: Path) -> None:
    """Refuse a process with a filter of system calls that this process is not under too (seccomp(2)).

    Such a filter may end the process at the first file or socket that the probe opens.
    """
    mode, count = _read_filters(status.pid, proc)
    own_mode, own_count = _read_filters(os.getpid(), proc)
    if mode == 0 or (mode == own_mode and count <= own_count):
        return
    raise AttachRefusedError(
        f"process {status.pid} ({status.name}) restricts its own system calls (seccomp), so that loading the "
        "probe may end it: start it without that filter"
    )


def _read_filters(pid: int, proc: Path) -> tuple[int, int]:
    """Return the mode of seccomp and the number of filters, 0 where the kernel does not say."""
    try:
        lines = (proc / str(pid) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return 0, 0
    fields = dict(line.split(":", 1) for line in lines if line.startswith("Seccomp"))
    return int(fields.get("Seccomp", 0)), int(fields.get("Seccomp_filters", 0))


def check_untraced(status: ProcessStatus, proc: Path = PROC) -> None:
    """Refuse a process that a debugger or tracer is attached to: there can be only one.

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
        f"process {status.pid} ({status.name}) is being traced by process {status.tracer_pid} "
        f"({name}), and only one process can trace it: end that one first"
    )


def _explain(pid: int, proc: Path) -> str:
    """Return which rule of ptrace(2) forbids it, and what would permit it."""
    if (proc / str(pid)).stat().st_uid != os.geteuid():
        return (
            "it runs with other privileges, or forbids it (PR_SET_DUMPABLE); CAP_SYS_PTRACE would "
            f"permit it, {INSTEAD}"
        )
    rule = explain_scope(proc)
    if rule is not None:
        return rule
    if can_trace(proc):
        return f"a security module or the container forbids it; {INSTEAD[3:]}"
    return (
        "a security module, the container or the process's privileges forbid it; CAP_SYS_PTRACE would "
        f"permit it (for a container: --cap-add=SYS_PTRACE), {INSTEAD}"
    )


def explain_scope(proc: Path = PROC) -> str | None:
    """Return the setting of this system that forbids to trace one's own processes; None if it does not."""
    scope = _read_number(proc / "sys/kernel/yama/ptrace_scope")
    if scope == 1:
        return (
            "this system permits it only to parents of the process (kernel.yama.ptrace_scope is 1); "
            f"`sudo sysctl kernel.yama.ptrace_scope=0` would permit it, {INSTEAD}"
        )
    if scope == 2:
        return (
            "this system permits it only to administrators (kernel.yama.ptrace_scope is 2); "
            f"CAP_SYS_PTRACE would permit it, {INSTEAD}"
        )
    if scope == 3:
        return f"this system forbids it until it is rebooted (kernel.yama.ptrace_scope is 3); {INSTEAD[3:]}"
    return None


def can_trace(proc: Path = PROC) -> bool:
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
