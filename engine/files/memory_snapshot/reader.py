"""Reading a snapshot file: start the decoding process, bound it, and explain its end."""

import os
import signal
import subprocess
import sys
from array import array
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from ...child_processes import find_root
from ...errors import InputFileError
from ...model.memory_snapshot import (
    UNMEASURED,
    Annotation,
    IntColumn,
    MemorySnapshot,
    SimulatedCard,
    TraceAction,
    TraceColumns,
)
from ...units import GIB, MIB, format_bytes
from ..base.input_file import open_input_file, show_path
from .segment_columns import (
    Place,
    SegmentCollector,
    StackInterner,
    expect_address,
    expect_dict,
    expect_int,
    expect_list,
    make_getter,
    make_int_getter,
    name_type,
    refuse,
    take,
)

# RFC 1952.
GZIP_MARK = b"\x1f\x8b"


class Reply(msgspec.Struct, frozen=True):
    """A snapshot, or why there is none."""

    snapshot: MemorySnapshot | None = None
    refusal: str | None = None
    is_out_of_memory: bool = False


def encode_reply(reply: Reply) -> bytes:
    return msgspec.msgpack.encode(reply, enc_hook=_encode_column)


def decode_reply(data: bytes) -> Reply:
    """Decode a reply; a part of one raises `msgspec.DecodeError`."""
    return msgspec.msgpack.decode(data, type=Reply, dec_hook=_decode_column)


def _encode_column(value: object) -> object:
    if isinstance(value, array):
        return value.typecode, memoryview(value).cast("B")
    raise NotImplementedError


def _decode_column(kind: type, value: tuple[str, bytes]) -> IntColumn:
    typecode, data = value
    column = array(typecode)
    column.frombytes(data)
    return column


MOST_ANNOTATIONS = 10_000
_MOST_SETTINGS = 100
_MOST_CHARS = 1000
# Key in the settings of a snapshot from a simulated device: a dict of what was modelled.
_SIMULATED = "vramscope_simulated"


class Runs(Protocol):
    """Runs of events that were read at once; in the tree is an empty list in place of each."""

    @property
    def are_all_taken(self) -> bool: ...

    def take(self, columns: TraceColumns, stacks: StackInterner) -> None:
        """Append the next run, in the order of the file, to the columns of its trace."""

    def resolve(self, event: object) -> object:
        """Return an event that is in no run, with its list where it refers to one of the runs."""


def convert_tree(root: object, runs: Runs | None = None) -> MemorySnapshot:
    """Convert an unpickled snapshot, a dict with `segments` or the bare list of segments, to columns."""
    if isinstance(root, list):
        root = {"segments": root}
    if not isinstance(root, dict):
        refuse((), f"expected a dict with `segments` or a list of segments, got {name_type(root)}")
    if "segments" not in root:
        keys = ", ".join(ascii(key)[:40] for key in list(root)[:6]) or "nothing"
        refuse((), f"expected a memory snapshot, a dict with `segments`; got {keys}")
    stacks = StackInterner()
    segments = SegmentCollector(stacks)
    segments.add_all(expect_list(root["segments"], ("segments",)), ("segments",))
    traces = read_traces(root, stacks, runs)
    annotations, omitted = _read_annotations(root.get("external_annotations"))
    return MemorySnapshot(
        segments=segments.columns,
        blocks=segments.blocks,
        traces=traces,
        stacks=stacks.build(),
        settings=_read_settings(root.get("allocator_settings")),
        annotations=annotations,
        annotations_omitted=omitted,
        notes=tuple(segments.notes),
        simulated=_read_simulated(root.get("allocator_settings")),
    )


def _read_settings(settings: object) -> tuple[tuple[str, str], ...]:
    if settings is None:
        return ()
    fields = expect_dict(settings, ("allocator_settings",))
    pairs = [(key, value) for key, value in fields.items() if key != _SIMULATED][:_MOST_SETTINGS]
    return tuple((_format_setting(key), _format_setting(value)) for key, value in pairs)


def _read_simulated(settings: object) -> SimulatedCard | None:
    """Return the simulated card; the key alone says that one was simulated."""
    if not isinstance(settings, dict) or settings.get(_SIMULATED) in (None, False):
        return None
    fields = settings[_SIMULATED] if isinstance(settings[_SIMULATED], dict) else {}
    total = fields.get("total_bytes")
    name = fields.get("name")
    is_size = isinstance(total, int) and 0 < total < 2**63
    return SimulatedCard(total if is_size else None, name[:_MOST_CHARS] if isinstance(name, str) else None)


