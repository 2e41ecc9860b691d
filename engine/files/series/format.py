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
# Where the file has nothing that could be mistaken.
_EXPECTED = (
    "expected a recording, a memory snapshot, a memory trace, a series CSV or a log with lines of memory"
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
    # Whether a file that begins with these lines is of this kind.
    begins: Callable[[str], bool] | None = None
    # Whether one of the first lines is the header of its table.
    is_header: Callable[[str], object] | None = None
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


def _find_first_key(text: str) -> str:
    """Return the first key of a JSON object; empty where a text does not begin with one."""
    key = _FIRST_KEY.match(text)
    return "" if key is None else key[1]


# The first one that recognizes a file reads it.
FORMATS: Mapping[SeriesFormat, SeriesKind] = {
    "recording": SeriesKind("a recording", more=("export",)),
    "memory snapshot": SeriesKind("a memory snapshot of PyTorch", _open_snapshot, more=("inspect",)),
    "status stream": SeriesKind(
        "what `vramscope --json` printed", begins=lambda text: find_status_schema(text) is not None
    ),
    "all-smi recording": SeriesKind(
        "a recording of all-smi", lambda path, *_: AllSmi(path), is_all_smi, is_simulated=False
    ),
    "stormlog telemetry": SeriesKind(
        "telemetry of stormlog", lambda path, *_: StormlogTelemetry(path), is_stormlog_telemetry
    ),
    "memory timeline": SeriesKind(
        "a memory timeline of torch.profiler", _open_timeline, lambda text: _LISTS.match(text) is not None
    ),
    "memory trace": SeriesKind("a memory trace", begins=lambda text: _find_first_key(text).isdecimal()),
    "gpustat JSON": SeriesKind(
        "what `gpustat --json` printed",
        lambda path, *_: Gpustat(path),
        lambda text: _find_first_key(text) == "hostname" and is_gpustat(text),
        is_simulated=False,
    ),
    "snapshot export": SeriesKind(
        "exported snapshots of `vramscope profile` or Tiny-Torch",
        _open_snapshot_export,
        lambda text: _find_first_key(text) in ("metadata", "snapshots"),
    ),
    "memory report": SeriesKind(
        "a report of Tiny-Torch",
        _open_memory_report,
        lambda text: _REPORT.match(text) is not None and _DEVICES.search(text) is not None,
    ),
    "profiler trace": SeriesKind(
        "a trace of torch.profiler",
        _open_profiler_trace,
        lambda text: _FIRST_KEY.match(text) is not None and _EVENTS.search(text) is not None,
    ),
    "nvidia-smi table": SeriesKind(
        "tables of nvidia-smi",
        lambda path, *_: NvidiaSmiTable(path),
        lambda text: is_smi_table("\n".join(text.split("\n", _HEADER_LINES)[:_HEADER_LINES])),
        is_simulated=False,
    ),
    "nvidia-smi dmon": SeriesKind(
        "what `nvidia-smi dmon` or `pmon` printed",
        lambda path, *_: NvidiaSmiMonitor(path),
        is_header=is_monitor_header,
        is_simulated=False,
    ),
    "InternLM log": SeriesKind(
        "the memory.log of a profile by module",
        lambda path, *_: InternlmLog(path),
        is_header=lambda line: line.strip() == BEGIN,
        more=("modules", "inspect"),
        is_simulated=True,
    ),
    "series CSV": SeriesKind(
        "a series of memory over time (CSV)", lambda path, *_: SeriesFile(path), is_header=parse_series_header
    ),
    "nvidia-smi log": SeriesKind(
        "a log of nvidia-smi",
        lambda path, *_: NvidiaSmiLog(path),
        is_header=lambda line: parse_log_header(line) or guess_log_header(line),
        is_simulated=False,
    ),
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
        found = "the file has only comments" if head.strip() else "the file is empty"
        raise InputFileError(f"{show_path(path)}: {found}: its writer may not have finished; {_EXPECTED}")
    kind = _recognize_text("\n".join(lines)) or _recognize_header(lines[:_HEADER_LINES])
    if kind is None and not _OURS.match(head) and is_framework_log(lines):
        kind = "framework log"
    if kind is None:
        raise InputFileError(f"{show_path(path)}: {_describe_stranger(*first)}; {ACCEPTED}")
    return kind


def is_database(path: Path) -> bool:
    """Return whether a file is SQLite; only a recording can be played."""
    with open_input_file(path, _SIZE_LIMIT_BYTES) as (file, _):
        return file.read(len(_DATABASE)) == _DATABASE


def _recognize_text(text: str) -> SeriesFormat | None:
    return next(
        (name for name, kind in FORMATS.items() if kind.begins is not None and kind.begins(text)), None
    )


def _recognize_header(lines: list[str]) -> SeriesFormat | None:
    """Return the kind of the first header, perhaps of one that its reader refuses."""
    for line in lines:
        if line.lstrip().startswith("{"):
            continue  # a key is no name of a column
        for name, kind in FORMATS.items():
            try:
                if kind.is_header is not None and kind.is_header(line):
                    return name
            except RecordError:
                return name
    return None


def _describe_stranger(number: int, line: str) -> str:
    if line.startswith(_BINARY) or "\0" in line:
        return "a binary file"
    if line.lstrip().startswith(("{", "[")):
        return "JSON that is not a series"
    return f"line {number}: {show_cell(line)} is not a header of a series"
