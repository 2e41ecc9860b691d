"""What is run inside the process that is attached to: it loads the probe by its path and starts it."""

from pathlib import Path

from .parts import PROBE, SHIM

STARTED = "started"
WITHOUT_TORCH = "without torch"
FAILED = "failed"
"""First words of the report that a payload leaves; after `failed` it says why."""

_BODY = """\
import os
try:
    os.unlink(%(payload)r)
except OSError:
    pass
told = %(started)r
try:
    shim = {"__name__": "vramscope_shim"}
    with open(%(shim)r, encoding="utf-8") as file:
        exec(compile(file.read(), %(shim)r, "exec"), shim)
    probe = shim["start_probe"](%(probe)r, %(runtime_dir)r)
    import sys
    if "torch" not in sys.modules:
        told = %(without_torch)r
    elif not probe.is_running():
        told = " ".join([%(failed)r, *probe.current.failures[-1:]])
except KeyboardInterrupt:
    import _thread
    _thread.interrupt_main()
except BaseException as error:
    told = %(failed)r + " " + type(error).__name__ + ": " + str(error)
try:
    with open(%(report)r, "r+", encoding="utf-8") as file:
        file.write(told)
except OSError:
    pass
"""
"""A Ctrl-C that falls into these milliseconds is meant for the program, and is given to it again.
It may run long after whoever attached has gone, so it takes its own file away, and writes no report that has
been taken away meanwhile."""


def write_payload(runtime_dir: Path, payload: Path, report: Path) -> str:
    """Return the code to run in the process: one expression, which leaves no name behind in it.

    Args:
        runtime_dir: Folder of the hub.
        payload: File that will hold the code.
        report: File, there already, in which it says what became of it.
    """
    body = _BODY % {
        "shim": str(SHIM / "vramscope_shim.py"),
        "probe": str(PROBE),
        "runtime_dir": str(runtime_dir),
        "payload": str(payload),
        "report": str(report),
        "started": STARTED,
        "without_torch": WITHOUT_TORCH,
        "failed": FAILED,
    }
    return f'exec({body!r}, {{"__name__": "vramscope_attach"}})\n'
