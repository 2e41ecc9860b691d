"""How a command ends: exit codes, errors in one line, Ctrl-C, SIGTERM, and the end of its parent process."""

import os
import signal
import stat
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import TextIO

from vramscope.engine.errors import InputFileError, VramscopeError
from vramscope.engine.extras import find_missing_package
from vramscope.engine.paths import state_folder
from vramscope.engine.text import make_printable, make_printable_lines

from .emit import complain
from .files import list_inputs

EXIT_INTERNAL = 1
EXIT_FINDINGS = 3
EXIT_INTERRUPTED = 130
# Number of error reports to keep; older ones are removed.
REPORTS_KEPT = 10


def run_guarded(action: Callable[[], int], *, failure_code: int | None = None) -> int:
    """Run a verb and return its exit code; an error becomes one line on stderr.

    Args:
        action: Runs the verb and returns the exit code.
        failure_code: Exit code of every error; None for the code of its class.
    """
    try:
        try:
            code = action()
        except SystemExit as error:  # --help, --version
            code = error.code if isinstance(error.code, int) else 0
        sys.stdout.flush()
    except VramscopeError as error:
        complain(error.describe("flag"))
        return error.exit_code if failure_code is None else failure_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _abandon(sys.stdout)
        return 0  # the reader of the output, such as `head`, has closed it
    except Exception as error:  # noqa: BLE001 - no user reads a traceback
        missing = find_missing_package(error)
        if missing is None:
            _report_internal(error)
        else:
            complain(str(missing))
        code = EXIT_INTERNAL if missing is None else missing.exit_code
        return code if failure_code is None else failure_code
    finally:
        # Lose diagnostics that cannot be written; kept, they would change the exit code to 120 at the end.
        try:
            sys.stderr.flush()
        except OSError:
            _abandon(sys.stderr)
    return code


def _abandon(stream: TextIO) -> None:
    """Redirect a stream to /dev/null, so that the interpreter's last flush does not fail."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())


def _report_internal(error: Exception) -> None:
    kind = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, OSError) and error.filename is None and not os.environ.get("VRAMSCOPE_DEBUG"):
        complain(f"cannot write the output: {error.strerror or error}")
        _abandon(sys.stdout)
        return
    import traceback

    text = "".join(traceback.format_exception(error))
    if os.environ.get("VRAMSCOPE_DEBUG"):
        print(text, end="", file=sys.stderr, flush=True)
        return
    path = _write_report(text)
    where = "set VRAMSCOPE_DEBUG=1 for the traceback" if path is None else f"the report is in {path}"
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


def name_the_file(error: InputFileError, arguments: Namespace) -> InputFileError:
    """Return the error, or a better one if its file is of a kind that other verbs read."""
    from vramscope.engine.files.base.input_file import show_path

    text = str(error)
    for usage, path in list_inputs(arguments):
        if not text.startswith((f"{show_path(path)}:", f"{show_path(path)}, ")) or not path.exists():
            continue
        from vramscope.engine.files.detect import identify

        kind = identify(path)
        if kind is not None and not kind.is_read_by(usage):
            return InputFileError(f"{show_path(path)}: {kind.explain(usage)}")
    return error


_ENDING_A_WATCH = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """A context in which the first signal sets `is_asked` instead of ending the program.

    Args:
        numbers: Signals; those that were ignored at the start, as by nohup, stay ignored.
    """

    def __init__(self, numbers: Sequence[int] = _ENDING_A_WATCH) -> None:
        self._numbers = [it for it in numbers if signal.getsignal(it) is not signal.SIG_IGN]
        # Whether a signal came.
        self.is_asked = False
        self._former: dict[int, object] = {}

    def __enter__(self) -> "Interruption":
        for number in self._numbers:
            self._former[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)  # type: ignore[arg-type] # what signal.signal returned itself

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True


_ENDING_A_WRITE = (signal.SIGTERM, signal.SIGHUP)
EXIT_BY_SIGNAL = 128


@contextmanager
def unwinding_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does, so that half-written files are removed.

    Those that were ignored at the start, as by nohup, stay ignored.
    """
    former = {it: signal.getsignal(it) for it in _ENDING_A_WRITE}
    for number in [it for it, handler in former.items() if handler is not signal.SIG_IGN]:
        signal.signal(number, _unwind)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _unwind(number: int, frame: FrameType | None) -> None:
    raise SystemExit(EXIT_BY_SIGNAL + number)


def find_parent_pipe() -> int | None:
    """Return the descriptor of standard input if it is a pipe, as in processes that an agent starts."""
    try:
        descriptor = sys.stdin.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except (AttributeError, OSError, ValueError):
        return None
    return descriptor if is_pipe else None
