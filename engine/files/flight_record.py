"""Files of device memory that a person inspects, recognized by their content, not their name."""

import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, NoReturn

import msgspec

from ..errors import InputFileError
from ..model import ModelStateReading, RankCoordinates
from ..model.memory_snapshot import (
    OF_TEXT,
    FlightDevice,
    FlightFailure,
    FlightProcess,
    FlightRecord,
    FlightSample,
    FlightStep,
    FlightTruncation,
    MemorySnapshot,
)
from ..model.sample import ALLOCATED, AWAITING_FREE, FREE, LiveStack, Segment
from ..paths import locate_runtime_folder, state_folder
from ..units import MIB, format_bytes
from .base.input_file import lower_first, open_input_file, show_name, show_path
from .base.packed_file import CUT_NOTE, PackedFile
from .framework.log import find_rank
from .framework.oom_text import MOST_CHARACTERS, OomText, parse_oom_text
from .memory_snapshot import read_memory_snapshot
from .memory_snapshot.reader import SIZE_LIMIT_BYTES

# Every field but `schema` may be missing or null. Unknown fields are ignored, so that a newer probe of the
# same version may add some; an unknown newer version is refused.

VERSION = 1
SCHEMA_NAME = "vramscope.flight"
# Both bounds are checked while reading: of the file, and of its content when decompressed.
FLIGHT_LIMIT_BYTES = 64 * MIB
CONTENT_LIMIT_BYTES = 256 * MIB
# Lists and objects: ten times what the probe writes at most, and each takes 150 bytes.
MOST_MEMBERS = 1 << 20
_SCHEMA = re.compile(rf"{re.escape(SCHEMA_NAME)}/([0-9]{{1,9}})")
_EXPECTATION = f'expected a flight record of vramscope, {{"schema": "{SCHEMA_NAME}/{VERSION}", ...}}'
_STATES = {
    "active_allocated": ALLOCATED,
    "active_pending_free": AWAITING_FREE,
    "active_awaiting_free": AWAITING_FREE,
    "inactive": FREE,
}

_Stack = tuple[tuple[str, int, str], ...]


class _ProcessRecord(msgspec.Struct):
    pid: int | None = None
    started_s: float | None = None
    argv: tuple[str, ...] | None = None
    python: str | None = None
    torch: str | None = None
    backend: str | None = None
    is_simulated: bool | None = None
    rank: dict[str, Any] | None = None


class _FailureRecord(msgspec.Struct):
    size_bytes: int | None = None
    device_free_bytes: int | None = None
    device_used_bytes: int | None = None
    message: str | None = None
    stack: _Stack | None = None


class _StepRecord(msgspec.Struct, array_like=True):
    index: int
    start_s: float | None = None
    duration_s: float | None = None
    floor_bytes: int | None = None
    peak_bytes: int | None = None
    is_peak_exact: bool | None = None


class _BlockRecord(msgspec.Struct):
    size: int
    state: Literal["active_allocated", "active_pending_free", "active_awaiting_free", "inactive"]


class _SegmentRecord(msgspec.Struct):
    address: int
    total_size: int
    segment_type: Literal["small", "large"] = "large"
    stream: int = 0
    segment_pool_id: tuple[int, int] = (0, 0)
    is_expandable: bool = False
    blocks: list[_BlockRecord] = []


class _LiveRecord(msgspec.Struct):
    size_bytes: int
    count: int = 1
    stack: _Stack | None = None


class _Record(msgspec.Struct):
    written_s: float | None = None
    reason: str | None = None
    process: _ProcessRecord | None = None
    device: FlightDevice | None = None
    failure: _FailureRecord | None = None
    columns: list[str] | None = None
    samples: list[list[float | bool | None]] | None = None
    steps: list[_StepRecord] | None = None
    model: ModelStateReading | None = None
    stats: dict[str, float | None] | None = None
    segments: list[_SegmentRecord] | None = None
    live_blocks: list[_LiveRecord] | None = None
    truncated: dict[str, int | None] | None = None
    notes: tuple[str, ...] | None = None
    allocator_settings: str | None = None


class _Head(msgspec.Struct):
    schema: str


def read_flight_record(path: Path) -> FlightRecord:
    """Read what the probe wrote at an out-of-memory error; an unknown newer version is refused."""
    content = _read_content(path)
    _check_schema(path, content)
    try:
        record = msgspec.json.decode(content, type=_Record)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        _refuse(path, error)
    return _build_record(record, show_name(path))


