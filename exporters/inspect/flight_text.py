"""A flight record as plain text for people: what failed, who held the device, what was live, what to do."""

import datetime
from collections.abc import Callable, Iterator, Sequence

from ...analyzers.flight_summary import DeviceShares, FlightSummary, summarize_flight_record
from ...analyzers.sentence import count_cells, cut_words
from ...engine.model.flight_record import FlightRecord, FlightSample
from ...engine.text import make_printable
from ...engine.units import format_age, format_bytes
from ..sparkline import draw_sparkline
from ..stack_text import render_frames, render_stacks
from ..text_table import format_rows, wrap

DEFAULT_WIDTH = 80
LEAST_WIDTH = 40
MOST_STACKS = 10
_BAR_CELLS = 24


def describe_flight_record(
    record: FlightRecord, *, width: int = DEFAULT_WIDTH, top: int = MOST_STACKS
) -> str:
    """Return a flight record as text.

    Args:
        record: What the probe wrote.
        width: Cells of a line; 40 at least.
        top: How many stacks of live blocks to show.
    """
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
    when = "" if summary.written_s is None else f" · {_show_time(summary.written_s)}"
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
    # Of an interpreter the name will do: the script behind it tells more than its folder.
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
    yield "where it was asked for"
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
        ("free", shares.free_bytes, "what the driver had"),
    ]
    if all(size is None for _, size, _ in named):
        return
    total = shares.total_bytes
    yield cut_words("who held the device" + (f" of {format_bytes(total)}" if total else ""), width)
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
        f"what was live, by stack ({'all recorded' if count <= top else f'{top} of {count:,}'})", width
    )
    yield from render_stacks(shown, width)
    yield ""


def _describe_past(record: FlightRecord, summary: FlightSummary, width: int) -> Iterator[str]:
    top_bytes = _find_top(record, summary.shares)
    span = _find_span(record.samples)
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
        yield cut_words(f"least allocated of each step, 0 to {format_bytes(top_bytes)}", width)
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


def _find_span(samples: Sequence[FlightSample]) -> str:
    times = [sample.time_s for sample in samples if sample.time_s is not None]
    return f", the last {format_age(max(0.0, times[-1] - times[0]))}" if len(times) > 1 else ""


def _describe_advice(advice: Sequence[str], width: int) -> Iterator[str]:
    if not advice:
        return
    yield "what follows from the figures"
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


def _show_time(time_s: float) -> str:
    try:
        return f"{datetime.datetime.fromtimestamp(time_s, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return "at an unknown time"
