"""Memory of this process: PyTorch's allocator if it trains, and its resident memory.

torch is used only if the program imported it, and only for devices that the program has used: nothing here
imports it or creates a context.
"""

import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from vramscope.engine.files.framework.oom_text import parse_oom_text
from vramscope.engine.jobs.in_code import step_takers
from vramscope.engine.model import (
    AllocatorReading,
    Backend,
    DeviceSample,
    Finding,
    MemoryReading,
    RankSample,
    Sample,
    Segment,
    SegmentMap,
)
from vramscope.engine.model.sample import ALLOCATED, AWAITING_FREE, FREE
from vramscope.engine.probe.backends import Backend as Reader
from vramscope.engine.probe.backends import Reading, find_backend
from vramscope.engine.probe.base import current
from vramscope.engine.probe.flight_record import can_snapshot, collect_stack, take_snapshot
from vramscope.engine.probe.history import attach_observer
from vramscope.engine.probe.identity import (
    ResidentMemory,
    find_capacity,
    find_simulation,
    identify_device,
    read_started_s,
)
from vramscope.engine.probe.steps import StepEnd, StepSizes, StepWatch
from vramscope.engine.ranks.track import TickSteps
from vramscope.engine.sampling.live import LiveProducer, open_node
from vramscope.exporters.reports.frame import Provenance

# Most out-of-memory errors that wait for a sample; the oldest are dropped.
MOST_ERRORS = 32
MOST_MESSAGE_CHARACTERS = 4000
_PROBE_MODULE = "vramscope_probe"

_STATES = {
    "active_allocated": ALLOCATED,
    "active_awaiting_free": AWAITING_FREE,
    "active_pending_free": AWAITING_FREE,
}


class _Held(NamedTuple):
    """A device on which this process has memory."""

    ordinal: int
    identity: dict[str, Any]
    is_simulated: bool


class OwnError(NamedTuple):
    """An out-of-memory error of this process."""

    # Wall clock.
    time_s: float
    ordinal: int | None
    device_uuid: str | None
    size_bytes: int | None
    free_bytes: int | None
    total_bytes: int | None
    message: str
    # File, line and function of each frame, innermost first.
    stack: tuple[tuple[str, int, str], ...]


class OwnErrors:
    """Collects out-of-memory errors in the thread that meets them, before they are raised."""

    def __init__(self) -> None:
        self._waiting: deque[OwnError] = deque(maxlen=MOST_ERRORS)
        self._taking: list[list[Any]] = []

    def follow(self, *, is_simulated: bool) -> None:
        """Collect errors from now on: CUDA's allocator calls us, or the simulated card its probe."""
        known = current
        if is_simulated:
            known = getattr(sys.modules.get(_PROBE_MODULE), "current", current)
        else:
            attach_observer(sys.modules["torch"])
        if self._take not in known.oom_takers:
            known.oom_takers.append(self._take)
            self._taking.append(known.oom_takers)

    def stop(self) -> None:
        """Stop collecting."""
        while self._taking:
            takers = self._taking.pop()
            if self._take in takers:
                takers.remove(self._take)

    def take(self) -> list[OwnError]:
        """Return the errors since the last call, oldest first."""
        return [self._waiting.popleft() for _ in range(len(self._waiting))]

    def _take(
        self,
        size_bytes: int | None,
        message: str,
        free_bytes: int | None,
        ordinal: int | None,
        total_bytes: int | None,
    ) -> None:
        parsed = parse_oom_text(message) if size_bytes is None else None
        error = OwnError(
            time.time(),
            ordinal,
            None,
            size_bytes if parsed is None else parsed.asked_bytes,
            free_bytes,
            total_bytes,
            message[:MOST_MESSAGE_CHARACTERS],
            tuple(frame for frame in collect_stack() if frame[0] != __file__),
        )
        self._waiting.append(error)


