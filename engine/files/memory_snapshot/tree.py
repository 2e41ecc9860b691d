"""What PyTorch pickled, dicts and lists of plain values, into columns: every dialect from 1.13 on."""

from array import array

from ...errors import InputFileError
from ...model.memory_snapshot import (
    UNMEASURED,
    Annotation,
    MemorySnapshot,
    SimulatedCard,
    TraceAction,
    TraceColumns,
)
from .places import (
    Place,
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
from .segment_columns import SegmentCollector
from .stack_interning import StackInterner

MOST_ANNOTATIONS = 10_000
_MOST_SETTINGS = 100
_MOST_CHARS = 1000
_SIMULATED = "vramscope_simulated"
"""Beside the settings of a snapshot from a simulated device: a dict of what was modelled."""


def convert_tree(root: object) -> MemorySnapshot:
    """Return the columns of an unpickled snapshot.

    Args:
        root: A dict with `segments`, or the bare list of segments that `memory_snapshot()` returns.

    Raises:
        InputFileError: It is no snapshot; the text says where and what was expected.
    """
    if isinstance(root, list):
        root = {"segments": root}
    if not isinstance(root, dict):
        refuse((), f"expected a dict with `segments` or a list of segments, got {name_type(root)}")
    if "segments" not in root:
        keys = ", ".join(ascii(key)[:40] for key in list(root)[:6]) or "nothing"
        refuse((), f"expected a memory snapshot, a dict with `segments`; it has {keys}")
    stacks = StackInterner()
    segments = SegmentCollector(stacks)
    for index, segment in enumerate(expect_list(root["segments"], ("segments",))):
        segments.add(segment, ("segments", index))
    traces = read_traces(root, stacks)
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
    return tuple((_show(key), _show(value)) for key, value in pairs)


def _read_simulated(settings: object) -> SimulatedCard | None:
    """Return the card that was modelled: the key alone says that one was."""
    if not isinstance(settings, dict) or settings.get(_SIMULATED) in (None, False):
        return None
    fields = settings[_SIMULATED] if isinstance(settings[_SIMULATED], dict) else {}
    total = fields.get("total_bytes")
    name = fields.get("name")
    is_size = isinstance(total, int) and 0 < total < 2**63
    return SimulatedCard(total if is_size else None, name[:_MOST_CHARS] if isinstance(name, str) else None)


def _show(value: object) -> str:
    """Return a setting as text; a table of divisions as `size:divisions` pairs."""
    if isinstance(value, dict):
        pairs = list(value.items())[:_MOST_SETTINGS]
        return ",".join(f"{_show(key)}:{_show(part)}" for key, part in pairs)[:_MOST_CHARS]
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
                name=_show(fields.get("name", "")),
                stage=_show(fields.get("stage", "")),
            )
        )
    return tuple(kept), len(listed) - len(kept)


_ACTIONS: dict[object, int] = {
    action.name.lower(): int(action) for action in TraceAction if action is not TraceAction.OTHER
}
_GET_ACTION = make_getter("action")
_GET_ADDRESS, _GET_SIZE, _GET_STREAM, _GET_TIME = map(make_int_getter, ("addr", "size", "stream", "time_us"))


def collect_trace(
    events: list[object], device: int, stacks: StackInterner, place: Place, *, is_overflowed: bool | None
) -> TraceColumns:
    """Return the events of one device in columns.

    Args:
        events: As the file has them, oldest first.
        device: Ordinal of the device.
        stacks: Where their stacks are kept.
        place: Where in the file they stand.
        is_overflowed: Whether older events were dropped; None where the file does not tell.

    Raises:
        InputFileError: One of them is not an event.
    """
    columns = _make_columns(device, is_overflowed)
    try:
        _collect_at_once(columns, events, stacks, (*place, "frames"))
    except (InputFileError, KeyError, TypeError, OverflowError, ValueError, AttributeError):
        # One by one, other dialects are understood, and what is wrong is found and named.
        columns = _make_columns(device, is_overflowed)
        for index, event in enumerate(events):
            _add_event(columns, event, stacks, (*place, index))
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


def _add_event(columns: TraceColumns, event: object, stacks: StackInterner, place: Place) -> None:
    """Add one event of any dialect."""
    fields = expect_dict(event, place)
    action = _read_action(fields, place)
    key = "device_free" if action == TraceAction.OOM else "addr"
    size = expect_int(take(fields, "size", place), (*place, "size"), least=0)
    time_us = expect_int(fields.get("time_us", UNMEASURED), (*place, "time_us"), least=UNMEASURED)
    columns.action.append(action)
    columns.address.append(expect_address(fields.get(key, fields.get("addr", 0)), (*place, key)))
    columns.size_bytes.append(size)
    columns.stream.append(expect_int(fields.get("stream", 0), (*place, "stream")))
    columns.time_us.append(time_us)
    columns.stack.append(stacks.intern(fields.get("frames"), (*place, "frames")))


def _read_action(fields: dict[object, object], place: Place) -> int:
    action = take(fields, "action", place)
    if not isinstance(action, str):
        refuse((*place, "action"), f"expected text, got {name_type(action)}")
    return _ACTIONS.get(action, int(TraceAction.OTHER))


def read_traces(root: dict[object, object], stacks: StackInterner) -> tuple[TraceColumns, ...]:
    """Return the events of each device that has any.

    Raises:
        InputFileError: `device_traces` is not one list of events a device.
    """
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
            refuse(place, "the same list of events stands at an earlier device; expected its own")
        seen.add(id(listed))
        is_overflowed = _read_overflow(overflows, device)
        traces.append(collect_trace(listed, device, stacks, place, is_overflowed=is_overflowed))
    return tuple(traces)


def _read_overflow(overflows: object, device: int) -> bool | None:
    if not isinstance(overflows, list | tuple) or device >= len(overflows):
        return None
    return bool(overflows[device])
