"""The record of an out-of-memory error: one bounded file, written before the error is raised."""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from .backends.allocator import allocator_settings
from .recent import COLUMNS
from .segments import bound_segments, find_stacks

SCHEMA = "vramscope.flight/1"
MAX_FILE_BYTES = 8 * 1024 * 1024
MOST_RECORDS = 3
"""Of one process."""
PAUSE_S = 30.0
"""Between two records: a program that catches the error and tries again shall not write all day."""
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
    """Return file, line and function of this thread's frames, innermost first, our own left out."""
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
        about: What is known of the process, its device, the failure, the model and the statistics.
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
    """Return the gzip-compressed JSON of a record of at most 8 MiB; segments go first where it is more."""
    packed = _compress(content)
    while len(packed) > MAX_FILE_BYTES and content["segments"]:
        kept = content["segments"][: len(content["segments"]) // 2]
        dropped = len(content["segments"]) - len(kept)
        counts = {**content["truncated"], "segments": content["truncated"]["segments"] + dropped}
        content = {**content, "segments": kept, "truncated": counts}
        packed = _compress(content)
    return packed


def write_record(packed: bytes, folders: list[str], name: str) -> tuple[str | None, str | None]:
    """Write a record into the first folder that takes it, whole or not at all.

    Returns its path, or None with what every folder said.

    Args:
        packed: Content of the file.
        folders: Tried in this order; made where they are missing.
        name: Name of the file.
    """
    problems = []
    for folder in folders:
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - the probe stays light
            return _write_whole(packed, folder, name), None
        except OSError as error:
            problems.append(f"{folder}: {error.strerror or error}")
    return None, "the flight record could not be written (" + "; ".join(problems) + ")"


class RecordQuota:
    """Allows a few records of one process, some time apart."""

    def __init__(self) -> None:
        self.written = 0
        self._newest_s: float | None = None

    def refusal(self, now_s: float) -> str | None:
        """Return why none may be written now, or None."""
        if self.written >= MOST_RECORDS:
            return f"this process has written {MOST_RECORDS} flight records, which is the most"
        if self._newest_s is not None and now_s - self._newest_s < PAUSE_S:
            return f"the last flight record is less than {PAUSE_S:.0f} s old"
        return None

    def count(self, now_s: float) -> None:
        """Count a record that was written, or tried."""
        self.written += 1
        self._newest_s = now_s


def name_record(wall_s: float, pid: int, number: int) -> str:
    """Return the name of a record's file: time in UTC, process, and which of its records it is."""
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(wall_s))
    return f"oom-{moment}-{pid}-{number}.json.gz"


def _write_whole(packed: bytes, folder: str, name: str) -> str:
    """Write beside and rename, so that whoever looks finds all of it or nothing."""
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
    """Return a segment whose blocks have lost their frames, and what older versions keep beside."""
    blocks = [
        {name: value for name, value in block.items() if name not in {"frames", "history"}}
        for block in segment.get("blocks", ())
    ]
    return {**{name: value for name, value in segment.items() if name != "frames"}, "blocks": blocks}


def _compress(content: Content) -> bytes:
    text = json.dumps(content, separators=(",", ":"), default=str)
    return gzip.compress(text.encode("utf-8", "replace"), 3)
