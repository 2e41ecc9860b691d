"""Which file of phases is which; its content says, not its name."""

from collections.abc import Callable
from pathlib import Path

from ...errors import InputFileError
from ...model.phase_record import PhaseFile
from ..input_file import open_input_file, show_path
from ..text_lines import LineFile
from .log import has_phases, read_log
from .report import SCHEMA, read_report
from .results import read_results
from .summary import is_summary_header, read_summary

_MOST_BYTES = 1 << 30
_MOST_LINES = 1 << 16
"""In which the first mark of a format is looked for."""
_RESULT_KEYS = (b'"peak_memory', b'"memory_breakdown"', b'"snapshots"')
_EXPECTED = (
    "expected the captured output of Opacus's phase profiler, memory_profile_results.json or "
    "memory_profile_summary.csv of its siblings, or what `vramscope phases --json` prints"
)


def is_phase_file(path: Path) -> bool:
    """Tell by its content whether a file is of runs by phase.

    Raises:
        InputFileError: It cannot be read.
    """
    return _find_reader(path) is not None


def read_phase_file(path: Path) -> PhaseFile:
    """Read a file of runs by phase, whichever it is.

    Raises:
        InputFileError: It cannot be read or understood.
    """
    read = _find_reader(path)
    if read is None:
        raise InputFileError(f"{show_path(path)}: no memory by phase; {_EXPECTED}")
    return read(path)


def _find_reader(path: Path) -> Callable[[Path], PhaseFile] | None:
    with open_input_file(path, _MOST_BYTES):
        file = LineFile(path)
        head, lines = file.head.lstrip(), file.head_lines(_MOST_LINES)
        file.close()
    if head.startswith(b"{"):
        return read_report if SCHEMA.encode() in head[:512] else None
    if head.startswith(b"["):
        is_results = b'"seq_length"' in head and any(key in head for key in _RESULT_KEYS)
        return read_results if is_results else None
    if is_summary_header(lines[0]):
        return read_summary
    return read_log if has_phases("\n".join(lines)) else None