def _format_setting(value: object) -> str:
    """A setting as text; a table of divisions as `size:divisions` pairs."""
    if isinstance(value, dict):
        pairs = list(value.items())[:_MOST_SETTINGS]
        return ",".join(f"{_format_setting(key)}:{_format_setting(part)}" for key, part in pairs)[
            :_MOST_CHARS
        ]
    if isinstance(value, str | int | float | bool | None):
        return str(value)[:_MOST_CHARS]
    return name_type(value)


def _read_annotations(annotations: object) -> tuple[tuple[Annotation, ...], int]:
    if annotations is None:
        return (), 0
    listed = expect_list(annotations, ("external_annotations",))
    kept = []
    for index, annotation in enumerate(listed[:MOST_ANNOTATIONS]):
        place = ("external_annotations", index)
        fields = expect_dict(annotation, place)
        kept.append(
            Annotation(
                device=expect_int(fields.get("device", 0), (*place, "device")),
                time_us=expect_int(fields.get("time_us", UNMEASURED), (*place, "time_us")),
                name=_format_setting(fields.get("name", "")),
                stage=_format_setting(fields.get("stage", "")),
            )
        )
    return tuple(kept), len(listed) - len(kept)


_ACTIONS: dict[object, int] = {
    action.name.lower(): int(action) for action in TraceAction if action is not TraceAction.OTHER
}
_GET_ACTION = make_getter("action")
_GET_ADDRESS, _GET_SIZE, _GET_STREAM, _GET_TIME = map(make_int_getter, ("addr", "size", "stream", "time_us"))


def collect_trace(
    events: list[object],
    device: int,
    stacks: StackInterner,
    place: Place,
    *,
    is_overflowed: bool | None,
    runs: Runs | None = None,
) -> TraceColumns:
    """Collect the events of one device in columns; `is_overflowed` None: the file does not say."""
    columns = _make_columns(device, is_overflowed)
    if runs is not None:
        for index, event in enumerate(events):
            if event == []:
                runs.take(columns, stacks)
            else:
                _append_event(columns, runs.resolve(event), stacks, (*place, index))
        return columns
    try:
        _collect_at_once(columns, events, stacks, (*place, "frames"))
    except (InputFileError, KeyError, TypeError, OverflowError, ValueError, AttributeError):
        # One by one, other dialects are understood, and what is wrong is found and named.
        columns = _make_columns(device, is_overflowed)
        for index, event in enumerate(events):
            _append_event(columns, event, stacks, (*place, index))
    return columns


def _make_columns(device: int, is_overflowed: bool | None) -> TraceColumns:
    return TraceColumns(
        device=device,
        action=array("b"),
        address=array("Q"),
        size_bytes=array("q"),
        stream=array("q"),
        time_us=array("q"),
        stack=array("i"),
        is_overflowed=is_overflowed,
    )


def _collect_at_once(
    columns: TraceColumns, events: list[object], stacks: StackInterner, stack_place: Place
) -> None:
    columns.action.extend(map(_ACTIONS.__getitem__, map(_GET_ACTION, events)))
    oom = int(TraceAction.OOM)
    if oom in columns.action:
        raise ValueError
    columns.address.extend(map(_GET_ADDRESS, events))
    columns.size_bytes.extend(map(_GET_SIZE, events))
    columns.stream.extend(map(_GET_STREAM, events))
    columns.time_us.extend(map(_GET_TIME, events))
    frames = [event.get("frames") for event in events]  # type: ignore[attr-defined]
    columns.stack.extend(stacks.intern_all(frames, stack_place))
    if min(columns.size_bytes, default=0) < 0 or min(columns.time_us, default=0) < 0:
        raise ValueError


def _append_event(columns: TraceColumns, event: object, stacks: StackInterner, place: Place) -> None:
    fields = expect_dict(event, place)
    name = take(fields, "action", place)
    if not isinstance(name, str):
        refuse((*place, "action"), f"expected text, got {name_type(name)}")
    action = _ACTIONS.get(name, int(TraceAction.OTHER))
    key = "device_free" if action == TraceAction.OOM else "addr"
    size = expect_int(take(fields, "size", place), (*place, "size"), least=0)
    time_us = expect_int(fields.get("time_us", UNMEASURED), (*place, "time_us"), least=UNMEASURED)
    columns.action.append(action)
    columns.address.append(expect_address(fields.get(key, fields.get("addr", 0)), (*place, key)))
    columns.size_bytes.append(size)
    columns.stream.append(expect_int(fields.get("stream", 0), (*place, "stream")))
    columns.time_us.append(time_us)
    columns.stack.append(stacks.intern(fields.get("frames"), (*place, "frames")))


