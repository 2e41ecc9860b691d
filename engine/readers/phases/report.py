"""Reader of what `vramscope phases --json` prints."""

from pathlib import Path

import msgspec

from ...errors import InputFileError
from ...model.phase_memory import PhaseRun
from ...model.phase_record import PhaseFile
from ...units import MIB
from ..input_file import lower_first, show_name, show_path
from ..packed_file import CUT_NOTE
from ..series_record import LeftOut
from ..text_lines import LineFile

SCHEMA = "vramscope.phases/"
"""How its schema's name begins, whatever the version."""
_VERSION = "1"
_LONGEST_LINE = 64 * MIB


class _Report(msgspec.Struct):
    schema: str
    runs: tuple[PhaseRun, ...]


def read_report(path: Path) -> PhaseFile:
    """Read reports, one a line; a damaged line is counted in a note.

    Raises:
        InputFileError: The file cannot be read, is of a newer version, or has no run in it.
    """
    file, left_out = LineFile(path, longest_line=_LONGEST_LINE), LeftOut(show_path(path))
    trainings: list[tuple[PhaseRun, ...]] = []
    for number, line in file.numbered_lines():
        if not line.strip():
            continue
        try:
            report = msgspec.json.decode(line.encode("utf-8", "replace"), type=_Report)
        except (msgspec.DecodeError, RecursionError) as error:
            left_out.add("report", f"line {number}", lower_first(str(error)))
            continue
        if report.schema != SCHEMA + _VERSION:
            raise InputFileError(
                f"{show_path(path)}: line {number}: {report.schema!r} is of another version; "
                f"expected {SCHEMA + _VERSION}: a newer vramscope may read it"
            )
        if report.runs:
            trainings.append(report.runs)
    if not trainings:
        reason = left_out.first or "its reports are empty"
        raise InputFileError(f"{show_path(path)}: no run in it can be used; {reason}")
    notes = (*((CUT_NOTE,) if file.is_cut else ()), *left_out.notes())
    return PhaseFile(file=show_name(path), trainings=tuple(trainings), notes=notes)
