"""What goes wrong: everything on stderr, and the map from errors to exit codes."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from vramscope.engine.errors import VramscopeError
from vramscope.engine.paths import state_folder
from vramscope.engine.text import make_printable, make_printable_lines

EXIT_INTERNAL = 1
EXIT_FINDINGS = 3
EXIT_INTERRUPTED = 130
REPORTS_KEPT = 10
"""Error reports that are kept; older ones are removed."""


def run_guarded(action: Callable[[], int], *, failure_code: int | None = None) -> int:
    """Run a verb and return its exit code; an error becomes one line on stderr.

    Args:
        action: What to do; returns the exit code.
        failure_code: Exit code of every error; None for the code of its class.
    """
    try:
        try:
            code = action()
        except SystemExit as error:  # --help, --version
            code = error.code if isinstance(error.code, int) else 0
        sys.stdout.flush()
    except VramscopeError as error:
        complain(str(error))
        return error.exit_code if failure_code is None else failure_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _abandon_stdout()
        return 0  # whoever read the output has had enough of it
    except Exception as error:  # noqa: BLE001 - the last line of defence, so that no user reads a traceback
        _report_internal(error)
        return EXIT_INTERNAL if failure_code is None else failure_code
    return code


def complain(sentence: str, *, program: str = "vramscope") -> None:
    """Say on stderr what is wrong, in one line that begins with the name of the program."""
    # A pipe that was closed on stderr leaves nobody to tell.
    try:
        print(f"{program}: {make_printable(sentence)}", file=sys.stderr, flush=True)
    except OSError:
        return


def leave_now(code: int) -> NoReturn:
    """End the process at once, with what was printed; threads that hang in a driver cannot hold it."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _abandon_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush finds no broken pipe."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())


def _report_internal(error: Exception) -> None:
    kind = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, OSError) and error.filename is None and not os.environ.get("VRAMSCOPE_DEBUG"):
        complain(f"cannot write the output: {error.strerror or error}")
        _abandon_stdout()
        return
    import traceback

    text = "".join(traceback.format_exception(error))
    if os.environ.get("VRAMSCOPE_DEBUG"):
        print(text, end="", file=sys.stderr, flush=True)
        return
    path = _write_report(text)
    where = "set VRAMSCOPE_DEBUG=1 to see where" if path is None else f"the report is in {path}"
    complain(f"internal error: {kind}; {where}")


def _write_report(text: str) -> Path | None:
    """Write an error report and return its path, or None where nothing can be written."""
    from vramscope.engine.files.base.output_file import write_new

    folder = state_folder() / "errors"
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = f"{make_printable(' '.join(sys.argv))}\n{sys.version}\n\n{make_printable_lines(text)}"
        write_new(content.encode(), path)
        for old in sorted(folder.glob("*.txt"))[:-REPORTS_KEPT]:
            old.unlink(missing_ok=True)
    except OSError:
        return None
    return path