def _read_content(path: Path) -> bytearray:
    file = PackedFile(path, limit_bytes=FLIGHT_LIMIT_BYTES)
    content = bytearray()
    for data in file.chunks():
        content += data
        if len(content) > CONTENT_LIMIT_BYTES:
            file.close()
            limit = format_bytes(CONTENT_LIMIT_BYTES)
            raise InputFileError(f"{show_path(path)}: more than {limit} of text; {_EXPECTATION}")
    if file.is_cut:
        raise InputFileError(f"{show_path(path)}: {CUT_NOTE}; {_EXPECTATION}")
    if content.count(b"[") + content.count(b"{") > MOST_MEMBERS:
        raise InputFileError(
            f"{show_path(path)}: more than {MOST_MEMBERS:,} lists and objects in it; {_EXPECTATION}"
        )
    return content


def _check_schema(path: Path, content: bytearray) -> None:
    try:
        schema = msgspec.json.decode(content, type=_Head).schema
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        _refuse(path, error)
    found = _SCHEMA.fullmatch(schema)
    if found is None:
        raise InputFileError(f"{show_path(path)}: the schema is {ascii(schema)[:60]}; {_EXPECTATION}")
    if int(found.group(1)) > VERSION:
        raise InputFileError(
            f"{show_path(path)}: written by a newer vramscope ({schema}); this one reads versions up "
            f"to {VERSION}: update vramscope"
        )


def _refuse(path: Path, error: Exception) -> NoReturn:
    message, _, place = str(error).partition(" - at `$")
    where = f" at ${place.rstrip('`')}" if place else ""
    raise InputFileError(f"{show_path(path)}:{where} {lower_first(message)}; {_EXPECTATION}") from error


def _build_record(record: _Record, file: str) -> FlightRecord:
    return FlightRecord(
        written_s=record.written_s,
        reason=record.reason,
        process=_build_process(record.process or _ProcessRecord()),
        device=record.device or FlightDevice(),
        failure=_build_failure(record.failure or _FailureRecord()),
        samples=_build_samples(record.columns or [], record.samples or []),
        steps=tuple(map(_build_step, record.steps or ())),
        model_state=record.model,
        stats={key: value for key, value in (record.stats or {}).items() if value is not None},
        segments=tuple(map(_build_segment, record.segments or ())),
        live_stacks=tuple(
            LiveStack(each.size_bytes, each.count, each.stack or ()) for each in record.live_blocks or ()
        ),
        truncated=_build_truncation(record.truncated or {}),
        notes=record.notes or (),
        allocator_settings=record.allocator_settings,
        file=file,
    )


def _build_process(record: _ProcessRecord) -> FlightProcess:
    return FlightProcess(
        pid=record.pid,
        started_s=record.started_s,
        argv=record.argv or (),
        python=record.python,
        torch=record.torch,
        backend=record.backend,
        is_simulated=bool(record.is_simulated),
        coordinates=_build_coordinates(record.rank or {}),
    )


def _build_coordinates(fields: dict[str, Any]) -> RankCoordinates | None:
    """Return the coordinates; those that are not what they should be count as unknown."""
    try:
        return msgspec.convert(fields, RankCoordinates)
    except msgspec.ValidationError:
        return None


def _build_failure(record: _FailureRecord) -> FlightFailure:
    return FlightFailure(
        size_bytes=record.size_bytes,
        device_free_bytes=record.device_free_bytes,
        device_used_bytes=record.device_used_bytes,
        message=record.message or "",
        stack=record.stack or (),
    )


def _build_samples(columns: list[str], rows: list[list[float | bool | None]]) -> tuple[FlightSample, ...]:
    known = set(FlightSample.__struct_fields__)
    named = [(name, column) for column, name in enumerate(columns) if name in known]
    samples = []
    for row in rows:
        values: dict[str, Any] = {name: row[column] for name, column in named if column < len(row)}
        # JSON has one type of number: all but the time are whole.
        for name in values.keys() - {"time_s"}:
            values[name] = None if values[name] is None else int(values[name])
        samples.append(FlightSample(**values))
    return tuple(samples)


def _build_step(record: _StepRecord) -> FlightStep:
    return FlightStep(
        index=record.index,
        start_s=record.start_s,
        duration_s=record.duration_s,
        floor_bytes=record.floor_bytes,
        peak_bytes=record.peak_bytes,
        is_peak_exact=bool(record.is_peak_exact),
    )


