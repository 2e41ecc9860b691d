"""What happens when memory has run out, before the error goes on: the record, and a report to the hub."""

from __future__ import annotations

import os
from typing import Any

from . import wire
from .base import current
from .clock import SystemClock
from .flight_record import (
    RecordQuota,
    can_snapshot,
    collect_stack,
    encode_record,
    fill_record,
    locate_folders,
    name_record,
    take_snapshot,
    write_record,
)
from .history import is_recording
from .identity import TrainingDevice, identify_device
from .sampler import Sampler


class OutOfMemoryRecorder:
    """Writes the flight records of one process, in the thread that met the error."""

    def __init__(
        self, device: TrainingDevice, sampler: Sampler, clock: SystemClock, runtime_dir: str
    ) -> None:
        # Newest bytes of parameters, gradients and optimizer state.
        self.model_state: dict[str, int | None] | None = None
        self._device = device
        self._sampler = sampler
        self._clock = clock
        self._runtime_dir = runtime_dir
        self._quota = RecordQuota()
        self._is_busy = False

    def record(
        self,
        size_bytes: int | None,
        message: str,
        free_bytes: int | None,
        index: int | None,
        total_bytes: int | None,
    ) -> str | None:
        """Write a record if allowed, report to the hub, and return the path."""
        if self._is_busy:
            return None
        self._is_busy = True
        try:
            failure = {
                "size_bytes": size_bytes,
                "device_free_bytes": free_bytes,
                "message": message,
                "stack": collect_stack(),
            }
            path, reason = self._write(failure, index, total_bytes)
            self._sampler.peaks.record = path or self._sampler.peaks.record
            packet = wire.encode_out_of_memory(self._clock.wall_s(), size_bytes, path, reason)
            self._sampler.outbox.put_out_of_memory(packet)
            self._sampler.send_now()
            return path
        finally:
            self._is_busy = False

    def _write(
        self, failure: dict[str, Any], index: int | None, total_bytes: int | None
    ) -> tuple[str | None, str | None]:
        now_s = self._clock.monotonic_s()
        reason = self._quota.refusal(now_s)
        if reason is not None:
            return None, reason
        self._quota.count(now_s)
        self._sampler.work_now()
        if self._device.backend is None and not self._device.look():
            self._device.look_back()
        index = self._device.index if index is None else index
        about = self._describe(failure, index, total_bytes)
        content = fill_record(
            about, self._sampler.digest.recent.rows(), self._snapshot(index, about["notes"])
        )
        name = name_record(self._clock.wall_s(), os.getpid(), self._quota.written)
        return write_record(encode_record(content), locate_folders(self._runtime_dir), name)

    def _describe(
        self, failure: dict[str, Any], index: int | None, total_bytes: int | None
    ) -> dict[str, Any]:
        backend = self._device.backend
        identity = identify_device(backend, index) if backend is not None else None
        device = {"uuid": None, "index": index, "name": None, "total_bytes": total_bytes, **(identity or {})}
        recent = self._sampler.digest.recent
        return {
            "written_s": self._clock.wall_s(),
            "process": self._sampler.announcement.describe_for_record(),
            "device": {name: device[name] for name in ("uuid", "index", "name", "total_bytes")},
            "failure": {
                **failure,
                "device_used_bytes": _less(device["total_bytes"], failure["device_free_bytes"]),
            },
            "steps": list(recent.steps),
            "model": self.model_state,
            "stats": backend.read_statistics(index) if backend is not None else {},
            "samples_left_out": recent.thinned_away,
            "notes": list(current.failures),
        }

    def _snapshot(self, index: int | None, notes: list[str]) -> list[dict[str, Any]]:
        """Return the segments; without them the record is written all the same."""
        try:
            if can_snapshot(self._device.module, is_history_on=is_recording(self._device.torch)):
                return take_snapshot(self._device.module, index)
            notes.append("this PyTorch returns no segments without its ring of traces")
        except Exception as error:  # noqa: BLE001 - a record without segments is better than none
            notes.append(f"cannot read the segments: {type(error).__name__}: {error}"[:300])
        return []


def _less(total: int | None, free: int | None) -> int | None:
    return None if total is None or free is None else max(0, total - free)
