"""The events of a snapshot as plain text: levels over time, what was asked for, and what failed."""

import datetime
from collections.abc import Iterator, Sequence

from ...analyzers.sentence import cut_words
from ...analyzers.snapshot_summary import DeviceSummary, FailedRequest, RequestFit, TraceSpan
from ...engine.units import format_bytes
from ..sparkline import draw_sparkline
from ..stack_text import render_frames, render_stacks
from ..text_table import format_rows, wrap


def describe_trace(device: DeviceSummary, width: int) -> Iterator[str]:
    """Yield what the trace of a device covers, and how its frequent requests could be served.

    Args:
        device: Summary of a device.
        width: Cells of a line.
    """
    if device.trace is not None:
        yield from _describe_span(device.trace, width)
        yield ""
    if device.requests:
        yield from _describe_requests(device.requests, width)
        yield ""


def _describe_span(span: TraceSpan, width: int) -> Iterator[str]:
    over = "" if span.duration_s is None else f" over {span.duration_s:,.1f} s"
    dropped = {True: "; older ones were dropped", False: "", None: ""}[span.is_overflowed]
    after = "" if span.peak_after_s is None else f" after {span.peak_after_s:,.1f} s"
    before = format_bytes(span.start_allocated_bytes)
    most = format_bytes(span.peak_allocated_bytes)
    yield from wrap(
        f"trace: {span.events:,} events{over}{dropped}; allocated was {before} before them and {most} at "
        f"most{after}; reserved at most {format_bytes(span.peak_reserved_bytes)}",
        width,
    )
    top_bytes = max(span.peak_reserved_bytes, span.peak_allocated_bytes)
    yield cut_words(f"  allocated, from 0 to {format_bytes(top_bytes)}", width)
    yield f"  {draw_sparkline(span.allocated_curve, top_bytes, width - 2)}"


def _describe_requests(requests: Sequence[RequestFit], width: int) -> Iterator[str]:
    yield cut_words("what the job asks for most, and whether it fits now", width)
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
    """Yield the out-of-memory events, each with its stack and what was live.

    Args:
        failures: Newest first.
        omitted: Older ones that are not among them.
        width: Cells of a line.
    """
    for failure in failures:
        when = "" if failure.time_s is None else f" at {_show_time(failure.time_s)}"
        yield cut_words(f"out of memory{when}: {format_bytes(failure.size_bytes)} asked for", width)
        rows = [
            ("allocated", format_bytes(failure.allocated_bytes)),
            ("reserved", format_bytes(failure.reserved_bytes)),
            ("free on the device", format_bytes(failure.device_free_bytes)),
        ]
        yield from format_rows(rows, "lr", width)
        if failure.stack.frames:
            yield cut_words("  asked for at", width)
            yield from render_frames(failure.stack.frames, width, failure.stack.headline)
        if failure.live:
            yield cut_words("  live at that moment, by stack", width)
            yield from render_stacks(failure.live, width, is_brief=True)
        yield ""
    if omitted:
        yield cut_words(f"{omitted:,} older out-of-memory events are not shown", width)
        yield ""


def _show_time(time_s: float) -> str:
    return f"{datetime.datetime.fromtimestamp(time_s, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
