"""The one list of formats of series; the content of a file decides which one it is."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from ...errors import InputFileError
from ...units import TIB
from ..base.input_file import open_input_file, show_path
from ..base.packed_file import LineFile
from ..base.series_reader import RecordError, SeriesFormat, SeriesReader, show_cell
from ..framework.internlm_log import BEGIN, InternlmLog
from ..framework.log import HEAD_LINES, FrameworkLog, is_framework_log
from .all_smi import AllSmi, is_all_smi
from .gpustat import Gpustat, is_gpustat
from .nvidia_smi import NvidiaSmiLog, guess_log_header, parse_log_header
from .nvidia_smi_tables import NvidiaSmiMonitor, NvidiaSmiTable, is_monitor_header, is_smi_table
from .open import SeriesFile, is_skipped, parse_series_header
from .status_lines import find_status_schema
from .stormlog_telemetry import StormlogTelemetry, is_stormlog_telemetry

ACCEPTED = (
    "expected a series CSV (time_s,device,allocated_bytes,...), a log of nvidia-smi "
    "--query-gpu=timestamp,index,memory.used,memory.total --format=csv, its tables, output of nvidia-smi "
    "dmon -s m or pmon -s m or gpustat --json, a recording of all-smi, a memory trace or the folder of a "
    "run, a recording (*.vscope), what vramscope --json printed, exported snapshots (JSON), a memory "
    "snapshot, profiler trace or memory timeline of PyTorch, InternLM's memory.log, a report of Tiny-Torch, "
    "telemetry of stormlog, or a log of Megatron, torchtitan, DeepSpeed, nanotron, picotron or onnxruntime "
    "with lines of memory"
)
_FIRST_KEY = re.compile(r'\s*\{\s*"([^"]{0,64})"')
_DATABASE = b"SQLite format 3\0"
_SIZE_LIMIT_BYTES = 64 * TIB
_PICKLE_MARKS = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))
# The header of a table must be among the first lines.
_HEADER_LINES = 32
_REPORT = re.compile(r'\s*\{\s*"(?:timestamp"|schema"\s*:\s*"vramscope\.(?:profile|oom|leak)/\d)')
# How JSON of ours begins: an error mentioned in it makes it no log.
_OURS = re.compile(rb'\s*\{\s*"schema"\s*:\s*"vramscope\.')
_DEVICES = re.compile(r'"(?:devices|node_details)"\s*:\s*\{')
_EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
_LISTS = re.compile(r"\s*\[\s*\[\s*[-\d\]]")
# What the first character of a pickle becomes, read as text; and what no text has.
_BINARY = ("\ufffd", "\0")


# Called with the path, the length of a tick if one was given, and a listener to the share read.
OpenReader = Callable[[Path, float | None, Callable[[float], None] | None], SeriesReader]


class SeriesKind(NamedTuple):
    # With the article.
    words: str
    # None if it has a player of its own: traces, recordings, status lines.
    open: OpenReader | None = None
    # Verbs that read it beyond those that play a series.
    more: tuple[str, ...] = ()
    # Whether all its values are computed; None where the format does not say it.
    is_simulated: bool | None = None


def _open_snapshot_export(path: Path, *_: object) -> SeriesReader:
    from ..memory_report import SnapshotExport

    return SnapshotExport(path)


def _open_memory_report(path: Path, *_: object) -> SeriesReader:
    from ..memory_report import MemoryReport

    return MemoryReport(path)


def _open_snapshot(
    path: Path, interval_s: float | None, on_read: Callable[[float], None] | None
) -> SeriesReader:
    from ..snapshot_series import SnapshotSeries  # loads the decoder

    return SnapshotSeries(path, interval_s, on_read)


def _open_profiler_trace(
    path: Path, interval_s: float | None, on_read: Callable[[float], None] | None
) -> SeriesReader:
    from ..profiler_trace import ProfilerTrace

    return ProfilerTrace(path, interval_s, on_read)


def _open_timeline(
    path: Path, interval_s: float | None, on_read: Callable[[float], None] | None
) -> SeriesReader:
    from ..profiler_trace import MemoryTimeline

    return MemoryTimeline(path, interval_s, on_read)


FORMATS: Mapping[SeriesFormat, SeriesKind] = {
    "series CSV": SeriesKind("a series of memory over time (CSV)", lambda path, *_: SeriesFile(path)),
    "nvidia-smi log": SeriesKind(
        "a log of nvidia-smi", lambda path, *_: NvidiaSmiLog(path), is_simulated=False
    ),
    "nvidia-smi table": SeriesKind(
        "tables of nvidia-smi", lambda path, *_: NvidiaSmiTable(path), is_simulated=False
    ),
    "nvidia-smi dmon": SeriesKind(
        "what `nvidia-smi dmon` or `pmon` printed",
        lambda path, *_: NvidiaSmiMonitor(path),
        is_simulated=False,
    ),
    "gpustat JSON": SeriesKind(
        "what `gpustat --json` printed", lambda path, *_: Gpustat(path), is_simulated=False
    ),
    "all-smi recording": SeriesKind(
        "a recording of all-smi", lambda path, *_: AllSmi(path), is_simulated=False
    ),
    "memory trace": SeriesKind("a memory trace"),
    "recording": SeriesKind("a recording", more=("export",)),
    "status stream": SeriesKind("what `vramscope --json` printed"),
    "snapshot export": SeriesKind(
        "exported snapshots of `vramscope profile` or Tiny-Torch", _open_snapshot_export
    ),
    "memory snapshot": SeriesKind("a memory snapshot of PyTorch", _open_snapshot, ("inspect",)),
    "profiler trace": SeriesKind("a trace of torch.profiler", _open_profiler_trace),
    "memory timeline": SeriesKind("a memory timeline of torch.profiler", _open_timeline),
    "InternLM log": SeriesKind(
        "the memory.log of a profile by module",
        lambda path, *_: InternlmLog(path),
        ("modules", "inspect"),
        is_simulated=True,
    ),
    "memory report": SeriesKind("a report of Tiny-Torch", _open_memory_report),
    "stormlog telemetry": SeriesKind("telemetry of stormlog", lambda path, *_: StormlogTelemetry(path)),
    "framework log": SeriesKind("a log of a training framework", lambda path, *_: FrameworkLog(path)),
}


def recognize_series(path: Path) -> SeriesFormat:
    """Return the format of an input; a folder can only be a run of memory traces."""
    if path.is_dir():
        return "memory trace"
    if is_database(path):
        return "recording"
    file = LineFile(path)
    try:
        head = file.head
        lines = file.head_lines(HEAD_LINES)
    finally:
        file.close()
    if head.startswith(_PICKLE_MARKS):
        return "memory snapshot"
    first = next(((number, line) for number, line in enumerate(lines, 1) if not is_skipped(line)), None)
    if first is None:
        raise InputFileError(f"{show_path(path)}: no line of data; its writer may not have finished")
    kind = _recognize_json("\n".join(lines)) or _recognize_lines(lines[:_HEADER_LINES])
    if kind is None and not _OURS.match(head) and is_framework_log(lines):
        kind = "framework log"
    if kind is None:
        raise InputFileError(f"{show_path(path)}: {_describe_stranger(*first)}; {ACCEPTED}")
    return kind


def is_database(path: Path) -> bool:
    """Return whether a file is SQLite; only a recording can be played."""
    with open_input_file(path, _SIZE_LIMIT_BYTES) as (file, _):
        return file.read(len(_DATABASE)) == _DATABASE


def _recognize_json(text: str) -> SeriesFormat | None:
    if find_status_schema(text) is not None:
        return "status stream"
    if is_all_smi(text):
        return "all-smi recording"
    if is_stormlog_telemetry(text):
        return "stormlog telemetry"
    key = _FIRST_KEY.match(text)
    if key is None:
        return "memory timeline" if _LISTS.match(text) else None
    return _recognize_object(key[1], text)


def _recognize_object(first_key: str, text: str) -> SeriesFormat | None:
    if first_key.isdecimal():
        return "memory trace"
    if first_key == "hostname" and is_gpustat(text):
        return "gpustat JSON"
    if first_key in ("metadata", "snapshots"):
        return "snapshot export"
    if _REPORT.match(text) and _DEVICES.search(text):
        return "memory report"
    return "profiler trace" if _EVENTS.search(text) else None


def _recognize_lines(lines: list[str]) -> SeriesFormat | None:
    if is_smi_table("\n".join(lines)):
        return "nvidia-smi table"
    for line in lines:
        if is_monitor_header(line):
            return "nvidia-smi dmon"
        if line.lstrip().startswith("{"):
            continue  # a key is no name of a column
        if line.strip() == BEGIN:
            return "InternLM log"
        if _is_of(line, parse_series_header):
            return "series CSV"
        if _is_of(line, parse_log_header) or _is_of(line, guess_log_header):
            return "nvidia-smi log"
    return None


def _is_of(line: str, parse: Callable[[str], object | None]) -> bool:
    """Return whether a line is a header of a kind, perhaps one that its reader refuses."""
    try:
        return parse(line) is not None
    except RecordError:
        return True


def _describe_stranger(number: int, line: str) -> str:
    if line.startswith(_BINARY) or "\0" in line:
        return "a binary file"
    if line.lstrip().startswith(("{", "[")):
        return "JSON that is not a series"
    return f"line {number}: {show_cell(line)} is not a header of a series"
