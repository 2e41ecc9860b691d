"""Reader of the captured output of Opacus's phase profiler, and of `vramscope phases --format original`.

The text has one block a stage, losses, a summary and the final state; other lines (warnings, progress) may
stand anywhere. Several runs may follow each other in one file. What it calls MB is MiB.
"""

import re
from pathlib import Path

from ...errors import InputFileError
from ...model.phase_record import PhaseFile, PhaseRecord
from ..framework_lines import COLOUR
from ..input_file import show_name, show_path
from ..packed_file import CUT_NOTE
from ..series_record import LeftOut
from ..text_lines import LineFile
from .log_run import BEGIN, LoggedRun

_MARK = re.compile(
    r"^[^\S\n]*+(?:=== .{1,200} (?:Memory Usage|Completed) ===[^\S\n]*+$"
    r"|MEMORY USAGE SUMMARY|EXECUTION SUMMARY \()",
    re.MULTILINE,
)
_LONGEST_LINE = 1 << 20
"""Progress bars redraw themselves without a line end."""


def has_phases(text: str) -> bool:
    """Tell whether a text has a block or the summary of such a profiler in it."""
    return _MARK.search(COLOUR.sub("", text)) is not None


def read_log(path: Path) -> PhaseFile:
    """Read the runs of a captured output; lines that cannot be used are counted in a note.

    Raises:
        InputFileError: The file cannot be read, or has no stage in it.
    """
    file, left_out = LineFile(path, longest_line=_LONGEST_LINE), LeftOut(show_path(path))
    runs = [LoggedRun(left_out)]
    for number, line in file.numbered_lines():
        # A progress bar stands before a line that was printed while it was drawn.
        text = COLOUR.sub("", line).rpartition("\r")[2].strip()
        if text.startswith(BEGIN) and runs[-1].has_begun:
            runs.append(LoggedRun(left_out))
        if text:
            runs[-1].take(number, text)
    records: list[PhaseRecord] = [record for run in runs if (record := run.finish()) is not None]
    if not records:
        reason = left_out.first or 'expected blocks such as "=== Forward Pass Memory Usage ==="'
        raise InputFileError(f"{show_path(path)}: no stage in it can be used; {reason}")
    cut = (CUT_NOTE,) if file.is_cut else ()
    return PhaseFile(file=show_name(path), records=tuple(records), notes=(*cut, *left_out.notes()))