class OwnProcess:
    """Reads the process that it runs in."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.started_s = read_started_s()
        self._resident = ResidentMemory()
        self._identities: dict[int, dict[str, Any]] = {}
        self._peaks: dict[int, int] = {}
        self._steps: dict[int, TickSteps] = {}
        self.steps = OwnSteps()
        self.errors = OwnErrors()

    def read(
        self, devices: Sequence[DeviceSample]
    ) -> tuple[tuple[DeviceSample, ...], tuple[RankSample, ...]]:
        """Return the devices of a sample with those that only this process knows, and its memory on them."""
        reader = find_reader()
        held = [] if reader is None else self._list_held(reader)
        if reader is not None:
            self.steps.follow(reader, tuple(it.ordinal for it in held))
            self.errors.follow(is_simulated=any(it.is_simulated for it in held))
        if reader is None or not held:
            return tuple(devices), (self._describe(None),)
        found = list(devices)
        ranks = []
        for it in held:
            device = _match(it, found)
            if device is None:
                device = _make_device(it, reader)
                found.append(device)
            ranks.append(self._describe(device, reader, it))
        return tuple(_add_allocator(device, ranks) for device in found), tuple(ranks)

    def take_errors(self) -> list[OwnError]:
        """Return the out-of-memory errors since the last call, with their devices."""
        found = []
        for error in self.errors.take():
            identity = self._identities.get(error.ordinal if error.ordinal is not None else -1, {})
            found.append(error._replace(device_uuid=identity.get("uuid") or f"torch-{error.ordinal}"))
        return found

    def map_segments(self, node: str, devices: Sequence[DeviceSample]) -> list[SegmentMap]:
        """Return the segments of the allocator of each device, where reading them is cheap."""
        reader = find_reader()
        if reader is None or not can_snapshot(reader.module, is_history_on=False):
            return []
        maps = []
        for it in self._list_held(reader):
            device = _match(it, devices)
            uuid = _uuid_of(it) if device is None else device.uuid
            segments = tuple(_read_segment(raw) for raw in take_snapshot(reader.module, it.ordinal))
            maps.append(SegmentMap(node, self.pid, uuid, time.time(), segments))
        return maps

    def _list_held(self, reader: Reader) -> list[_Held]:
        is_simulated = find_simulation(reader.module) is not None
        held = []
        for index in sorted(reader.find_held()):
            if index not in self._identities:
                self._identities[index] = identify_device(reader, index) or {}
            held.append(_Held(index, self._identities[index], is_simulated))
        return held

    def _describe(
        self, device: DeviceSample | None, reader: Reader | None = None, held: _Held | None = None
    ) -> RankSample:
        known = RankSample(
            pid=self.pid,
            started_s=self.started_s,
            command=Path(sys.argv[0]).name or "python",
            device_uuid=None if device is None else device.uuid,
            backend="cpu" if reader is None else cast("Backend | None", reader.name),
            age_s=0.0,
            resident_bytes=self._resident.read_bytes(),
        )
        if reader is None or held is None:
            return known
        read_s = time.monotonic()
        reading = reader.read(held.ordinal)
        steps = self._steps.get(held.ordinal, TickSteps()).begin_next()
        self._steps[held.ordinal] = steps
        self.steps.fold(held.ordinal, read_s, reading, steps)
        return msgspec.structs.replace(
            known,
            step=steps.newest,
            steps_within=steps.count,
            floor_min_bytes=steps.floors.least,
            peak_max_bytes=steps.peaks.most,
            sized_steps=steps.list_sized(read_s),
            is_simulated=held.is_simulated,
            capacity_bytes=find_capacity(reader, held.ordinal, held.identity.get("total_bytes")),
            pinned_bytes=reader.read_pinned(),
            allocator=self._describe_allocator(held.ordinal, reading),
        )

    def _describe_allocator(self, ordinal: int, reading: Reading) -> AllocatorReading:
        return AllocatorReading(
            allocated_bytes=reading.allocated_bytes,
            allocated_max_bytes=self._find_peak(ordinal, reading.allocated_bytes, reading.peak_bytes),
            reserved_bytes=reading.reserved_bytes,
            requested_bytes=reading.requested_bytes,
            active_bytes=reading.active_bytes,
            inactive_split_bytes=reading.inactive_split_bytes,
            retries=reading.retries,
            ooms=reading.ooms,
            allocations=reading.allocations,
            frees=reading.frees,
        )

    def _find_peak(self, ordinal: int, allocated_bytes: int | None, peak_bytes: int | None) -> int | None:
        """Return the most allocated since the last reading, as far as the allocator's peak shows it.

        That peak is of the whole run, and the program may reset it: a rise is since the last reading.
        """
        if peak_bytes is None:
            return allocated_bytes
        known = self._peaks.get(ordinal)
        self._peaks[ordinal] = peak_bytes
        return peak_bytes if known is not None and peak_bytes > known else allocated_bytes


def find_reader() -> Reader | None:
    """Return the reader of this process's allocator; None before the program has used a device."""
    torch = sys.modules.get("torch")
    return None if torch is None or not hasattr(torch, "cuda") else find_backend(torch, None)


