"""Readers of runs by phase; the content of a file decides which one reads it."""

import csv
import math
from collections.abc import Callable
from pathlib import Path

import msgspec

from ...errors import InputFileError, WireError
from ...model.phase_memory import MemoryLevels, PhaseFile, PhaseRecord, PhaseRun
from ...soundness import check_numbers
from ...units import GIB, MIB
from ..base.input_file import lower_first, open_input_file, show_name, show_path
from ..base.packed_file import CUT_NOTE, LineFile
from ..base.series_reader import MOST_SECONDS, LeftOut, show_cell
from .log import find_bytes, has_phases, read_log, read_results

_MOST_BYTES = 1 << 30
# Within these the first mark of a format must come.
_MOST_LINES = 1 << 16
_RESULT_KEYS = (b'"peak_memory', b'"memory_breakdown"', b'"snapshots"')
_EXPECTED = (
    "expected the output of Opacus's phase profiler, a memory_profile_results.json or "
    "memory_profile_summary.csv of its siblings, or the output of `vramscope phases --json`"
)


def is_phase_file(path: Path) -> bool:
    return _find_reader(path) is not None


def read_phase_file(path: Path) -> PhaseFile:
    read = _find_reader(path)
    if read is None:
        raise InputFileError(f"{show_path(path)}: no memory by phase; {_EXPECTED}")
    return read(path)


def _find_reader(path: Path) -> Callable[[Path], PhaseFile] | None:
    with open_input_file(path, _MOST_BYTES):
        file = LineFile(path)
        head = file.head.lstrip()
        lines = file.head_lines(_MOST_LINES)
        file.close()
    if head.startswith(b"{"):
        return read_report if SCHEMA.encode() in head[:512] else None
    if head.startswith(b"["):
        is_results = b'"seq_length"' in head and any(key in head for key in _RESULT_KEYS)
        return read_results if is_results else None
    if is_summary_header(lines[0]):
        return read_summary
    return read_log if has_phases("\n".join(lines)) else None


SCHEMA = "vramscope.phases/"
_VERSION = "1"
_LONGEST_LINE = 64 * MIB


class _Report(msgspec.Struct):
    schema: str
    runs: tuple[PhaseRun, ...]


def read_report(path: Path) -> PhaseFile:
    """Read reports, one a line; a damaged line is counted in a note."""
    file = LineFile(path, longest_line=_LONGEST_LINE)
    left_out = LeftOut(show_path(path))
    trainings: list[tuple[PhaseRun, ...]] = []
    for number, line in file.numbered_lines():
        if not line.strip():
            continue
        try:
            report = msgspec.json.decode(line.encode("utf-8", "replace"), type=_Report)
            check_numbers(report)
        except (msgspec.DecodeError, RecursionError) as error:
            left_out.add("report", f"line {number}", lower_first(str(error)))
            continue
        except WireError as error:
            found = str(error).removeprefix(f"{_Report.__name__}.")
            left_out.add("number", f"line {number}", f"{found}, expected a number of vramscope phases --json")
            continue
        if report.schema != SCHEMA + _VERSION:
            raise InputFileError(
                f"{show_path(path)}: line {number}: unknown version {report.schema!r}; expected "
                f"{SCHEMA + _VERSION}: a newer vramscope may read it"
            )
        if report.runs:
            trainings.append(report.runs)
    if not trainings:
        reason = left_out.first or "its reports are empty"
        raise InputFileError(f"{show_path(path)}: no usable run; {reason}")
    notes = (*((CUT_NOTE,) if file.is_cut else ()), *left_out.notes())
    return PhaseFile(file=show_name(path), trainings=tuple(trainings), notes=notes)


_NEEDED = {"seq_length", "peak_memory_gb"}
_HEADER = "seq_length, peak_memory_gb and others, as pandas writes them"
_SUFFIX = "_memory_gb"


def is_summary_header(line: str) -> bool:
    return set(_split(line)) >= _NEEDED


def read_summary(path: Path) -> PhaseFile:
    """Read the rows of a summary; those that cannot be used are counted in a note."""
    file = LineFile(path)
    left_out = LeftOut(show_path(path))
    records = []
    names: list[str] = []
    for number, line in file.numbered_lines():
        if not line.strip():
            continue
        cells = _split(line)
        if not names:
            if not set(cells) >= _NEEDED:
                raise InputFileError(f"{show_path(path)}: line {number}: no header; expected {_HEADER}")
            names = cells
            continue
        if len(cells) != len(names):
            left_out.add(
                "row", f"line {number}", f"{len(cells)} cells, expected {len(names)} as in the header"
            )
            continue
        record = _make_record(dict(zip(names, cells, strict=True)))
        if record is None:
            left_out.add("row", f"line {number}", f"{show_cell(line)}: peak_memory_gb is not a size in GiB")
        else:
            records.append(record)
    if not records:
        raise InputFileError(left_out.explain_absence(path) if names else f"{show_path(path)}: no row in it")
    notes = (*((CUT_NOTE,) if file.is_cut else ()), *left_out.notes())
    return PhaseFile(file=show_name(path), records=tuple(records), notes=notes)


def _make_record(row: dict[str, str]) -> PhaseRecord | None:
    peak = _read_gibibytes(row["peak_memory_gb"])
    if peak is None:
        return None
    breakdown = {
        name.removesuffix(_SUFFIX): _read_gibibytes(cell)
        for name, cell in row.items()
        if name.endswith(_SUFFIX) and name != "peak_memory_gb"
    }
    is_lora = {"true": True, "false": False}.get(row.get("is_lora", "").lower())
    duration_s = _read_number(row.get("execution_time", ""))
    return PhaseRecord(
        format="profiler summary",
        device="cuda",
        batch_size=_read_count(row.get("batch_size", "")),
        physical_batch_size=_read_count(row.get("max_physical_batch_size", "")),
        seq_length=_read_count(row["seq_length"]),
        is_lora=is_lora,
        lora_rank=_read_count(row.get("lora_rank", "")) if is_lora else None,
        peak=MemoryLevels(allocated_bytes=peak, reserved_bytes=None),
        breakdown={name: size for name, size in breakdown.items() if size is not None},
        duration_s=duration_s if duration_s is not None and 0 <= duration_s < MOST_SECONDS else None,
    )


def _split(line: str) -> list[str]:
    """Return the cells of a line; one cell if its quotes cannot be read."""
    try:
        return [cell.strip() for cell in next(csv.reader([line]), [])]
    except csv.Error:
        return [line.strip()]


def _read_gibibytes(text: str) -> int | None:
    value = _read_number(text)
    return None if value is None or value < 0 else find_bytes(value, GIB)


def _read_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _read_count(text: str) -> int | None:
    """Return a whole number; pandas writes those of a column with gaps as `16.0`."""
    value = _read_number(text)
    return int(value) if value is not None and value.is_integer() and 0 <= value < 1e15 else None