def read_traces(
    root: dict[object, object], stacks: StackInterner, runs: Runs | None = None
) -> tuple[TraceColumns, ...]:
    devices = expect_list(root.get("device_traces") or [], ("device_traces",))
    overflows = root.get("trace_alloc_overflowed")
    seen: set[int] = set()
    traces = []
    for device, events in enumerate(devices):
        place = ("device_traces", device)
        listed = expect_list(events, place)
        if not listed:
            continue
        if id(listed) in seen:
            refuse(place, "an earlier device has the same list of events; expected its own")
        seen.add(id(listed))
        is_overflowed = _read_overflow(overflows, device)
        traces.append(collect_trace(listed, device, stacks, place, is_overflowed=is_overflowed, runs=runs))
    if runs is not None and not runs.are_all_taken:
        refuse(("device_traces",), "events are elsewhere as well")
    return tuple(traces)


def _read_overflow(overflows: object, device: int) -> bool | None:
    if not isinstance(overflows, list | tuple) or device >= len(overflows):
        return None
    return bool(overflows[device])


# A larger file is refused before it is read.
SIZE_LIMIT_BYTES = 16 * GIB
# Memory that one byte of the file may need; a million blocks with stacks were measured at 4.
MEMORY_PER_BYTE = 16
MEMORY_PER_PACKED_BYTE = 400
MEMORY_BASE_BYTES = 256 * MIB
SECONDS_BASE = 60
BYTES_PER_SECOND = MIB
_BOOT = "import sys; sys.path[:] = sys.argv[3:]; from {package}.decoder import main; main()"


def read_memory_snapshot(path: Path) -> MemorySnapshot:
    """Read a PyTorch memory snapshot, in any dialect, compressed by gzip or not.

    A process of its own unpickles the file: it loads no globals, and its memory is bounded by the size of the
    file.
    """
    with open_input_file(path, SIZE_LIMIT_BYTES) as (file, size_bytes):
        # The position belongs to the process that reads on, so it stays at the start.
        is_packed = os.pread(file.fileno(), 2, 0) == GZIP_MARK
        limit_bytes = MEMORY_BASE_BYTES + size_bytes * (
            MEMORY_PER_PACKED_BYTE if is_packed else MEMORY_PER_BYTE
        )
        reply = _decode(path, file, limit_bytes, SECONDS_BASE + size_bytes // BYTES_PER_SECOND)
    if reply.is_out_of_memory:
        raise InputFileError(
            f"{show_path(path)}: reading it needs more than {format_bytes(limit_bytes)} of memory; a "
            f"snapshot of {format_bytes(size_bytes)} needs less: the file is damaged, or this machine "
            "is short of memory"
        )
    if reply.snapshot is None:
        raise InputFileError(f"{show_path(path)}: {reply.refusal}")
    return msgspec.structs.replace(reply.snapshot, path=path)


def _decode(path: Path, file: BinaryIO, limit_bytes: int, limit_s: int) -> Reply:
    command = [sys.executable, "-P", "-E", "-S", "-c", _BOOT.format(package=__package__)]
    places = [place for place in sys.path if Path(place).is_absolute()]
    arguments = [str(limit_bytes), str(limit_s), str(find_root()), *places]
    result = subprocess.run([*command, *arguments], stdin=file, capture_output=True, check=False)
    try:
        return decode_reply(result.stdout)
    except msgspec.DecodeError as error:
        raise InputFileError(f"{show_path(path)}: {_explain_end(result)}") from error


def _explain_end(result: subprocess.CompletedProcess[bytes]) -> str:
    if result.returncode == -signal.SIGSEGV:
        return "Python's unpickler crashed on it; the file is damaged or malicious"
    if result.returncode == -signal.SIGXCPU:
        return "reading it took longer than any snapshot of that size; the file is damaged"
    if result.returncode == -signal.SIGKILL:
        return "the system killed the reader, probably for lack of memory; free some and try again"
    told = result.stderr.decode(errors="replace").strip().splitlines()
    last = ascii(told[-1])[1:-1] if told else "no message"
    return f"reading it failed with status {result.returncode}: {last}"
