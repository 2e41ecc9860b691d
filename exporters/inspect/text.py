"""Memory snapshots, traces and flight records as text and JSON."""

import datetime
from collections.abc import Callable, Iterator, Sequence

import msgspec

from ...analyzers.sentence import count, count_cells, cut_words
from ...analyzers.snapshot_summary import (
    DeviceSummary,
    FailedRequest,
    FullnessBand,
    MemoryLevels,
    PoolFragmentation,
    RequestFit,
    SnapshotSummary,
    StackGroup,
    TraceSpan,
    summarize_snapshot,
)
from ...analyzers.snapshot_summary.flight import DeviceShares, FlightSummary, summarize_flight_record
from ...analyzers.snapshot_summary.settings_advice import SettingsAdvice, advise_settings
from ...engine.errors import Setting, SettingError, UsageError
from ...engine.model.memory_snapshot import FlightRecord, FlightSample, MemorySnapshot
from ...engine.replay.simulated_run import RankComparison, TraceComparison, describe_error
from ...engine.text import make_printable
from ...engine.units import MIB, format_age, format_bytes, format_seconds, format_share
from ..stack_text import render_frames, render_stacks
from ..text import UNKNOWN, draw_sparkline, format_rows, show_number, wrap

# A file of device memory, whichever kind it is, as one struct and as text.

NOTHING_ALLOCATED = "no segments and no events: nothing was allocated on any device"
# Why a capacity is refused.
NEEDS_TRACE = "needs a memory snapshot with recorded history: only its trace can be replayed"


class SnapshotReport(SnapshotSummary, frozen=True, kw_only=True):
    """A whole snapshot, with what its trace comes to under other allocator settings."""

    settings_advice: tuple[SettingsAdvice, ...] = ()
    """Simulated advice for each device; `reason` says why there is none."""


def summarize_memory_file(
    content: MemorySnapshot | FlightRecord,
    *,
    top: int,
    device: int | None = None,
    capacity_bytes: int | None = None,
) -> SnapshotReport | FlightSummary:
    """Return the report of a file, with the effect of other allocator settings; takes seconds.

    Args:
        top: Stacks to keep, of each device.
        device: The only device to report; None for all.
        capacity_bytes: What the allocator can reserve where settings are compared; None for what the trace
            shows.

    Raises:
        UsageError: The file does not have the device, or no trace to replay with the capacity.
    """
    if isinstance(content, FlightRecord):
        check_capacity(content, capacity_bytes)
        return summarize_flight(content, top=top, device=device)
    summary = summarize_devices(content, top=top, device=device)
    advice = _advise(content, summary, capacity_bytes)
    return SnapshotReport(**msgspec.structs.asdict(summary), settings_advice=advice)


def describe_memory_file(
    content: MemorySnapshot | FlightRecord,
    *,
    top: int,
    device: int | None = None,
    capacity_bytes: int | None = None,
    width: int,
) -> str:
    """Return a file as text.

    Args:
        top: Stacks to show, of each device.
        device: The only device to report; None for all.
        capacity_bytes: What the allocator can reserve where settings are compared; None for what the trace
            shows.

    Raises:
        UsageError: The file does not have the device, or no trace to replay with the capacity.
    """
    if isinstance(content, FlightRecord):
        check_capacity(content, capacity_bytes)
        check_device(device, _list_devices(content))
        return describe_flight_record(content, width=width, top=top)
    summary = summarize_devices(content, top=top, device=device)
    return describe_summary(summary, width=width, advice=_advise(content, summary, capacity_bytes))


def _advise(
    content: MemorySnapshot, summary: SnapshotSummary, capacity_bytes: int | None
) -> tuple[SettingsAdvice, ...]:
    return tuple(
        advise_settings(content, each.device, capacity_bytes=capacity_bytes) for each in summary.devices
    )


def summarize_devices(content: MemorySnapshot, *, top: int, device: int | None) -> SnapshotSummary:
    """Return the summary of all devices of a snapshot, or of one.

    Args:
        top: Stacks to keep, of each device.
        device: The only device to report; None for all.

    Raises:
        UsageError: The file does not have the device.
    """
    check_device(device, content.devices)
    summary = summarize_snapshot(content, top=top)
    chosen = tuple(each for each in summary.devices if device in {None, each.device})
    return msgspec.structs.replace(summary, devices=chosen)


def summarize_flight(content: FlightRecord, *, top: int, device: int | None) -> FlightSummary:
    """Return what a flight record comes to.

    Args:
        device: The device that is expected; None for whichever it is.

    Raises:
        UsageError: The record is of a different device.
    """
    check_device(device, _list_devices(content))
    summary = summarize_flight_record(content)
    return msgspec.structs.replace(summary, stacks=summary.stacks[:top])


