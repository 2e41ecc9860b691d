"""A memory snapshot as plain text for people: what it comes to first, figures and stacks beneath."""

from collections.abc import Iterator, Sequence

from ...analyzers.fragmentation.advice import SettingsAdvice
from ...analyzers.sentence import cut_words
from ...analyzers.snapshot_summary import (
    DeviceSummary,
    FullnessBand,
    MemoryLevels,
    PoolFragmentation,
    SnapshotSummary,
    StackGroup,
    summarize_snapshot,
)
from ...engine.model.memory_snapshot import MemorySnapshot
from ...engine.text import make_printable
from ...engine.units import format_bytes
from ..stack_text import render_stacks
from ..text_table import count, format_rows, wrap
from .trace_text import describe_failures, describe_trace

DEFAULT_WIDTH = 80
LEAST_WIDTH = 40
DEFAULT_TOP = 10


def describe_snapshot(snapshot: MemorySnapshot, *, width: int = DEFAULT_WIDTH, top: int = DEFAULT_TOP) -> str:
    """Return what a snapshot says as text.

    Args:
        snapshot: What was read from the file.
        width: Cells of a line; 40 at least.
        top: How many stacks to show.
    """
    return describe_summary(summarize_snapshot(snapshot, top=top), width=width)


def describe_summary(
    summary: SnapshotSummary, *, width: int = DEFAULT_WIDTH, advice: Sequence[SettingsAdvice] = ()
) -> str:
    """Return a summary as text.

    Args:
        summary: What the snapshot says.
        width: Cells of a line; 40 at least.
        advice: What other allocator settings would have done, of those devices whose trace was replayed.
    """
    width = max(width, LEAST_WIDTH)
    lines = [*_describe_simulated(summary, width)]
    if not summary.devices:
        lines.append("no segments and no events: nothing was allocated on any device")
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
    yield from wrap(f"simulated device{size}{name}: the figures are modelled, not measured", width)
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
        ("internal", levels.internal_bytes, "active less requested"),
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
    yield "segments by how much of them is live"
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
        share = "—" if pool.external_fragmentation is None else f"{pool.external_fragmentation:.0%}"
        sizes = (pool.reserved_bytes, pool.free_bytes, pool.largest_free_bytes)
        rows.append((name, f"{pool.stream:#x}" if pool.stream else "0", *map(format_bytes, sizes), share))
    yield from format_rows(rows, "lrrrrr", width)


def describe_advice(advice: SettingsAdvice, width: int) -> Iterator[str]:
    """Yield what a replay of the trace came to; nothing where there was none.

    Args:
        advice: Of one device.
        width: Cells of a line.
    """
    if advice.is_replayed:
        yield ""
        yield cut_words("the trace under other allocator settings", width)
        for sentence in advice.sentences:
            yield from wrap(make_printable(sentence), width, "  ")


def _describe_settings(settings: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    if not settings:
        return
    text = ", ".join(f"{key}={value}" for key, value in settings if value != "")
    yield from wrap(f"settings: {make_printable(text)}", width)
