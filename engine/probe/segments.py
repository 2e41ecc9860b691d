"""The segments of an allocator, taken on demand and packed into parts that fit the wire."""

from __future__ import annotations

import base64
import inspect
import json
import time
import zlib
from typing import Any

from .base.foreign import Foreign, Module
from .wire import PART_CHARACTERS

MOST_BLOCKS = 50_000
"""Beyond this the smallest segments are left out."""
MOST_STACKS = 100
MOST_FRAMES = 32
_YIELD_EVERY = 50
_POOLS = {"small": 0, "large": 1}
_STATES = {"inactive": 0, "active_allocated": 1, "active_awaiting_free": 2, "active_pending_free": 2}

Frames = tuple[tuple[str, int, str], ...]


def can_snapshot(module: Module, *, is_history_on: bool) -> bool:
    """Tell whether a snapshot is cheap here: one without traces, or of an allocator that keeps none.

    Where `memory_snapshot` knows no `include_traces` it marshals the whole ring of traces to drop it.
    """
    ask = getattr(module, "memory_snapshot", None)
    return ask is not None and (_knows_traces(ask) or not is_history_on)


def take_snapshot(module: Module, device: int | None) -> list[dict[str, Any]]:
    """Return the segments of one device as PyTorch's dicts, without traces."""
    ask = module.memory_snapshot
    found = ask(include_traces=False) if _knows_traces(ask) else ask()
    return [segment for segment in found if device is None or segment.get("device", device) == device]


def bound_segments(segments: list[dict[str, Any]], most_blocks: int) -> tuple[list[dict[str, Any]], int]:
    """Return the largest segments with so many blocks together, in their order; and how many are left out."""
    by_size = sorted(segments, key=lambda it: -int(it.get("total_size", 0)))
    kept: set[int] = set()
    blocks = 0
    for segment in by_size:
        blocks += len(segment.get("blocks", ()))
        if blocks > most_blocks:
            break
        kept.add(id(segment))
    chosen = [segment for segment in segments if id(segment) in kept]
    return chosen, len(segments) - len(chosen)


def pack_segments(
    segments: list[dict[str, Any]], time_s: float, *, is_at_step_end: bool = False
) -> list[str]:
    """Return the pieces of a `ProbedSegments`: base64 of zlib of its JSON.

    Args:
        segments: As `take_snapshot` returns them.
        time_s: Wall time at which they were taken.
        is_at_step_end: Whether that was between two steps.
    """
    chosen, left_out = bound_segments(segments, MOST_BLOCKS)
    rows = []
    for position, segment in enumerate(chosen):
        rows.append(_describe(segment))
        if position % _YIELD_EVERY == 0:
            # Lets the thread that trains have the interpreter's lock.
            time.sleep(0)
    content = {
        "time_s": time_s,
        "segments": rows,
        "left_out": left_out,
        "live_stacks": find_stacks(chosen),
        "is_at_step_end": is_at_step_end,
    }
    packed = base64.b64encode(zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 3)).decode()
    return [packed[start : start + PART_CHARACTERS] for start in range(0, len(packed), PART_CHARACTERS)]


def find_stacks(segments: list[dict[str, Any]]) -> list[tuple[int, int, Frames]]:
    """Return bytes, count and frames of the live blocks whose allocation was recorded, largest first."""
    found: dict[Frames, list[int]] = {}
    for segment in segments:
        for block in segment.get("blocks", ()):
            if block.get("frames") and _STATES.get(block.get("state")) == 1:
                entry = found.setdefault(_list_frames(block["frames"]), [0, 0])
                entry[0] += int(block.get("size", 0))
                entry[1] += 1
    largest = sorted(found.items(), key=lambda it: -it[1][0])[:MOST_STACKS]
    return [(size, count, frames) for frames, (size, count) in largest]


def _describe(segment: dict[str, Any]) -> tuple[Any, ...]:
    pool_id = segment.get("segment_pool_id") or (0, 0)
    return (
        int(segment.get("address", 0)),
        int(segment.get("total_size", 0)),
        _POOLS.get(str(segment.get("segment_type")), 1),
        int(segment.get("stream", 0)),
        bool(segment.get("is_expandable", False)),
        tuple(pool_id) != (0, 0),
        [(int(block["size"]), _STATES.get(block["state"], 0)) for block in segment.get("blocks", ())],
    )


def _list_frames(frames: list[dict[str, Any]]) -> Frames:
    return tuple(
        (_clean(frame.get("filename")), int(frame.get("line", 0)), _clean(frame.get("name")))
        for frame in frames[:MOST_FRAMES]
    )


def _clean(text: object) -> str:
    return str(text or "")[:300].encode("utf-8", "replace").decode("utf-8")


def _knows_traces(ask: Foreign) -> bool:
    try:
        return "include_traces" in inspect.signature(ask).parameters
    except (TypeError, ValueError):
        return False