def _build_segment(record: _SegmentRecord) -> Segment:
    return Segment(
        address=record.address,
        total_bytes=record.total_size,
        pool=record.segment_type,
        stream=record.stream,
        blocks=tuple((block.size, _STATES[block.state]) for block in record.blocks),
        is_expandable=record.is_expandable,
        is_private=record.segment_pool_id != (0, 0),
    )


def _build_truncation(counts: dict[str, int | None]) -> FlightTruncation:
    return FlightTruncation(
        samples=counts.get("samples") or 0,
        segments=counts.get("segments") or 0,
        blocks=counts.get("blocks") or 0,
    )


# Names of flight records; the probe writes under another name and renames.
PATTERN = "oom-*.json.gz"


def list_flight_folders(environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Return where a probe writes its flight records, the place that it tries first first."""
    environ = os.environ if environ is None else environ
    folders = [state_folder(environ) / "flight", locate_runtime_folder(environ) / "flight"]
    chosen = environ.get("VRAMSCOPE_FLIGHT_DIR")
    return tuple(dict.fromkeys([Path(chosen), *folders] if chosen else folders))


def find_newest_flight_record(folders: Sequence[Path]) -> Path | None:
    """Return the flight record that was written last; folders that cannot be read count as empty."""
    found = [record for folder in folders for record in _list_records(folder)]
    return max(found)[1] if found else None


def _list_records(folder: Path) -> Iterator[tuple[float, Path]]:
    try:
        paths = list(folder.glob(PATTERN))
    except OSError:
        return
    for path in paths:
        try:
            yield path.stat().st_mtime, path
        except OSError:
            continue  # removed in this moment


MemoryFileKind = Literal["snapshot", "flight record", "out-of-memory text"]
MemoryFile = MemorySnapshot | FlightRecord
OnRead = Callable[[float], None]

_GZIP_MARK = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# How pickles from protocol 2 on begin; JSON never does.
_PICKLE_MARK = b"\x80"
_HEAD_BYTES = 512
# Searched for an error in a file that is no text.
_BINARY_CHUNKS = 64
# Of a file system; a hole ends with one.
_LARGEST_BLOCK_BYTES = MIB
# At the beginning of a flight record. A log of JSON lines begins alike, and may contain an error.
_SCHEMA_KEY = b'"schema"'


def recognize_memory_file(path: Path, on_read: OnRead | None = None) -> MemoryFileKind:
    with open_input_file(path, SIZE_LIMIT_BYTES) as (file, _):
        head = file.read(_HEAD_BYTES)
        if head.startswith(_GZIP_MARK):
            head = _unpack_head(path, head + file.read(_HEAD_BYTES * 16))
        elif not head.strip(b"\0"):
            head = _skip_hole(file) or head
    if not head.strip():
        raise InputFileError(f"{show_path(path)}: the file is empty; its writer may not have finished")
    if head.startswith(_PICKLE_MARK):
        return "snapshot"
    if head.removeprefix(_BYTE_ORDER_MARK).lstrip().startswith(b"{"):
        is_record = _SCHEMA_KEY in head or not has_oom_text(path, on_read)
        return "flight record" if is_record else "out-of-memory text"
    # A file with NUL bytes is hardly a text: it is not searched to its end, however large it is.
    if has_oom_text(path, on_read, most_chunks=_BINARY_CHUNKS if b"\0" in head else None):
        return "out-of-memory text"
    raise InputFileError(
        f"{show_path(path)}: not a memory snapshot, flight record, start-up log of a server or text with "
        "an out-of-memory error; expected a pickle from torch.cuda.memory._dump_snapshot, a flight record of "
        "vramscope, a log of vLLM, SGLang or llama.cpp, or the "
        'words "CUDA out of memory. Tried to allocate"'
    )


def read_memory_file(path: Path, on_read: OnRead | None = None) -> MemoryFile:
    """Read a memory snapshot of PyTorch in any dialect, a flight record, or an error in a text.

    Args:
        on_read: Called with the share of a text that was searched so far.
    """
    kind = recognize_memory_file(path, on_read)
    if kind == "snapshot":
        return read_memory_snapshot(path)
    return read_flight_record(path) if kind == "flight record" else read_oom_file(path)


def _skip_hole(file: BinaryIO) -> bytes:
    """Return the first bytes after a hole: a log begins with one if it was cut off while a job wrote it."""
    try:
        file.seek(0, os.SEEK_DATA)
    except OSError:
        return b""
    return file.read(_LARGEST_BLOCK_BYTES).lstrip(b"\0")[:_HEAD_BYTES]


def _unpack_head(path: Path, packed: bytes) -> bytes:
    """Decompress the first bytes; the beginning of the file is enough for that."""
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        return unpacker.decompress(packed, _HEAD_BYTES)
    except zlib.error as error:
        raise InputFileError(
            f"{show_path(path)}: cannot decompress the file: {lower_first(str(error))}; it is damaged"
        ) from error


_MARK = re.compile(rb"\b(?:CUDA|HIP|XPU) out of memory\. Tried to allocate ")
_MARK_BYTES = len("CUDA out of memory. Tried to allocate ")
_LONGEST = MOST_CHARACTERS
# Bytes before the mark that may be on its line: what a launcher puts there.
_BEFORE = 256
_BACKENDS = {"CUDA": "cuda", "HIP": "rocm", "XPU": "xpu"}
_TRACEBACK = "Traceback (most recent call last)"


def has_oom_text(path: Path, on_read: OnRead | None = None, *, most_chunks: int | None = None) -> bool:
    return _find_texts(path, on_read, most_chunks).texts > 0


def read_oom_file(path: Path) -> FlightRecord:
    """Return the first error in a text, with the number of those that follow."""
    found = _find_texts(path)
    said = parse_oom_text(found.text)
    if said is None:
        raise InputFileError(
            f'{show_path(path)}: no text such as "CUDA out of memory. Tried to allocate" in it'
        )
    rank = find_rank(found.prefix)
    more = (f"more out-of-memory texts in the file: {found.texts - 1:,}",) if found.texts > 1 else ()
    return FlightRecord(
        reason=OF_TEXT,
        process=FlightProcess(
            backend=_BACKENDS[said.backend],
            coordinates=None if rank is None else RankCoordinates(rank, source="text"),
        ),
        device=FlightDevice(index=said.device, total_bytes=said.total_bytes),
        failure=FlightFailure(said.asked_bytes, said.free_bytes, said.used_bytes, message=found.text),
        stats=_make_stats(said),
        notes=(f"numbers are rounded as in the text at line {found.line:,}", *_make_notes(said), *more),
        file=show_name(path),
    )


class _Found(NamedTuple):
    text: str = ""
    # On the same line, before it.
    prefix: str = ""
    line: int = 0
    # Errors in the file.
    texts: int = 0


def _find_texts(path: Path, on_read: OnRead | None = None, most_chunks: int | None = None) -> _Found:
    file = PackedFile(path, on_read)
    kept = b""
    from_at = 0
    line = 1
    count = 0
    prefix = b""
    text = b""
    for data in islice(file.chunks(), most_chunks):
        text = text if len(text) >= _LONGEST or not count else text + data[:_LONGEST]
        searched = kept + data
        for match in _MARK.finditer(searched, from_at):
            if not count:
                before = searched[: match.start()]
                at = match.start()
                line += before.count(b"\n") - kept.count(b"\n")
                prefix = before[before.rfind(b"\n") + 1 :][-_BEFORE:]
                text = searched[at : at + _LONGEST]
            count += 1
        line += 0 if count else data.count(b"\n")
        kept = searched[-_BEFORE - _MARK_BYTES :]
        # A mark that is whole within what is kept was met.
        from_at = max(0, len(kept) - _MARK_BYTES + 1)
    return _Found(_cut(text.decode("utf-8", "replace")), prefix.decode("utf-8", "replace"), line, count)


def _cut(text: str) -> str:
    """Cut a message off from what follows: its line, or several if a terminal wrapped it."""
    first = text.partition("\n")[0]
    said = parse_oom_text(first)
    if said is None or said.total_bytes is not None:
        return first.rstrip()
    return " ".join(text.partition("\n\n")[0].partition(_TRACEBACK)[0].split())


def _make_stats(said: OomText) -> dict[str, float]:
    known = {"allocated_bytes": said.allocated_bytes, "reserved_bytes": said.reserved_bytes}
    return {f"{name}.all.current": size for name, size in known.items() if size is not None}


def _make_notes(said: OomText) -> Iterator[str]:
    for pid, other_bytes in said.others:
        yield f"process {pid} used {format_bytes(other_bytes)} of the device"
    if said.own_bytes is not None:
        yield f"the process that failed used {format_bytes(said.own_bytes)} of the device in total"
    if said.allowed_bytes is not None:
        yield f"the process was limited to {format_bytes(said.allowed_bytes)}"
    if said.in_pools_bytes is not None:
        size = format_bytes(said.in_pools_bytes)
        yield f"{size} of the allocated bytes were in private pools, such as those of CUDA graphs"
