"""Attach to a process: refuse what cannot be, hand the probe over, believe only what the hub hears."""

import time
from pathlib import Path
from typing import NamedTuple

from ..bus.client import Client, connect
from ..errors import AttachRefusedError, ProbeSilentError, UsageError
from ..launch.hub import find_or_start_hub
from ..launch.parts import PROBE
from ..model import RankSample
from . import gdb, remote_exec
from .handover import Handover, sweep
from .interpreter import Interpreter, find_interpreter
from .payload import FAILED, STARTED, WITHOUT_TORCH
from .permission import check_permitted, check_untraced
from .process import PROC, ProcessStatus, read_status

REPORTS_WITHIN_S = 10.0
HUB_ANSWERS_WITHIN_S = 10.0
_POLL_S = 0.1


class Attached(NamedTuple):
    """A process that reports to the hub."""

    rank: RankSample
    was_reporting: bool = False
    """It did so before it was attached to."""
    taken_s: float = 0.0
    """From the first look at the process to its first report."""
    stopped_s: float | None = None
    """For how long a debugger held it, at most; None where none was needed."""


def attach(pid: int, runtime_dir: Path, *, timeout_s: float = REPORTS_WITHIN_S) -> Attached:
    """Bring the probe into a process, and return once the hub has heard from it.

    Args:
        pid: The process.
        runtime_dir: Folder of the hub; where none serves it, one is started.
        timeout_s: How long to wait for the first report, once the probe is handed over.

    Raises:
        UsageError: There is no such process, it is not Python, or it is stopped.
        AttachRefusedError: It must not be attached to; the text says what would permit it.
        DebuggerMissingError: It needs gdb, which is not installed.
        HubUnreachableError: There is no hub, and none can be started.
        ProbeSilentError: The probe was handed over and has not reported.
    """
    begun_s = time.monotonic()
    status = read_status(pid)
    check_permitted(status)
    interpreter = _examine(status)
    find_or_start_hub(runtime_dir)
    with connect(runtime_dir, timeout_s=HUB_ANSWERS_WITHIN_S) as client:
        rank = find_rank(client, pid)
        if rank is not None:
            return Attached(rank, was_reporting=True)
        if interpreter.version < remote_exec.SINCE:
            check_untraced(status)
        sweep(runtime_dir)
        handover, is_pending = Handover(runtime_dir, pid), False
        try:
            handover.write()
            stopped_s = _inject(interpreter, handover.payload)
            is_pending = stopped_s is None  # gdb has copied the text, sys.remote_exec tells only where it is
            rank = _wait_for_rank(client, status, handover, timeout_s)
            is_pending = False
        finally:
            handover.close(is_pending=is_pending)
    return Attached(rank, taken_s=time.monotonic() - begun_s, stopped_s=stopped_s)


def find_rank(client: Client, pid: int) -> RankSample | None:
    """Return the rank of a process in the newest sample of a hub; None where it does not report."""
    sample = client.snapshot(timeout_s=0.0).sample
    ranks = () if sample is None else sample.ranks
    return next((rank for rank in ranks if rank.pid == pid and rank.state != "ended"), None)


def _examine(status: ProcessStatus) -> Interpreter:
    """Return the Python of a process, once it is sure that it can reach the probe's files.

    Raises:
        UsageError: There is none.
        AttachRefusedError: The process sees other files than we do.
    """
    try:
        interpreter = find_interpreter(status)
        root = PROC / str(status.pid) / "root"
        sees_probe = (root / str(PROBE).lstrip("/") / "__init__.py").exists()
    except OSError as error:
        raise AttachRefusedError(
            f"process {status.pid} ({status.name}) cannot be looked into: {error.strerror or error}"
        ) from error
    if not sees_probe:
        raise AttachRefusedError(
            f"process {status.pid} ({status.name}) runs where {PROBE} is not seen, in a container or chroot: "
            "run vramscope inside it"
        )
    return interpreter


def _inject(interpreter: Interpreter, payload: Path) -> float | None:
    """Hand the payload over by what the version of the interpreter allows."""
    if interpreter.version < remote_exec.SINCE:
        return gdb.inject(interpreter, payload)
    remote_exec.inject(interpreter.pid, payload)
    return None


def _wait_for_rank(client: Client, status: ProcessStatus, handover: Handover, timeout_s: float) -> RankSample:
    """Return the rank once the hub publishes it.

    Raises:
        ProbeSilentError: The process ended, could not start the probe, or is not heard of in time.
    """
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


def _explain_silence(report: str, timeout_s: float) -> str:
    """Say why a process that has the probe was not heard of."""
    if report.startswith(FAILED):
        return f"could not start the probe: {report.removeprefix(FAILED).strip()[:300]}"
    if report == WITHOUT_TORCH:
        return "has the probe and has not imported torch; it reports once it has"
    if report == STARTED:
        return f"has started the probe, and the agent has not heard of it within {timeout_s:g} s"
    return (
        f"has been handed the probe and has run no Python in its main thread for {timeout_s:g} s; "
        "it reports once that returns from where it waits"
    )
