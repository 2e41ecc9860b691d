"""What lived on a device at one moment of a file, or at two, as text and JSON (`vramscope.moment/1`)."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from ...analyzers.diff.model import say_signed
from ...analyzers.sentence import count, cut_words
from ...analyzers.snapshot_summary.cursor import (
    By,
    ChangeGroups,
    LiveGroups,
    LiveMoment,
    OldValues,
    TimeCursor,
)
from ...analyzers.snapshot_summary.recorded_moment import DeviceMoment, compare_devices, describe_sample
from ...engine.errors import UsageError
from ...engine.model import Sample
from ...engine.model.memory_snapshot import Frame, MemorySnapshot, TraceAction
from ...engine.recording import Recording
from ...engine.replay.moment_text import parse_moment
from ...engine.replay.node_player import SILENT_TICKS
from ...engine.text import make_printable
from ...engine.units import format_age, format_bytes, format_seconds, format_share
from ..stack_text import show_frame
from ..text import UNKNOWN, format_rows, show_bytes, show_number, wrap
from .text import NOTHING_ALLOCATED, check_device, show_time

WORDS = "start, end, peak, oom"
_TIMES = "1h20m, 35%, 14:03 or 2025-10-09 14:03"
_NO_TRACE = (
    "the snapshot has no events, so only its end is known: record them with "
    "torch.cuda.memory._record_memory_history() before what you want to see"
)
_UNREAD = "{}: nothing was measured of it then"
_OLD = {
    "node": "{} has no sample at {} ({}): its values are the last that were recorded",
    "device": "{} was not measured at {} ({}): its memory is the last that was read",
    "rank": "{} did not report at {} ({}): its values are the last that it reported",
}
_NO_STACKS = "a recording holds no stacks: lines and modules are in memory snapshots"


_GAPS = "{:,} allocations of device {} have no end in the file: what lives is less than what is allocated"


class DeviceMoments(msgspec.Struct, frozen=True):
    device: str
    moments: tuple[LiveMoment, ...]
    """One or two, in the order in which they were asked for."""
    changes: tuple[ChangeGroups, ...] = ()
    """The second moment less the first; empty with one moment."""


class MomentReport(msgspec.Struct, frozen=True, kw_only=True):
    schema: Literal["vramscope.moment/1"] = "vramscope.moment/1"
    file: str
    kind: Literal["memory snapshot", "recording"]
    is_simulated: bool
    """Whether a device was modelled, so that its values were not measured."""
    devices: tuple[DeviceMoments, ...]
    notes: tuple[str, ...] = ()


class _Span(NamedTuple):
    """A `TimeSpan`: where the texts of moments are looked for."""

    start_s: float
    end_s: float
    clock: Literal["wall", "trace"]
    position_s: None = None


def report_snapshot(
    snapshot: MemorySnapshot, at: Sequence[str], *, top: int, device: int | None = None
) -> MomentReport:
    """Return what lived in a snapshot at one moment, or at two.

    Args:
        at: Texts of moments: `start`, `end`, `peak`, `oom`, `#1234` for the moment after so many events, or a
            time as `vramscope replay` takes it.
        top: Rows to keep of each grouping.
        device: The only device; None for all.

    Raises:
        UsageError: The file does not have the device, or a text is no moment of it.
    """
    check_device(device, snapshot.devices)
    cursors = [TimeCursor(snapshot, number) for number in snapshot.devices if device in {None, number}]
    spans = [cursor.span_s for cursor in cursors if cursor.span_s is not None]
    span_s = (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None
    return MomentReport(
        file="" if snapshot.path is None else snapshot.path.name,
        kind="memory snapshot",
        is_simulated=snapshot.simulated is not None,
        devices=tuple(_follow_device(snapshot, cursor, at, top, span_s) for cursor in cursors),
        notes=(
            *(() if snapshot.devices else (NOTHING_ALLOCATED,)),
            *snapshot.notes,
            *(_GAPS.format(it.lifetimes.lost, it.device) for it in cursors if it.lifetimes.lost),
        ),
    )


def _follow_device(
    snapshot: MemorySnapshot,
    cursor: TimeCursor,
    at: Sequence[str],
    top: int,
    span_s: tuple[float, float] | None,
) -> DeviceMoments:
    events = [find_event(snapshot, cursor, text, span_s) for text in at]
    return DeviceMoments(
        device=f"device {cursor.device}",
        moments=tuple(cursor.moment(event, top) for event in events),
        changes=cursor.changes(events[0], events[1], top) if len(events) == 2 else (),
    )


def find_event(
    snapshot: MemorySnapshot, cursor: TimeCursor, text: str, span_s: tuple[float, float] | None
) -> int:
    """Return the moment of a trace that a text names, as `TimeCursor` counts.

    Args:
        span_s: First and last event of all devices, from which times and shares count; None without times.

    Raises:
        UsageError: It is no moment of the trace.
    """
    written = text.strip()
    if written == "end":
        return cursor.newest
    if cursor.newest < 0:
        raise UsageError(f"{written[:40]}: {_NO_TRACE}")
    if written in ("start", "peak"):
        return cursor.peak if written == "peak" else -1
    if written == "oom":
        return _find_oom(snapshot, cursor)
    if written.startswith("#"):
        number = written[1:].replace(",", "")
        if not number.isdecimal() or len(number) > 12 or int(number) > cursor.newest + 1:
            raise UsageError(f"{written[:40]}: expected an event from #0 to #{cursor.newest + 1:,}")
        return int(number) - 1
    if span_s is not None:
        return cursor.find_event(parse_moment(written, _Span(*span_s, "wall"), f"{WORDS}, #1234, {_TIMES}"))
    if not written.endswith("%"):
        raise UsageError(f"{written[:40]}: the events have no times; expected {WORDS}, 35% or #1234")
    last = float(cursor.newest)
    return int(parse_moment(written, _Span(0.0, last, "trace")))


def _find_oom(snapshot: MemorySnapshot, cursor: TimeCursor) -> int:
    import numpy as np

    trace = next(trace for trace in snapshot.traces if trace.device == cursor.device)
    ooms = np.flatnonzero(np.asarray(trace.action) == TraceAction.OOM)
    if ooms.size:
        return int(ooms[-1])
    raise UsageError(f"oom: the trace of device {cursor.device} has no out-of-memory error")


def report_recording(
    recording: Recording, at: Sequence[str], *, top: int, device: int | None = None
) -> MomentReport:
    """Return what filled the devices of a recording at one moment, or at two; see `report_snapshot`.

    Raises:
        UsageError: It has no such device, or a text is no moment of it.
    """
    span_s = recording.span
    if span_s is None:
        raise UsageError(f"{recording.path.name}: the recording has no samples")
    check_device(device, tuple(sorted({it.index for it in recording.devices})))
    times_s = [_find_time(recording, text, span_s, device) for text in at]
    found = [_read_devices(recording, time_s, device) for time_s in times_s]
    # Also devices that no sample has then: one can be found later than the first sample.
    recorded = _list_devices(recording, device)
    names = list(dict.fromkeys([*recorded, *(name for each in found for name in each)]))
    has_several = len(recording.nodes) > 1
    old = [
        _describe_old(values, text.strip()[:40], it.node if has_several else "")
        for text, each in zip(at, found, strict=True)
        for it in each.values()
        for values in it.moment.old
    ]
    unread = [name for name in names if all(name not in each for each in found)]
    return MomentReport(
        file=recording.path.name,
        kind="recording",
        is_simulated=any(recorded.values()) or any(it.is_simulated for each in found for it in each.values()),
        devices=tuple(
            _pair(name, [each.get(name) for each in found], times_s, span_s[0], top) for name in names
        ),
        notes=(
            *dict.fromkeys(old),
            *(map(_UNREAD.format, unread) if names else ["no device was recorded"]),
            _NO_STACKS,
        ),
    )


def _describe_old(old: OldValues, at: str, node: str) -> str:
    """Say whose values are old at a moment, and how old, in the words of the live view.

    Args:
        node: Its node, where the recording has several, else empty.
    """
    name = f"{node} {old.name}" if node and old.kind != "node" else old.name
    ago = " ago" if old.state in ("lost", "ended") else ""
    age = "" if old.age_s is None else f" {format_age(old.age_s)}{ago}"
    reason = f": {old.reason}" if old.reason else ""
    return _OLD[old.kind].format(name, at, f"{old.state}{age}{reason}")


def _pair(
    name: str, found: Sequence[DeviceMoment | None], times_s: Sequence[float], start_s: float, top: int
) -> DeviceMoments:
    """Return a device at its moments; unmeasured at one at which it was not there."""
    moments = [
        LiveMoment(None, time_s, None, None, None) if it is None else it.moment
        for it, time_s in zip(found, times_s, strict=True)
    ]
    return DeviceMoments(
        name,
        tuple(_cut_rows(it, start_s, top) for it in moments),
        compare_devices(found[0], found[1], top) if len(found) == 2 else (),
    )


def _find_time(recording: Recording, text: str, span_s: tuple[float, float], device: int | None) -> float:
    written = text.strip()
    if written in ("start", "end"):
        return span_s[written == "end"]
    if written == "oom":
        times_s = [event.time_s for event in recording.events(kinds={"oom"})]
        if not times_s:
            raise UsageError("oom: the recording has no out-of-memory error")
        return max(times_s)
    if written == "peak":
        return _find_peak(recording, device, span_s[1])
    sample = recording.sample_at(span_s[1])
    clock = "wall" if sample is None else sample.clock
    return parse_moment(written, _Span(*span_s, clock), f"{WORDS}, {_TIMES}")


def _find_peak(recording: Recording, device: int | None, end_s: float) -> float:
    """Return when most was used on one device: of the fullest minute the sample with the most."""
    chosen = {it.uuid for it in recording.devices if device in {None, it.index}}
    minutes = [
        (minute.used_max_bytes, minute.start_s, minute.device_uuid)
        for minute in recording.overview()
        if minute.used_max_bytes is not None and minute.device_uuid in chosen
    ]
    if not minutes:
        raise UsageError("peak: the recording has no used bytes of that device")
    _, start_s, uuid = max(minutes)
    used = [
        (it.memory.used_bytes or 0, -sample.time_s)
        for sample in recording.samples(start_s, start_s + 60)
        for it in sample.devices
        if it.uuid == uuid
    ]
    return -max(used)[1] if used else end_s


def _read_devices(recording: Recording, time_s: float, device: int | None) -> dict[str, DeviceMoment]:
    nodes = recording.nodes
    found: dict[str, DeviceMoment] = {}
    for node in nodes:
        sample: Sample | None = recording.sample_at(time_s, node=node)
        late_s = 0.0 if sample is None else time_s - sample.time_s
        is_late = sample is not None and late_s > SILENT_TICKS * sample.interval_s
        for each in () if sample is None else describe_sample(sample, late_s if is_late else 0.0):
            if device in {None, each.number}:
                found[each.name if len(nodes) == 1 else f"{node} {each.name}"] = each
    return found


def _list_devices(recording: Recording, device: int | None) -> dict[str, bool]:
    """Return the recorded devices by name, and whether each was modelled."""
    has_several = len(recording.nodes) > 1
    return {
        f"{it.node} device {it.label}" if has_several else f"device {it.label}": it.is_simulated
        for it in recording.devices
        if device in {None, it.index}
    }


def _cut_rows(moment: LiveMoment, start_s: float, top: int) -> LiveMoment:
    groups = tuple(msgspec.structs.replace(each, rows=each.rows[:top]) for each in moment.groups)
    after_s = None if moment.time_s is None else moment.time_s - start_s
    return msgspec.structs.replace(moment, after_s=after_s, groups=groups)


# The report as plain text for people.

_TITLES: dict[By, str] = {
    "line": "lines that allocated it",
    "module": "modules",
    "kind": "kinds of allocations",
    "part": "parts of the device",
    "process": "processes",
}


def describe_moments(report: MomentReport, width: int) -> str:
    lines: list[str] = []
    if report.is_simulated:
        lines += [*wrap("simulated device: values are modelled, not measured", width), ""]
    for each in report.devices:
        lines.append(cut_words(f"{each.device}, {report.kind} {make_printable(report.file)}", width))
        lines += describe_levels(each.moments, width)
        if len(each.moments) == 2:
            for changes in each.changes:
                lines += describe_changes(changes, width)
        else:
            moment = each.moments[0]
            live_bytes = moment.allocated_bytes if moment.live_bytes is None else moment.live_bytes
            for groups in moment.groups:
                whole = moment.used_bytes if groups.by in ("part", "process") else live_bytes
                lines += _describe_groups(groups, whole, width)
        lines.append("")
    for note in report.notes:
        lines += wrap(f"note: {make_printable(note)}", width)
    return "\n".join(lines).rstrip("\n") + "\n"


def describe_levels(moments: Sequence[LiveMoment], width: int, titles: Sequence[str] = ()) -> Iterator[str]:
    """Yield a table of the levels of one moment or two, and of what they differ in.

    Args:
        titles: Of the columns; by default when the moments are.
    """
    readers: tuple[tuple[str, Callable[[LiveMoment], int | None]], ...] = (
        ("allocated", lambda it: it.allocated_bytes),
        ("reserved", lambda it: it.reserved_bytes),
        ("used", lambda it: it.used_bytes),
        ("capacity", lambda it: it.total_bytes),
    )
    rows = [list(titles) or ["moment", *map(_name_moment, moments)]]
    for name, read in readers:
        sizes = [read(it) for it in moments]
        if any(size is not None for size in sizes):
            rows.append(
                [name, *map(show_bytes, sizes), *([_change(sizes[0], sizes[1])] if len(sizes) == 2 else [])]
            )
    blocks = [it.live_blocks for it in moments]
    if any(number is not None for number in blocks):
        rows.append(["live blocks", *map(show_number, blocks)])
    rows = [row + [""] * (max(map(len, rows)) - len(row)) for row in rows]
    yield from format_rows(rows, "l" + "r" * (len(rows[0]) - 1), width)


def _name_moment(moment: LiveMoment) -> str:
    event = "" if moment.event is None else f"event {moment.event:,}"
    after = "" if moment.after_s is None else f"after {format_seconds(moment.after_s, 3)}"
    when = "" if moment.time_s is None or moment.time_s < 1e8 else show_time(moment.time_s) or ""
    return ", ".join(filter(None, (after or event, when))) or "end"


def _describe_groups(groups: LiveGroups, whole_bytes: int | None, width: int) -> Iterator[str]:
    if not groups.rows:
        return
    yield ""
    yield cut_words(_title(groups.by, len(groups.rows), groups.groups), width)
    for row in groups.rows:
        share = "" if not whole_bytes else format_share(row.size_bytes / whole_bytes, 1)
        blocks = "" if row.blocks is None else count(row.blocks, "block")
        lead = f"  {format_bytes(row.size_bytes):>9}  {share:>8}  " + (f"{blocks:>14}  " if blocks else "")
        yield _name_row(lead, row.name, row.frame, width)


def describe_changes(
    changes: ChangeGroups,
    width: int,
    columns: str = "difference, first, second",
    absent: tuple[str, str] = ("0 B", "0 B"),
) -> Iterator[str]:
    """Yield what differs by line, module or kind.

    Args:
        absent: What stands for nothing at the first moment, and at the second.
    """
    yield ""
    if not changes.rows:
        yield cut_words(f"{_TITLES[changes.by]}: no difference", width)
        return
    yield cut_words(f"{_title(changes.by, len(changes.rows), changes.groups)}: {columns}", width)
    sizes = [
        [absent[side] if size == 0 else show_bytes(size) for side, size in enumerate(pair)]
        for pair in ((row.first_bytes, row.second_bytes) for row in changes.rows)
    ]
    cells = max(9, *(len(text) for pair in sizes for text in pair))
    for row, (first, second) in zip(changes.rows, sizes, strict=True):
        lead = f"  {_signed(row.change_bytes):>10}  {first:>{cells}}  {second:>{cells}}  "
        yield _name_row(lead, row.name, row.frame, width)


def _title(by: By, shown: int, groups: int) -> str:
    return _TITLES[by] if shown >= groups else f"{_TITLES[by]} ({shown:,} of {groups:,})"


def _name_row(lead: str, name: str, frame: Frame | None, width: int) -> str:
    return (
        cut_words(f"{lead}{make_printable(name)}", width) if frame is None else show_frame(frame, width, lead)
    )


def _change(first: int | None, second: int | None) -> str:
    return _signed(None if first is None or second is None else second - first)


def _signed(change_bytes: int | None) -> str:
    return UNKNOWN if change_bytes is None else say_signed(change_bytes)
