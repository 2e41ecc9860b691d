"""The record of an out-of-memory error: one bounded file, written before the error is raised."""

from __future__ import annotations

import base64
import gzip
import inspect
import json
import os
import sys
import time
import zlib
from collections import deque
from collections.abc import Mapping
from typing import Any

from .backends import Reading, allocator_settings
from .base.foreign import Foreign, Module
from .wire import PART_CHARACTERS

COLUMNS = (
    "time_s",
    "allocated_bytes",
    "requested_bytes",
    "active_bytes",
    "reserved_bytes",
    "inactive_split_bytes",
    "retries",
    "ooms",
    "step",
)
# Readings kept in full: the last minute at ten a second.
MOST_FINE = 600
# Readings kept of the four minutes before, two a second.
MOST_COARSE = 480
_THINNED = 5
MOST_STEPS = 1000


class RecentReadings:
    """Two rings: the newest readings in full, the older ones thinned; and the newest steps."""

    def __init__(self) -> None:
        # Readings that are gone from both rings.
        self.thinned_away = 0
        # Index, wall time of the start, duration, floor, peak, whether the peak is exact.
        self.steps: deque[tuple[Any, ...]] = deque(maxlen=MOST_STEPS)
        self._fine: deque[tuple[Any, ...]] = deque()
        self._coarse: deque[tuple[Any, ...]] = deque(maxlen=MOST_COARSE)
        self._aged = 0

    def add(self, time_s: float, reading: Reading, step: int) -> None:
        """Add a reading; the oldest of the fine ring is thinned or dropped."""
        self._fine.append((time_s, *reading[:7], step))
        if len(self._fine) <= MOST_FINE:
            return
        aged = self._fine.popleft()
        self._aged += 1
        if self._aged % _THINNED == 0:
            self.thinned_away += len(self._coarse) == MOST_COARSE
            self._coarse.append(aged)
        else:
            self.thinned_away += 1

    def rows(self) -> list[tuple[Any, ...]]:
        """Oldest first, in the order of `COLUMNS`."""
        return [*tuple(self._coarse), *tuple(self._fine)]


# If there are more, the smallest segments are left out.
MOST_SEGMENT_BLOCKS = 50_000
MOST_STACKS = 100
MOST_FRAMES = 32
_YIELD_EVERY = 50
_POOLS = {"small": 0, "large": 1}
_STATES = {"inactive": 0, "active_allocated": 1, "active_awaiting_free": 2, "active_pending_free": 2}

Frames = tuple[tuple[str, int, str], ...]


def can_snapshot(module: Module, *, is_history_on: bool) -> bool:
    """Return whether a snapshot is cheap here: one without traces, or of an allocator that records none.

    A `memory_snapshot` without `include_traces` marshals the whole ring of traces to drop it.
    """
    ask = getattr(module, "memory_snapshot", None)
    return ask is not None and (_knows_traces(ask) or not is_history_on)


def take_snapshot(module: Module, device: int | None) -> list[dict[str, Any]]:
    """Return the segments of one device as PyTorch's dicts, without traces."""
    ask = module.memory_snapshot
    found = ask(include_traces=False) if _knows_traces(ask) else ask()
    return [segment for segment in found if device is None or segment.get("device", device) == device]


def bound_segments(segments: list[dict[str, Any]], most_blocks: int) -> tuple[list[dict[str, Any]], int]:
    """Return the largest segments with at most `most_blocks` blocks, in their order; and how many are left
    out.
    """
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
    segments: list[dict[str, Any]],
    time_s: float,
    *,
    is_at_step_end: bool = False,
    stacks: list[tuple[int, int, Frames]] | None = None,
) -> list[str]:
    """Return the pieces of a `ProbedSegments`: base64 of zlib of its JSON.

    Args:
        stacks: What lives by stack, where that is not in the segments.
    """
    chosen, left_out = bound_segments(segments, MOST_SEGMENT_BLOCKS)
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
        "live_stacks": find_stacks(chosen) if stacks is None else stacks,
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
                frames = tuple(
                    (_clean(frame.get("filename")), int(frame.get("line", 0)), _clean(frame.get("name")))
                    for frame in block["frames"][:MOST_FRAMES]
                )
                entry = found.setdefault(frames, [0, 0])
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


def _clean(text: object) -> str:
    return str(text or "")[:300].encode("utf-8", "replace").decode("utf-8")


def _knows_traces(ask: Foreign) -> bool:
    try:
        return "include_traces" in inspect.signature(ask).parameters
    except (TypeError, ValueError):
        return False


SCHEMA = "vramscope.flight/1"
MAX_FILE_BYTES = 8 * 1024 * 1024
# Flight records of one process.
MOST_RECORDS = 3
# Between two records: a program that catches the error and tries again must not write all day.
PAUSE_S = 30.0
MOST_BLOCKS = 40_000
_MOST_FRAMES = 64
_LONGEST_MESSAGE = 4000
_OWN_MODULES = ("vramscope_probe", "vramscope_simulation")

Content = dict[str, Any]


