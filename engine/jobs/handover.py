"""The probe's files, passed to a process that cannot read ours."""

import os
import re
from pathlib import Path

from ..paths import PROBE, SHIM
from ..sources.processes import PROC, read_inner_pid, read_start_ticks

STARTED = "started"
WITHOUT_TORCH = "without torch"
IMPORTING = "importing torch"
# First words of the report that a payload leaves; `failed` is followed by the reason.
FAILED = "failed"

# By then the main thread has left the call in which a signal reached it, and runs the program again.
_GIVEN_AGAIN_AFTER_S = 0.2

_BODY = """\
import os
try:
    os.unlink(%(payload)r)
except OSError:
    pass
outcome = %(started)r
try:
    shim = {"__name__": "vramscope_shim"}
    with open(%(shim)r, encoding="utf-8") as file:
        exec(compile(file.read(), %(shim)r, "exec"), shim)
    probe = shim["start_probe"](%(probe)r, %(runtime_dir)r)
    import sys
    if probe.is_running():
        pass
    elif probe.is_importing():
        outcome = %(importing)r
    elif "torch" not in sys.modules:
        outcome = %(without_torch)r
    else:
        outcome = " ".join([%(failed)r, *probe.current.failures[-1:]])
except BaseException as error:
    outcome = %(failed)r + " " + type(error).__name__ + ": " + str(error)
    import _thread, signal, time
    def code_of(handler):
        return getattr(getattr(handler, "__func__", handler), "__code__", None)
    caught = signal.SIGINT if isinstance(error, KeyboardInterrupt) else None
    trace = error.__traceback__
    while trace is not None:
        code, values = trace.tb_frame.f_code, trace.tb_frame.f_locals
        numbers = [it for it in signal.valid_signals() if code_of(signal.getsignal(it)) is code]
        if numbers:
            passed = [values.get(name) for name in code.co_varnames[:2]]
            caught = next((it for it in numbers if it in passed), numbers[0])
        trace = trace.tb_next
    def give_again(number, wait_s):
        time.sleep(wait_s)
        signal.raise_signal(number)
    if caught is not None:
        _thread.start_new_thread(give_again, (caught, %(later_s)r))
try:
    with open(%(report)r, "r+", encoding="utf-8") as file:
        file.write(outcome)
except OSError:
    pass
"""
"""A Ctrl-C, or another signal whose handler raises, that falls into these milliseconds is meant for the
program. It is given to it again, by a thread and a little later: raised in here, it would reach nobody, and
the program would get a SystemError from the call that failed.

It may run long after whoever attached has gone, so it takes its own file away, and writes no report that has
been taken away meanwhile."""


def write_payload(runtime_dir: Path, payload: Path, report: Path, inner_pid: int) -> str:
    """Return the code to run in the process: one expression, which leaves no name behind in it.

    Args:
        inner_pid: The number by which the process knows itself. A child that it forks has the pending call
            too, and must leave the payload alone.
    """
    body = _BODY % {
        "shim": str(SHIM / "vramscope_shim.py"),
        "probe": str(PROBE),
        "runtime_dir": str(runtime_dir),
        "payload": str(payload),
        "report": str(report),
        "started": STARTED,
        "without_torch": WITHOUT_TORCH,
        "importing": IMPORTING,
        "failed": FAILED,
        "later_s": _GIVEN_AGAIN_AFTER_S,
    }
    run = f'exec({body!r}, {{"__name__": "vramscope_attach"}})'
    return f'__import__("os").getpid() == {inner_pid} and {run}\n'


def write_pointer(payload: Path) -> bytes:
    """Return a short text that runs a payload from its file, raises nothing and leaves no name behind.

    It says nothing if the file is gone: that of an attempt that has been given up.
    """
    name = ascii(os.fsencode(payload))
    return (
        "try:(lambda b,f:b.exec((f.read(),f.close())[0],{}))"
        f"(__import__('builtins'),__import__('io').open({name},'rb'))\n"
        "except KeyboardInterrupt:(lambda t,s:t.start_new_thread(lambda:"
        f"(s({_GIVEN_AGAIN_AFTER_S}),t.interrupt_main()),()))"
        "(__import__('_thread'),__import__('time').sleep)\n"
        "except BaseException:0\n"
    ).encode("ascii")


_NAME = re.compile(r"attach-(?P<attacher>\d+)-(?P<pid>\d+)-(?P<started>\d+)\.(?P<kind>py|txt|gdb)")


class Handover:
    """One payload for one process, in the runtime folder."""

    def __init__(self, folder: Path, pid: int) -> None:
        self._pid = pid
        self._started = read_start_ticks(pid)
        self._folder = folder
        self.payload = folder / f"attach-{os.getpid()}-{pid}-{self._started or 0}.py"
        self._report = self.payload.with_suffix(".txt")

    def write(self) -> None:
        """Write the payload, and an empty report: the payload does not create one that was removed."""
        self._report.touch()
        code = write_payload(self._folder, self.payload, self._report, read_inner_pid(self._pid))
        self.payload.write_text(code, encoding="utf-8")

    def read_report(self) -> str:
        """Return the report, which may come in pieces; "" if the payload has not run."""
        try:
            return self._report.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def close(self, *, is_pending: bool) -> None:
        """Remove the files; they are no longer waited for.

        Args:
            is_pending: The process may open the payload yet. It then stays until it runs, and removes itself.
        """
        lives = self._started is not None and read_start_ticks(self._pid) == self._started
        if not (is_pending and lives and not self.read_report()):
            self.payload.unlink(missing_ok=True)
        self._report.unlink(missing_ok=True)


def remove_left_payloads(folder: Path, proc: Path = PROC) -> None:
    """Remove files of earlier attempts: payloads of processes that are gone, unawaited reports."""
    for path in folder.glob("attach-*"):
        found = _NAME.fullmatch(path.name)
        if found is None:
            continue
        is_awaited = (proc / found["attacher"]).exists()
        may_run = read_start_ticks(int(found["pid"]), proc) == int(found["started"])
        if not (is_awaited or (found["kind"] == "py" and may_run)):
            path.unlink(missing_ok=True)
