"""A flight record, and the folder in which a process leaves it when it runs out of memory."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec

from ..errors import InputFileError
from ..model import ModelStateReading, RankCoordinates
from ..model.memory_snapshot import (
    FlightDevice,
    FlightFailure,
    FlightProcess,
    FlightRecord,
    FlightSample,
    FlightStep,
    FlightTruncation,
)
from ..model.sample import ALLOCATED, AWAITING_FREE, FREE, LiveStack, Segment
from ..paths import locate_runtime_folder, state_folder
from ..units import MIB, format_bytes
from .base.input_file import lower_first, show_name, show_path
from .base.packed_file import CUT_NOTE, PackedFile

# Every field but `schema` may be missing or null. Unknown fields are ignored, so that a newer probe of the
# same version may add some; an unknown newer version is refused.

VERSION = 1
SCHEMA_NAME = "vramscope.flight"
SIZE_LIMIT_BYTES = 64 * MIB
"""A larger file is refused before it is read."""
CONTENT_LIMIT_BYTES = 256 * MIB
"""More content than this is not decompressed."""
MOST_MEMBERS = 1 << 20
"""Lists and objects: ten times what the probe writes at most, and each takes 150 bytes."""
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
    """Read what the probe wrote at an out-of-memory error.

    Raises:
        InputFileError: The file cannot be read, is no flight record, or is of a newer version.
    """
    content = _read_content(path)
    _check_schema(path, content)
    try:
        record = msgspec.json.decode(content, type=_Record)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        _refuse(path, error)
    return _build_record(record, show_name(path))


def _read_content(path: Path) -> bytearray:
    file = PackedFile(path, limit_bytes=SIZE_LIMIT_BYTES)
    content = bytearray()
    for data in file.chunks():
        content += data
        if len(content) > CONTENT_LIMIT_BYTES:
            file.close()
            limit = format_bytes(CONTENT_LIMIT_BYTES)
            raise InputFileError(f"{show_path(path)}: holds more than {limit} of text; {_EXPECTATION}")
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
            f"{show_path(path)}: written by a newer vramscope ({schema}); this one reads versions up to "
            f"{VERSION}, so update vramscope"
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
        values = {name: row[column] for name, column in named if column < len(row)}
        samples.append(FlightSample(**{name: _fit(name, value) for name, value in values.items()}))
    return tuple(samples)


def _fit(name: str, value: float | bool | None) -> Any:  # noqa: ANN401 - of the type of its field
    return value if value is None or name == "time_s" else int(value)


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


PATTERN = "oom-*.json.gz"
"""Names of flight records; the probe writes under another name and renames."""


def list_flight_folders(environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Return where a probe writes its flight records, the place that it tries first before the others.

    Args:
        environ: Environment variables; None for those of this process.
    """
    environ = os.environ if environ is None else environ
    folders = [state_folder(environ) / "flight", locate_runtime_folder(environ) / "flight"]
    chosen = environ.get("VRAMSCOPE_FLIGHT_DIR")
    return tuple(dict.fromkeys([Path(chosen), *folders] if chosen else folders))


def find_newest_flight_record(folders: Sequence[Path]) -> Path | None:
    """Return the flight record that was written last, or None where there is none.

    Args:
        folders: Where to look; those that are absent or cannot be read hold none.
    """
    found = [record for folder in folders for record in _list_records(folder)]
    return max(found)[1] if found else None


def _list_records(folder: Path) -> Iterator[tuple[float, Path]]:
    """Yield when each record of a folder was written, and its path."""
    try:
        paths = list(folder.glob(PATTERN))
    except OSError:
        return
    for path in paths:
        try:
            yield path.stat().st_mtime, path
        except OSError:
            continue  # removed in this moment