def _list_devices(record: FlightRecord) -> tuple[int, ...]:
    return () if record.device.index is None else (record.device.index,)


def check_device(device: int | None, known: tuple[int, ...]) -> None:
    """Raise a `UsageError` if a device is not among those of a file; None stands for all."""
    if device is not None and device not in known:
        told = f"the devices in the file are {', '.join(map(str, known))}"
        if len(known) < 2:
            told = f"the only device in the file is {known[0]}" if known else "the file has no device"
        raise UsageError(f"--devices {device}: {told}")


def check_capacity(content: MemorySnapshot | FlightRecord, capacity_bytes: int | None) -> None:
    """Raise a `UsageError` if a capacity is given for a file without a trace to replay."""
    if capacity_bytes is not None and isinstance(content, FlightRecord):
        raise SettingError(Setting("--capacity"), f" {NEEDS_TRACE}")


# A flight record as plain text for people: what failed, memory of the device, what was live, what to do.

DEFAULT_WIDTH = 80
LEAST_WIDTH = 40
MOST_STACKS = 10
_BAR_CELLS = 24


def describe_flight_record(
    record: FlightRecord, *, width: int = DEFAULT_WIDTH, top: int = MOST_STACKS
) -> str:
    width = max(width, LEAST_WIDTH)
    summary = summarize_flight_record(record)
    lines = [
        *_describe_head(summary, width),
        *_describe_request(summary, width),
        *_describe_shares(summary.shares, width),
        *_describe_live(summary, top, width),
        *_describe_past(record, summary, width),
        *_describe_advice(summary.advice, width),
        *_describe_rest(summary, width),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _describe_head(summary: FlightSummary, width: int) -> Iterator[str]:
    when = "" if summary.written_s is None else f" · {show_time(summary.written_s) or 'at an unknown time'}"
    simulated = "simulated device · " if summary.process.is_simulated else ""
    yield cut_words(f"{simulated}out of memory{when}", width)
    process = []
    if summary.process.pid is not None:
        process.append(f"pid {summary.process.pid}")
    if summary.process.coordinates is not None:
        process.append(f"rank {summary.process.coordinates.rank}")
    if summary.device.index is not None:
        process.append(f"device {summary.device.index}")
    facts = " · ".join(process)
    program, *arguments = summary.process.argv or ("",)
    # The name of an interpreter is enough: the script behind it says more than its folder.
    command = make_printable(" ".join([program.rpartition("/")[2] if arguments else program, *arguments]))
    if command or facts:
        # The command gives way: the process is what a person looks for elsewhere.
        shown = cut_words(command, width - count_cells(facts) - 5) if facts else cut_words(command, width - 2)
        yield cut_words(f"  {' · '.join(filter(None, (shown, facts)))}", width)
    yield ""
    for sentence in summary.sentences:
        yield from wrap(make_printable(sentence), width, "  ")
    yield ""


def _describe_request(summary: FlightSummary, width: int) -> Iterator[str]:
    if not summary.request.frames:
        return
    yield "where it was requested"
    yield from render_frames(summary.request.frames, width, summary.request.headline)
    yield ""


def _describe_shares(shares: DeviceShares, width: int) -> Iterator[str]:
    named = [
        ("allocated", shares.allocated_bytes, "live tensors"),
        ("awaiting free", shares.awaiting_bytes, "freed, another stream may use it"),
        ("stranded", shares.stranded_bytes, "free between live blocks"),
        ("cached", shares.cached_bytes, "free, could be given back"),
        ("no tensor", shares.unallocated_bytes, "reserved: cached or stranded"),
        ("other", shares.other_bytes, "context, libraries, other processes"),
        ("free", shares.free_bytes, "free on the device"),
    ]
    if all(size is None for _, size, _ in named):
        return
    total = shares.total_bytes
    yield cut_words("memory of the device" + (f" of {format_bytes(total)}" if total else ""), width)
    rows = [
        (name, format_bytes(size), _draw_bar(size, total), remark)
        for name, size, remark in named
        if size or name in ("allocated", "free")
    ]
    yield from format_rows(rows, "lrll", width)
    yield ""


def _draw_bar(size_bytes: int | None, total_bytes: int | None) -> str:
    if size_bytes is None or not total_bytes:
        return ""
    return "█" * min(_BAR_CELLS, round(_BAR_CELLS * size_bytes / total_bytes))


def _describe_live(summary: FlightSummary, top: int, width: int) -> Iterator[str]:
    if not summary.stacks:
        return
    shown = summary.stacks[:top]
    count = len(summary.stacks)
    yield cut_words(
        f"live memory by stack ({'all recorded' if count <= top else f'{top} of {count:,}'})", width
    )
    yield from render_stacks(shown, width)
    yield ""


def _describe_past(record: FlightRecord, summary: FlightSummary, width: int) -> Iterator[str]:
    top_bytes = _find_top(record, summary.shares)
    times = [sample.time_s for sample in record.samples if sample.time_s is not None]
    span = f", the last {format_age(max(0.0, times[-1] - times[0]))}" if len(times) > 1 else ""
    levels: list[tuple[str, Callable[[FlightSample], int | None]]] = [
        ("allocated", lambda sample: sample.allocated_bytes),
        ("reserved", lambda sample: sample.reserved_bytes),
    ]
    for name, read in levels:
        values = [read(sample) for sample in record.samples]
        if any(value is not None for value in values):
            yield cut_words(f"{name}, 0 to {format_bytes(top_bytes)}{span}", width)
            yield f"  {draw_sparkline(values, top_bytes, width - 2)}"
    floors = [step.floor_bytes for step in record.steps]
    if any(floor is not None for floor in floors):
        yield cut_words(f"least allocated in each step, 0 to {format_bytes(top_bytes)}", width)
        yield f"  {draw_sparkline(floors, top_bytes, width - 2)}"
    if record.samples or record.steps:
        yield ""


def _find_top(record: FlightRecord, shares: DeviceShares) -> int:
    """Return the scale of the graphs: the capacity of the device, else the most that was seen."""
    seen = [
        size
        for sample in record.samples
        for size in (sample.allocated_bytes, sample.reserved_bytes)
        if size is not None
    ]
    return shares.total_bytes or max([*seen, *(step.floor_bytes or 0 for step in record.steps)], default=0)


def _describe_advice(advice: Sequence[str], width: int) -> Iterator[str]:
    if not advice:
        return
    yield "conclusions"
    for sentence in advice:
        yield from wrap(f"- {make_printable(sentence)}", width, "  ")
    yield ""


def _describe_rest(summary: FlightSummary, width: int) -> Iterator[str]:
    left_out = [
        f"{count:,} {name}"
        for name, count in (
            ("samples", summary.truncated.samples),
            ("segments", summary.truncated.segments),
            ("blocks", summary.truncated.blocks),
        )
        if count
    ]
    if left_out:
        yield from wrap(f"left out of the record: {', '.join(left_out)}", width)
    if summary.message:
        yield from wrap(f"PyTorch said: {make_printable(summary.message)}", width)
    for note in summary.notes:
        yield from wrap(f"note: {make_printable(note)}", width)


def show_time(time_s: float) -> str | None:
    """Return a time as text; None for one that is on no calendar, as a damaged file may have it."""
    try:
        return f"{datetime.datetime.fromtimestamp(time_s, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return None


# A memory snapshot as plain text for people: conclusions first, sizes and stacks below.

DEFAULT_TOP = 10


def describe_snapshot(snapshot: MemorySnapshot, *, width: int = DEFAULT_WIDTH, top: int = DEFAULT_TOP) -> str:
    return describe_summary(summarize_snapshot(snapshot, top=top), width=width)


def describe_summary(
    summary: SnapshotSummary, *, width: int = DEFAULT_WIDTH, advice: Sequence[SettingsAdvice] = ()
) -> str:
    """Return a summary as text; `advice` is for the devices whose trace was replayed."""
    width = max(width, LEAST_WIDTH)
    lines = [*_describe_simulated(summary, width)]
    if not summary.devices:
        lines.append(NOTHING_ALLOCATED)
    for device in summary.devices:
        lines += _describe_device(device, width)
        lines += [
            line for one in advice if one.device == device.device for line in describe_advice(one, width)
        ]
        lines.append("")
    lines += _describe_settings(summary.settings, width)
    for note in summary.notes:
        lines += wrap(f"note: {make_printable(note)}", width)
    return "\n".join(lines).rstrip("\n") + "\n"


def _describe_simulated(summary: SnapshotSummary, width: int) -> Iterator[str]:
    card = summary.simulated
    if card is None:
        return
    size = "" if card.total_bytes is None else f" of {format_bytes(card.total_bytes)}"
    name = "" if card.name is None else f", {make_printable(card.name)}"
    yield from wrap(f"simulated device{size}{name}: values are modelled, not measured", width)
    yield ""


def _describe_device(device: DeviceSummary, width: int) -> Iterator[str]:
    yield f"device {device.device}"
    for sentence in device.sentences:
        yield from wrap(make_printable(sentence), width, "  ")
    yield ""
    yield from _describe_levels(device.levels, width)
    yield ""
    yield from _describe_stacks(device.stacks, device.stack_groups, width)
    yield from describe_failures(device.failures, device.failures_omitted, width)
    yield from describe_trace(device, width)
    yield from _describe_fullness(device.fullness, width)
    yield from _describe_pools(device.pools, width)


def _describe_levels(levels: MemoryLevels, width: int) -> Iterator[str]:
    rows = [
        (
            "reserved",
            levels.reserved_bytes,
            f"{count(levels.segments, 'segment')}, {count(levels.blocks, 'block')}",
        ),
        ("allocated", levels.allocated_bytes, ""),
        ("active", levels.active_bytes, count(levels.live_blocks, "live block")),
        ("requested", levels.requested_bytes, ""),
        ("internal", levels.internal_bytes, "active minus requested"),
        ("free", levels.free_bytes, f"largest block {format_bytes(levels.largest_free_bytes)}"),
        ("stranded", levels.stranded_bytes, f"in {count(levels.stranded_segments, 'segment')}"),
        ("releasable", levels.releasable_bytes, ""),
    ]
    yield from format_rows([(name, format_bytes(size), remark) for name, size, remark in rows], "lrl", width)


def _describe_stacks(stacks: Sequence[StackGroup], groups: int, width: int) -> Iterator[str]:
    if not stacks or (stacks[0].headline is None and groups == 1):
        return
    shown = "all of them" if groups <= len(stacks) else f"{len(stacks)} of {groups:,} stacks"
    yield cut_words(f"live blocks by stack ({shown})", width)
    yield from render_stacks(stacks, width)
    yield ""


def _describe_fullness(bands: Sequence[FullnessBand], width: int) -> Iterator[str]:
    if not bands:
        return
    yield "segments by live share"
    rows = [("", "segments", "size", "free")]
    rows += [
        (band.label, f"{band.segments:,}", format_bytes(band.total_bytes), format_bytes(band.free_bytes))
        for band in bands
    ]
    yield from format_rows(rows, "lrrr", width)
    yield ""


def _describe_pools(pools: Sequence[PoolFragmentation], width: int) -> Iterator[str]:
    if not pools:
        return
    yield "pools, each with its stream"
    rows: list[tuple[str, ...]] = [("pool", "stream", "reserved", "free", "largest", "fragm.")]
    for pool in pools:
        name = pool.kind if pool.pool_id == (0, 0) else f"{pool.kind} {pool.pool_id[0]}.{pool.pool_id[1]}"
        share = format_share(pool.external_fragmentation)
        sizes = (pool.reserved_bytes, pool.free_bytes, pool.largest_free_bytes)
        rows.append((name, f"{pool.stream:#x}" if pool.stream else "0", *map(format_bytes, sizes), share))
    yield from format_rows(rows, "lrrrrr", width)


def describe_advice(advice: SettingsAdvice, width: int) -> Iterator[str]:
    """Yield the results of a replay of the trace; nothing if there was none."""
    if advice.is_replayed:
        yield ""
        yield cut_words("the trace under other allocator settings", width)
        for sentence in advice.sentences:
            yield from wrap(make_printable(sentence), width, "  ")


def _describe_settings(settings: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    if not settings:
        return
    text = ", ".join(f"{key}={show_setting(value)}" for key, value in settings if value != "")
    yield from wrap(f"settings: {make_printable(text)}", width)


def show_setting(value: str) -> str:
    """Return a setting as it can be written: PyTorch lists `1:4,2:4,...` for all sizes where `4` is set."""
    pairs = [pair.partition(":") for pair in value.split(",")]
    values = {each for _, _, each in pairs}
    return values.pop() if len(pairs) > 1 and len(values) == 1 and "" not in values else value


# The events of a snapshot as plain text: levels over time, requests, and failures.


def describe_trace(device: DeviceSummary, width: int) -> Iterator[str]:
    """Yield what the trace of a device covers, and how its frequent requests could be served."""
    if device.trace is not None:
        yield from _describe_span(device.trace, width)
        yield ""
    if device.requests:
        yield from _describe_requests(device.requests, width)
        yield ""


def _describe_span(span: TraceSpan, width: int) -> Iterator[str]:
    over = "" if span.duration_s is None else f" over {format_seconds(span.duration_s)}"
    dropped = {True: "; older ones were dropped", False: "", None: ""}[span.is_overflowed]
    after = "" if span.peak_after_s is None else f" after {format_seconds(span.peak_after_s)}"
    before = format_bytes(span.start_allocated_bytes)
    most = format_bytes(span.peak_allocated_bytes)
    yield from wrap(
        f"trace: {span.events:,} events{over}{dropped}; allocated was {before} before them and at most {most}"
        f"{after}; reserved at most {format_bytes(span.peak_reserved_bytes)}",
        width,
    )
    top_bytes = max(span.peak_reserved_bytes, span.peak_allocated_bytes)
    yield cut_words(f"  allocated, from 0 to {format_bytes(top_bytes)}", width)
    yield f"  {draw_sparkline(span.allocated_curve, top_bytes, width - 2)}"


def _describe_requests(requests: Sequence[RequestFit], width: int) -> Iterator[str]:
    yield cut_words("the most frequent requests, and whether they fit now", width)
    rows = [("size", "count", "stream", "fit", "otherwise needs")]
    rows += [
        (
            format_bytes(request.size_bytes),
            f"{request.count:,}",
            f"{request.stream:#x}" if request.stream else "0",
            f"{request.servable:,} more" if request.servable else "none",
            "" if request.servable else f"{format_bytes(request.new_segment_bytes)} segment",
        )
        for request in requests
    ]
    yield from format_rows(rows, "rrrrl", width)


def describe_failures(failures: Sequence[FailedRequest], omitted: int, width: int) -> Iterator[str]:
    """Yield the out-of-memory events, each with its stack and what was live."""
    for failure in failures:
        when = "" if failure.time_s is None else f" at {show_time(failure.time_s) or 'an unknown time'}"
        yield cut_words(f"out of memory{when}: {format_bytes(failure.size_bytes)} requested", width)
        rows = [
            ("allocated", format_bytes(failure.allocated_bytes)),
            ("reserved", format_bytes(failure.reserved_bytes)),
            ("free on the device", format_bytes(failure.device_free_bytes)),
        ]
        yield from format_rows(rows, "lr", width)
        if failure.stack.frames:
            yield cut_words("  requested at", width)
            yield from render_frames(failure.stack.frames, width, failure.stack.headline)
        if failure.live:
            yield cut_words("  live at that moment, by stack", width)
            yield from render_stacks(failure.live, width, is_brief=True)
        yield ""
    if omitted:
        yield cut_words(f"{omitted:,} older out-of-memory events are not shown", width)
        yield ""


# A real run compared with its simulation, as plain text: peaks of every rank, and the errors of all
# iterations.

_HEAD = (
    "rank",
    "real MiB",
    "simulated MiB",
    "error",
    "least",
    "most",
    "iterations",
    "theory MiB",
    "static MiB",
)


def format_comparison(comparison: TraceComparison, width: int) -> str:
    """Return the peaks of a run next to those of its simulation; columns that do not fit are left out."""
    lines = wrap(f"Real run {comparison.real_name} and simulated run {comparison.simulated_name}", width)
    rows = [_HEAD, *map(_describe_rank, comparison.ranks)]
    known = [column for column in zip(*rows, strict=True) if set(column[1:]) != {UNKNOWN}]
    lines += ["", *format_rows(list(zip(*known, strict=True)), "r" * len(known), width), ""]
    for sentence in _conclude(comparison):
        lines += wrap(sentence, width)
    return "\n".join(lines)


def _describe_rank(compared: RankComparison) -> tuple[str, ...]:
    simulated = compared.simulated
    errors = compared.errors
    return (
        str(compared.rank),
        _mebibytes(compared.real_peak_bytes),
        _mebibytes(None if simulated is None else simulated.peak_bytes),
        _error(compared.error),
        _error(None if errors is None else errors.least),
        _error(None if errors is None else errors.most),
        "0" if errors is None else f"{errors.iterations:,}",
        _mebibytes(None if simulated is None else simulated.theoretical_bytes),
        _mebibytes(None if simulated is None else simulated.static_bytes),
    )


def _conclude(comparison: TraceComparison) -> Iterator[str]:
    worst = comparison.worst
    missing = len(comparison.ranks) - comparison.compared
    if worst is None or worst.error is None:
        yield "No rank has a peak in both runs."
        return
    yield f"The worst error is {describe_error(worst.error)}, of rank {worst.rank}."
    if missing:
        yield f"Ranks that cannot be compared: {missing:,}."
    yield (
        "Peaks are the most allocated. The error is how much higher the simulated peak is; least and most "
        "are those of single iterations."
    )


def _mebibytes(value_bytes: int | None) -> str:
    return show_number(value_bytes, ",.2f", per=MIB)


def _error(error: float | None) -> str:
    return UNKNOWN if error is None else describe_error(error)
