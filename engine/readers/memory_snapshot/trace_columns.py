"""Events of a device into columns; `frames` and more recent keys may be absent from any of them."""

from array import array

from ...errors import InputFileError
from ...model.memory_snapshot import UNMEASURED, TraceAction, TraceColumns
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
from .stack_interning import StackInterner

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