def _uuid_of(held: _Held) -> str:
    return held.identity.get("uuid") or f"torch-{held.ordinal}"


def _match(held: _Held, devices: Sequence[DeviceSample]) -> DeviceSample | None:
    """Return the driver's device that torch uses; None where it cannot be identified for certain."""
    wanted = _plain(_uuid_of(held))
    named = next((device for device in devices if _plain(device.uuid) == wanted), None)
    whole = [device for device in devices if device.kind in ("gpu", "unified", "vgpu")]
    is_only = not held.is_simulated and len(whole) == 1 and held.identity.get("uuid") is None
    return whole[0] if named is None and is_only else named


def _plain(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def _make_device(held: _Held, reader: Reader) -> DeviceSample:
    """Return a device that the driver does not know, such as a simulated one, as torch describes it."""
    total_bytes = held.identity.get("total_bytes")
    ask = getattr(reader.module, "mem_get_info", None)
    free_bytes, known_bytes = (None, None) if ask is None else ask(held.ordinal)
    total_bytes = known_bytes if total_bytes is None else total_bytes
    used_bytes = None if free_bytes is None or known_bytes is None else known_bytes - free_bytes
    return DeviceSample(
        uuid=_uuid_of(held),
        index=held.ordinal,
        name=held.identity.get("name"),
        kind="simulated" if held.is_simulated else "gpu",
        age_s=0.0,
        memory=MemoryReading(total_bytes, used_bytes, free_bytes, used_bytes, used_bytes),
    )


def _add_allocator(device: DeviceSample, ranks: Sequence[RankSample]) -> DeviceSample:
    own = next((rank for rank in ranks if rank.device_uuid == device.uuid), None)
    return device if own is None else msgspec.structs.replace(device, allocator=own.allocator)


def _read_segment(raw: dict[str, Any]) -> Segment:
    return Segment(
        address=int(raw.get("address", 0)),
        total_bytes=int(raw.get("total_size", 0)),
        pool="small" if raw.get("segment_type") == "small" else "large",
        stream=int(raw.get("stream", 0)),
        blocks=tuple((int(it["size"]), _STATES.get(it["state"], FREE)) for it in raw.get("blocks", ())),
        is_expandable=bool(raw.get("is_expandable", False)),
        is_private=tuple(raw.get("segment_pool_id") or (0, 0)) != (0, 0),
    )


# Most ends of steps that wait for a sample; the oldest are dropped.
MOST_ENDS = 2000


class OwnSteps:
    """Collects the ends of steps in the training thread, and turns them into steps when a sample is due.

    The end of a step costs one reading of the allocator's statistics; nothing waits for the device.
    """

    def __init__(self) -> None:
        self._sizes = StepSizes()
        self._ends: dict[int, deque[StepEnd]] = {}
        self._watches: dict[int, StepWatch] = {}
        self._reader: Reader | None = None
        self._ordinals: tuple[int, ...] = ()

    def start(self) -> None:
        """Start to read what the program passes to `vramscope.step`."""
        if self._take not in step_takers:
            step_takers.append(self._take)

    def stop(self) -> None:
        """Stop collecting."""
        if self._take in step_takers:
            step_takers.remove(self._take)

    def follow(self, reader: Reader, ordinals: tuple[int, ...]) -> None:
        """Read these devices at the end of each step from now on."""
        for ordinal in ordinals:
            self._ends.setdefault(ordinal, deque(maxlen=MOST_ENDS))
        self._reader = reader
        self._ordinals = ordinals

    def fold(self, ordinal: int, read_s: float, reading: Reading, steps: TickSteps) -> None:
        """Fold the steps that ended before a reading of a device, and note the reading.

        Args:
            read_s: When it was read, in monotonic seconds.
        """
        watch = self._watches.setdefault(ordinal, StepWatch())
        ends = self._ends[ordinal]
        while ends and ends[0].monotonic_s <= read_s:
            end = ends.popleft()
            row = watch.end(end)
            steps.fold([row], [] if end.sizes is None else [(row[0], *end.sizes)])
        watch.note_sample(reading)

    def _take(self, tokens: int | None, batch: int | None) -> None:
        """Note the end of a step; runs in the training thread and never raises."""
        reader = self._reader
        if reader is None:
            return
        sizes = self._sizes.read(tokens, batch)
        is_largest = sizes is not None and self._sizes.is_new_largest(sizes)
        try:
            for ordinal in self._ordinals:
                moment = time.monotonic(), time.time()
                self._ends[ordinal].append(StepEnd(*moment, reader.read(ordinal), sizes, is_largest))
        except Exception:  # noqa: BLE001 - whatever the allocator does, the training goes on, without this step
            return


MEMORY_INTERVAL_S = 0.1


class ProcessStream:
    """Samples the driver and the allocator of this process, where they exist."""

    def __init__(self, interval_s: float) -> None:
        self._producer: LiveProducer = open_node(
            interval_s=interval_s, memory_interval_s=min(MEMORY_INTERVAL_S, 0.5 * interval_s)
        )
        self._own = OwnProcess()
        self._newest: Sample | None = None
        self._has_allocator = False

    @property
    def provenance(self) -> Provenance:
        """Where the samples come from, and why there is no device, if there is none."""
        newest = self._newest
        has_devices = newest is not None and bool(newest.devices)
        notes = () if has_devices else tuple(str(failure) for failure in self._producer.failures)
        return Provenance(source="process" if self._has_allocator else "driver", notes=notes)

    @property
    def agent(self) -> None:
        return

    @property
    def is_ended(self) -> bool:
        """Whether this is a fork of the watched process, which has no threads to sample with."""
        return os.getpid() != self._own.pid

    @property
    def read_share(self) -> float | None:
        return None

    def start(self) -> None:
        """Start to read on threads, and to collect the steps of this process."""
        self._producer.start()
        self._own.steps.start()

    def past(self) -> Iterable[Sample]:
        return ()

    def take(self, timeout_s: float) -> Sequence[Sample]:
        end_s = time.monotonic() + timeout_s
        while True:
            samples = [self._add_own(sample) for sample in self._producer.take()]
            left_s = end_s - time.monotonic()
            if samples or left_s <= 0:
                return samples
            time.sleep(min(self._producer.wait_s(), left_s))

    def map_segments(self) -> list[SegmentMap]:
        """Return the segments of the allocator of this process, for each device that it uses."""
        newest = self._newest
        return [] if newest is None else self._own.map_segments(newest.node, newest.devices)

    def take_errors(self) -> list[OwnError]:
        """Return the out-of-memory errors of this process since the last call."""
        return self._own.take_errors()

    def complete(self, finding: Finding) -> Finding:
        return finding

    def stop(self) -> None:
        """Stop all reading; leave a hanging call behind."""
        self._own.steps.stop()
        self._own.errors.stop()
        self._producer.stop()

    def _add_own(self, sample: Sample) -> Sample:
        devices, ranks = self._own.read(sample.devices)
        self._has_allocator = self._has_allocator or any(rank.allocator is not None for rank in ranks)
        self._newest = msgspec.structs.replace(sample, devices=devices, ranks=ranks)
        return self._newest