def locate_folders(runtime_dir: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """Return where a record may be written, the best place first."""
    environ = os.environ if environ is None else environ
    folders = []
    if environ.get("VRAMSCOPE_FLIGHT_DIR"):
        folders.append(environ["VRAMSCOPE_FLIGHT_DIR"])
    state = environ.get("XDG_STATE_HOME", "")
    if state.startswith("/"):
        folders.append(f"{state}/vramscope/flight")
    elif environ.get("HOME"):
        folders.append(f"{environ['HOME']}/.local/state/vramscope/flight")
    return [*folders, f"{runtime_dir}/flight"]


def collect_stack(most_frames: int = _MOST_FRAMES) -> list[tuple[str, int, str]]:
    """Return file, line and function of this thread's frames, innermost first, without our own."""
    frames: list[tuple[str, int, str]] = []
    frame = sys._getframe(1)
    while frame is not None and len(frames) < most_frames:
        module = str(frame.f_globals.get("__name__", ""))
        if module.split(".", maxsplit=1)[0] not in _OWN_MODULES and not module.startswith(
            "vramscope.engine.probe"
        ):
            frames.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back  # type: ignore[assignment]
    return frames


def fill_record(about: Content, samples: list[Any], segments: list[dict[str, Any]]) -> Content:
    """Return the content of a record, bounded.

    Args:
        samples: Rows in the order of `COLUMNS`, oldest first.
        segments: PyTorch's segment dicts; their frames go into `live_blocks` and are dropped.
    """
    chosen, left_out = bound_segments(segments, MOST_BLOCKS)
    stacks = find_stacks(segments)
    failure = dict(about["failure"])
    failure["message"] = str(failure.get("message") or "")[:_LONGEST_MESSAGE]
    truncated = {"samples": about.get("samples_left_out", 0), "segments": left_out, "blocks": 0}
    return {
        "schema": SCHEMA,
        "written_s": about["written_s"],
        "reason": "oom",
        "process": about["process"],
        "device": about["device"],
        "failure": failure,
        "columns": COLUMNS,
        "samples": samples,
        "steps": about["steps"],
        "model": about["model"],
        "stats": about["stats"],
        "segments": [_strip(segment) for segment in chosen],
        "live_blocks": [
            {"size_bytes": size, "count": count, "stack": frames} for size, count, frames in stacks
        ],
        "truncated": truncated,
        "notes": about["notes"],
        "allocator_settings": allocator_settings(),
    }


def encode_record(content: Content) -> bytes:
    """Return the gzip-compressed JSON of a record of at most 8 MiB; segments are dropped first."""
    packed = _compress(content)
    while len(packed) > MAX_FILE_BYTES and content["segments"]:
        kept = content["segments"][: len(content["segments"]) // 2]
        dropped = len(content["segments"]) - len(kept)
        counts = {**content["truncated"], "segments": content["truncated"]["segments"] + dropped}
        content = {**content, "segments": kept, "truncated": counts}
        packed = _compress(content)
    return packed


def write_record(packed: bytes, folders: list[str], name: str) -> tuple[str | None, str | None]:
    """Write a record into the first folder that accepts it, whole or not at all.

    Returns its path, or None with the refusals of all folders.
    """
    problems = []
    for folder in folders:
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - the probe stays light
            return _write_whole(packed, folder, name), None
        except OSError as error:
            problems.append(f"{folder}: {error.strerror or error}")
    return None, "cannot write the flight record (" + "; ".join(problems) + ")"


class RecordQuota:
    """Allows a few records of one process, some time apart."""

    def __init__(self) -> None:
        self.written = 0
        self._newest_s: float | None = None

    def refusal(self, now_s: float) -> str | None:
        if self.written >= MOST_RECORDS:
            return f"this process has written {MOST_RECORDS} flight records, the maximum"
        if self._newest_s is not None and now_s - self._newest_s < PAUSE_S:
            return f"the last flight record is less than {PAUSE_S:.0f} s old"
        return None

    def count(self, now_s: float) -> None:
        self.written += 1
        self._newest_s = now_s


def name_record(wall_s: float, pid: int, number: int) -> str:
    """Name of a record's file: time in UTC, process, and which of its records it is."""
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(wall_s))
    return f"oom-{moment}-{pid}-{number}.json.gz"


def _write_whole(packed: bytes, folder: str, name: str) -> str:
    """Write a temporary file and rename it, so that a reader finds all of it or nothing."""
    partial = f"{folder}/.{name}.partial"
    path = f"{folder}/{name}"
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            view = memoryview(packed)
            while view:
                view = view[os.write(handle, view) :]
        finally:
            os.close(handle)
        os.replace(partial, path)  # noqa: PTH105
    except OSError:
        os.unlink(partial)  # noqa: PTH108
        raise
    return path


def _strip(segment: dict[str, Any]) -> dict[str, Any]:
    """Drop the frames of a segment's blocks, and the history that older versions add."""
    blocks = [
        {name: value for name, value in block.items() if name not in {"frames", "history"}}
        for block in segment.get("blocks", ())
    ]
    return {**{name: value for name, value in segment.items() if name != "frames"}, "blocks": blocks}


def _compress(content: Content) -> bytes:
    text = json.dumps(content, separators=(",", ":"), default=str)
    return gzip.compress(text.encode("utf-8", "replace"), 3)
