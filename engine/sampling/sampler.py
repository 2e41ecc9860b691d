"""Samples every device of one source on a thread that can be abandoned.

A driver call may hang for ever, and a thread inside it cannot be stopped. So one thread (a lane) reads all
devices; when a call outlives its deadline, the lane is abandoned together with that one device, and a new
lane goes on with the others. When the call returns after all, the device comes back and the old lane ends.

What can wait (clocks, limits, errors, …) is read on a second lane of the same kind, so that it never delays a
memory reading. The two meet in one point: no device is searched for while the second lane is in a call,
because a search may stop the library.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from ..clock import Clock, SystemClock
from ..errors import DeviceError, DeviceLostError, LibraryMissingError, SourceUnavailableError
from ..model import DeviceSample, MemoryReading
from ..sources.source import PREPARED_BYTES, DeviceDetails, DeviceReader, HardwareReading, Source
from .device_readings import DeviceReadings

# A driver call that takes longer costs its device the lane.
CALL_DEADLINE_S = 0.5
# Between two searches for a source that has nothing to measure, or for a lost device.
RETRY_S = 5.0
# Between two searches for a device that has not identified itself.
PROVISIONAL_RETRY_S = 1.0
# A shorter wait is a plain sleep: it costs a third less than an event, which could end it early.
PLAIN_SLEEP_S = 0.1
# Longest wait between two turns without a device to read.
IDLE_S = RETRY_S
# Between two searches for devices that came or went, MIG instances too; each takes half a millisecond.
REDISCOVER_S = 15.0
# Rounds that wait to be folded for the next tick.
MOST_ROUNDS = 64
# How long details are read in each round, as a share of the time that memory takes, or of its interval.
DETAILS_SHARE = 0.3
# The same in the first round: the first sample should have the details of every device.
FIRST_DETAILS_S = 0.5
# Between two readings of what can wait.
HARDWARE_INTERVAL_S = 4.0
# How much longer details, what can wait, and the list of devices are left unread while nobody watches.
CALM_FACTOR = 5
# A call for what can wait may take longer: the driver itself takes 20 ms for some of them.
HARDWARE_DEADLINE_S = 2.0
# How long the first sample waits for it.
FIRST_HARDWARE_S = 0.1
# How long a search for devices waits for such a call to end before it is put off.
SEARCH_PATIENCE_S = 0.05
SEARCH_CHECK_S = 0.002

# The device, None for the search for devices, and since when.
_Call = tuple[DeviceReadings | None, float]


class _PlannedCall(NamedTuple):
    device: DeviceReadings
    # Read the memory into the plan's buffer; None to ask the reader.
    call: Callable[[], int] | None
    # Called with what the call returned if that is not 0, and for a reader without such a call.
    conclude: Callable[[int], MemoryReading]


class _Slot(NamedTuple):
    """Where a call writes."""

    reader: DeviceReader
    parse: Callable[[bytes, int], tuple[int, int, int]]
    offset: int


class _Plan(NamedTuple):
    """The calls of a round, as long as nothing changes."""

    calls: tuple[_PlannedCall, ...]
    # Of each call; None for a reader without one.
    slots: tuple[_Slot | None, ...]
    # What the calls write, all of them together.
    buffer: memoryview
    # When a device is due again that a round leaves out now.
    until_s: float


class _Round(NamedTuple):
    """What was read of all devices, one after another; nothing is parsed yet."""

    plan: _Plan
    data: bytes
    # The calls that were made, in the order of the plan.
    begun: list[_Call]
    # Of a call whose bytes do not count: what was read instead; None for nothing.
    concluded: dict[int, MemoryReading | None]


class _Lane(threading.Thread):
    """One thread of calls; knows what it is calling and since when.

    A lane that is abandoned makes no further call, and a device that it is in is left to it alone. No lock is
    needed for that, only this order: the lane sets `call` and then reads `is_abandoned`, `watch` sets
    `is_abandoned` and then reads `call`. So at least one of them sees what the other has done.
    """

    def __init__(self, name: str, work: Callable[["_Lane"], None], end: Callable[["_Lane"], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.call: _Call | None = None
        self.is_abandoned = False
        self._work = work
        self._end = end

    def run(self) -> None:
        """Read in turns until the sampler stops or this lane is abandoned."""
        try:
            self._work(self)
        finally:
            self._end(self)

    def begin_call(self, device: DeviceReadings | None, now_s: float) -> bool:
        """Announce the next call; False if this lane was abandoned and may not make it."""
        self.call = device, now_s
        if self.is_abandoned:
            self.call = None
            return False
        return True


class SourceSampler:
    """Reads one source: memory ten times a second, details once a tick, its list of devices now and then."""

    def __init__(
        self,
        source: Source,
        *,
        memory_interval_s: float,
        details_interval_s: float,
        clock: Clock | None = None,
    ) -> None:
        self.source = source
        self.memory_interval_s = memory_interval_s
        self._is_calm = False
        self._details_interval_s = details_interval_s
        self._hardware_interval_s = max(HARDWARE_INTERVAL_S, details_interval_s)
        # Why the source has nothing to measure; None while it has.
        self.failure: SourceUnavailableError | None = None
        # Set once every device was read once, or the source reported that it has none.
        self.first_round = threading.Event()
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._is_stopping = False
        self._devices: dict[str, DeviceReadings] = {}
        # Devices that a round reads: neither lost nor in a call of an abandoned lane.
        self._readable: tuple[DeviceReadings, ...] = ()
        # What a round reads; None when it must be made again.
        self._plan: _Plan | None = None
        # Rounds that were read and not folded yet.
        self._rounds: list[_Round] = []
        # When the next details of any device are due.
        self._details_due_s = 0.0
        self._searched_s = -math.inf
        self._discover_due_s = 0.0
        self._lane = self._make_lane()
        # Abandoned lanes that have not ended; their devices are left alone meanwhile.
        self._abandoned: list[_Lane] = []
        # Whether one of them is looking for devices.
        self._is_search_hung = False
        # The second lane; None until a device was found that has something for it.
        self._hardware_lane: _Lane | None = None
        self._abandoned_hardware: list[_Lane] = []
        self._first_hardware = threading.Event()
        # Ends its wait for the next turn.
        self._hardware_due = threading.Event()
        # Set while devices are searched for: the second lane makes no call then.
        self._is_searching = False

    def _make_lane(self) -> _Lane:
        return _Lane(f"sampler-{self.source.name}", self.run_lane, self.end_lane)

    def _make_hardware_lane(self) -> _Lane:
        return _Lane(f"hardware-{self.source.name}", self.run_hardware_lane, self.end_lane)

    @property
    def most_rounds_s(self) -> float:
        """For how long memory can be read without `collect` before its rounds are folded."""
        return MOST_ROUNDS * self.memory_interval_s

    @property
    def is_calm(self) -> bool:
        """Whether details, and what can wait, are read less often."""
        return self._is_calm

    @is_calm.setter
    def is_calm(self, is_calm: bool) -> None:
        with self._lock:
            self._is_calm = is_calm
            if not is_calm:  # what waits since then may be due by now
                self._details_due_s = 0.0
                self._discover_due_s = min(self._discover_due_s, self._searched_s + self._rediscovery_s)
                self._hardware_due.set()

    @property
    def details_interval_s(self) -> float:
        return self._details_interval_s * (CALM_FACTOR if self._is_calm else 1)

    @property
    def hardware_interval_s(self) -> float:
        return self._hardware_interval_s * (CALM_FACTOR if self._is_calm else 1)

    def start(self) -> None:
        self._lane.start()

    def stop(self) -> None:
        """A lane that hangs in the driver is left behind."""
        self._is_stopping = True
        self._stop.set()
        self._hardware_due.set()
        if self._lane.is_alive() and self._lane.call is None:
            self._lane.join(timeout=CALL_DEADLINE_S)
        self._lane.is_abandoned = True
        hardware_lane = self._hardware_lane
        if hardware_lane is not None:
            hardware_lane.join(timeout=CALL_DEADLINE_S)
            hardware_lane.is_abandoned = True
        if not self.has_held_calls:
            self.source.close()

    @property
    def has_held_calls(self) -> bool:
        """A driver call is still under way; the process must then end with `os._exit`."""
        with self._lock:
            lanes = (*self._abandoned, self._lane, *self._list_hardware_lanes())
            is_calling = any(lane.call is not None for lane in lanes)
            return is_calling or any(device.is_provisional for device in self._devices.values())

    def watch(self) -> None:
        """Abandon the lane if its present call has outlived the deadline; `watch_wait_s` says when to call
        this.
        """
        now_s = self._clock.monotonic_s()
        with self._lock:
            if self._is_stopping:
                return
            if _is_overdue(self._lane, now_s, CALL_DEADLINE_S):
                self._lane.is_abandoned = True
                self._abandoned.append(self._lane)
                self._choose_readable()
                self._lane = self._make_lane()
                self._lane.start()
            lane = self._hardware_lane
            if lane is not None and _is_overdue(lane, now_s, HARDWARE_DEADLINE_S):
                lane.is_abandoned = True
                self._abandoned_hardware.append(lane)
                self._hardware_lane = self._make_hardware_lane()
                self._hardware_lane.start()

    def end_lane(self, lane: _Lane) -> None:
        """Free the device of an abandoned lane; called on its thread, last of all."""
        with self._lock:
            lane.call = None
            if lane in self._abandoned:
                self._abandoned.remove(lane)
                self._choose_readable()
            if lane in self._abandoned_hardware:
                self._abandoned_hardware.remove(lane)

    def watch_wait_s(self, now_s: float, interval_s: float) -> float:
        """Seconds until `watch` should be called next.

        Args:
            interval_s: Between two checks if no call is under way: a later one that hangs is noticed by then.
        """
        call = self._lane.call
        if call is None:
            return interval_s
        return min(interval_s, max(0.0, call[1] + CALL_DEADLINE_S - now_s))

    def collect(self, stale_after_s: float, now_s: float | None = None) -> list[DeviceSample]:
        """Return every device as this tick publishes it, in index order, MIG instances after their GPU.

        Args:
            stale_after_s: How late a reading may be.
            now_s: Time of the tick: memory that was read later is not part of it; None for now.
        """
        now_s = self._clock.monotonic_s() if now_s is None else now_s
        with self._lock:
            self._fold_rounds(now_s)
            held = self._find_held()
            samples = [
                device.take(now_s, stale_after_s, held_since_s=held.get(device))
                for device in self._devices.values()
            ]
        samples.sort(key=lambda s: (s.index, -1 if s.mig_index is None else s.mig_index, s.uuid))
        return samples

    def notes(self, *, has_others: bool = False) -> list[str]:
        """Sentences about what is missing here; with other devices a library not installed is no loss."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            since_s = self._find_held().get(None)
            devices = self._devices.values()
            broken = {
                it: None for device in devices for it in (device.details_failure, device.hardware_failure)
            }
        if since_s is not None:
            return [f"{self.source.name}: the driver has not answered for {now_s - since_s:.0f} s"]
        notes = [f"{self.source.name}: {failure}" for failure in broken if failure is not None]
        if self.failure is None or (has_others and isinstance(self.failure, LibraryMissingError)):
            return notes
        return [str(self.failure), *notes]

    def run_lane(self, lane: _Lane) -> None:
        """Read in turns on the thread of `lane`.

        This runs ten times a second on a cold cache, where every function and page that it touches costs more
        than what it does there: a turn with nothing due but memory stays within very few of them.
        """
        clock_s = self._clock.monotonic_s
        has_read = False
        due_s = clock_s()
        while not (self._is_stopping or lane.is_abandoned):
            started_s = clock_s()
            if started_s >= self._discover_due_s:
                self._discover_if_due(lane)
            plan = self._plan
            if plan is None or started_s >= plan.until_s:
                plan = self._make_plan(started_s)
            self._read_memories(lane, plan, started_s)
            if started_s >= self._details_due_s:
                self._read_due_details(lane, clock_s() - started_s)
            if lane.is_abandoned:
                return
            if not has_read:
                has_read = True
                if self._hardware_lane is not None:
                    self._first_hardware.wait(FIRST_HARDWARE_S)
                self.first_round.set()
            now_s = clock_s()
            due_s += self.memory_interval_s
            if due_s - now_s < 0.2 * self.memory_interval_s:
                due_s = now_s + 0.2 * self.memory_interval_s
            if not self._readable:
                # A source whose devices are none must not cost a node ten turns a second.
                due_s = max(due_s, now_s + min(IDLE_S, self._discover_due_s - now_s))
            if due_s - now_s <= PLAIN_SLEEP_S:
                time.sleep(due_s - now_s)
            else:
                self._stop.wait(due_s - now_s)

    def _discover_if_due(self, lane: _Lane) -> None:
        now_s = self._clock.monotonic_s()
        if now_s < self._discover_due_s or self._abandoned or not self._stop_hardware_calls():
            return
        try:
            if lane.begin_call(None, now_s):
                self._discover(lane)
        finally:
            self._is_searching = False
        # Not before: during a search it reads nothing, and the first sample waits for it.
        self._start_hardware_lane()

    def _stop_hardware_calls(self) -> bool:
        """Let the second lane begin no call; return whether none is under way, else put the search off."""
        self._is_searching = True
        ends_s = time.monotonic() + SEARCH_PATIENCE_S
        while any(lane.call is not None for lane in self._list_hardware_lanes()):
            if self._abandoned_hardware or time.monotonic() > ends_s:
                self._is_searching = False
                self._discover_due_s = self._clock.monotonic_s() + PROVISIONAL_RETRY_S
                return False
            time.sleep(SEARCH_CHECK_S)
        return True

    def _list_hardware_lanes(self) -> tuple[_Lane, ...]:
        lane = self._hardware_lane
        return (*self._abandoned_hardware, *(() if lane is None else (lane,)))

    def _discover(self, lane: _Lane) -> None:
        failure: SourceUnavailableError | None = None
        readers: Sequence[DeviceReader] = ()
        try:
            readers = self.source.discover()
        except SourceUnavailableError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - a plug-in's bug is reported, and costs only its own devices
            failure = SourceUnavailableError(f"{self.source.name}: {error!r}")
        with self._lock:
            lane.call = None
            self.failure = failure
            self._adopt(readers)
            self._choose_readable()
            self._searched_s = self._clock.monotonic_s()
            self._discover_due_s = self._searched_s + self._rediscovery_s

    def _start_hardware_lane(self) -> None:
        """Start the second lane once a device needs it."""
        if self._hardware_lane is not None:
            return
        with self._lock:
            has_hardware = any(device.hardware_reader is not None for device in self._devices.values())
            if has_hardware and not self._is_stopping:
                self._hardware_lane = self._make_hardware_lane()
                self._hardware_lane.start()

    def run_hardware_lane(self, lane: _Lane) -> None:
        """Read what can wait, of one device after another, on the thread of `lane`."""
        while not (self._is_stopping or lane.is_abandoned):
            devices = () if self._is_searching else self._readable
            held = {other.call[0] for other in self._abandoned_hardware if other.call is not None}
            for device in devices:
                if device not in held and not device.is_lost:
                    self._read_hardware(lane, device)
                if self._is_stopping or lane.is_abandoned:
                    return
            if devices:
                self._first_hardware.set()
            self._hardware_due.wait(self.hardware_interval_s if devices else SEARCH_PATIENCE_S)
            self._hardware_due.clear()

    def _read_hardware(self, lane: _Lane, device: DeviceReadings) -> None:
        reader = device.hardware_reader
        now_s = self._clock.monotonic_s()
        if reader is None or not lane.begin_call(device, now_s):
            return
        if self._is_searching:  # asked after the call was announced, as `_stop_hardware_calls` looks for it
            lane.call = None
            return
        reading = HardwareReading()
        failure = None
        try:
            reading = reader.read_hardware()
        except DeviceError:
            pass  # memory, read ten times a second, says what is wrong
        except Exception as error:  # noqa: BLE001 - a plug-in's bug is reported, and costs only these fields
            failure = repr(error)
        with self._lock:
            until_s = self._clock.monotonic_s() + self.hardware_interval_s
            device.fold_hardware(reading, until_s, failure)
            lane.call = None

    @property
    def _rediscovery_s(self) -> float:
        """Seconds until the next search for devices."""
        devices = self._devices.values()
        if any(device.is_provisional for device in devices):
            return PROVISIONAL_RETRY_S
        if isinstance(self.failure, LibraryMissingError):
            return REDISCOVER_S  # looking for it costs more than all else on a node without it
        is_whole = self.failure is None and not any(device.is_lost for device in devices)
        if not is_whole:
            return RETRY_S
        return REDISCOVER_S * (CALM_FACTOR if self._is_calm else 1)

    def _adopt(self, readers: Sequence[DeviceReader]) -> None:
        self._fold_rounds()
        found = {reader.identity.uuid: reader for reader in readers}
        for uuid, reader in found.items():
            if uuid in self._devices:
                self._devices[uuid].replace_reader(reader)
            else:
                self._devices[uuid] = DeviceReadings(reader)
        for uuid, device in list(self._devices.items()):
            if uuid in found:
                continue
            if device.reader.identity.is_provisional and not device.was_read:
                del self._devices[uuid]  # it has been identified, or is gone for good
            elif not device.is_lost:
                why = str(self.failure) if self.failure is not None else "the driver no longer reports it"
                device.mark_lost(why)
        self._renumber(found)

    def _renumber(self, found: Mapping[str, DeviceReader]) -> None:
        """Give numbers of their own to GPUs that the source no longer lists, where another has theirs now.

        A driver that starts again numbers on without a gap. MIG instances have the number of their GPU.
        """
        taken = {reader.identity.index for reader in found.values()}
        gone = {uuid: device for uuid, device in self._devices.items() if uuid not in found}
        for uuid, device in gone.items():
            identity = device.reader.identity
            if identity.parent_uuid is None and device.index in taken:
                device.index = 1 + max(taken | {it.index for it in self._devices.values()})
                for other in gone.values():
                    if other.reader.identity.parent_uuid == uuid:
                        other.index = device.index

    def _find_held(self) -> dict[DeviceReadings | None, float]:
        """Return what abandoned lanes are calling, None for the search for devices, and since when."""
        calls = (lane.call for lane in self._abandoned)
        return dict(call for call in calls if call is not None)

    def _choose_readable(self) -> None:
        """Find the devices that may be read; needs the lock; call when one is found, held, freed or lost."""
        held = self._find_held()
        self._is_search_hung = None in held
        self._readable = tuple(d for d in self._devices.values() if not (d in held or d.is_lost))
        self._plan = None
        self._details_due_s = 0.0

    def _make_plan(self, now_s: float) -> _Plan:
        with self._lock:
            # A search for devices that hangs may stop the library under a call that was prepared.
            is_prepared = not self._is_search_hung
            due = [device for device in self._readable if device.memory_due_s <= now_s]
            later = (device.memory_due_s for device in self._readable if device.memory_due_s > now_s)
            buffer = memoryview(bytearray(PREPARED_BYTES * len(due)))
            calls: list[_PlannedCall] = []
            slots: list[_Slot | None] = []
            for device in due:
                at = PREPARED_BYTES * len(calls)
                prepared = device.prepare_memory(buffer[at : at + PREPARED_BYTES]) if is_prepared else None
                if prepared is None:
                    calls.append(_PlannedCall(device, None, partial(_ask_reader, device)))
                    slots.append(None)
                else:
                    calls.append(_PlannedCall(device, prepared.call, prepared.conclude))
                    slots.append(_Slot(device.reader, prepared.parse, at))
            plan = _Plan(tuple(calls), tuple(slots), buffer, min(later, default=math.inf))
            self._plan = plan
        return plan

    def _read_due_details(self, lane: _Lane, memory_took_s: float) -> None:
        """Read the details of devices that are due, those first that have waited longest.

        A quick driver answers all in one burst, which costs least. With a slow one memory is read in between,
        and details keep a share of the time all the same: at least one device a round, each in its turn.
        """
        clock_s = self._clock.monotonic_s
        devices = self._readable
        budget_s = DETAILS_SHARE * max(self.memory_interval_s, memory_took_s)
        if not self.first_round.is_set():
            budget_s = max(budget_s, FIRST_DETAILS_S)
        begun_s = clock_s()
        for device in sorted(devices, key=_details_from_s):
            now_s = clock_s()
            if device.details_from_s + self.details_interval_s > now_s:
                break
            if self._is_stopping or lane.is_abandoned or now_s - begun_s > budget_s:
                return
            if not device.is_lost:
                self._read_details(lane, device, now_s)
        with self._lock:
            if not lane.is_abandoned and devices is self._readable:
                oldest_s = min(map(_details_from_s, devices), default=-math.inf)
                self._details_due_s = oldest_s + self.details_interval_s

    def _read_memories(self, lane: _Lane, plan: _Plan, now_s: float) -> None:
        """Read the memory of devices one after another; it is folded when somebody asks."""
        clock_s = self._clock.monotonic_s
        begun: list[_Call] = []
        concluded: dict[int, MemoryReading | None] = {}
        for device, call, conclude in plan.calls:
            lane.call = its = device, clock_s()  # `begin_call`, written out: this is where the time goes
            if lane.is_abandoned:
                break
            try:
                code = 1 if call is None else call()
                if code:
                    concluded[len(begun)] = conclude(code)
            except Exception as error:  # noqa: BLE001 - a plug-in's bug is reported, and costs only its own devices
                concluded[len(begun)] = None
                with self._lock:
                    self._fold_failure(device, error, now_s)
            begun.append(its)
            if lane.is_abandoned:  # a late answer of a driver is of now, not of when it was asked
                concluded |= dict.fromkeys(range(len(begun) - 1))
                begun[-1] = device, clock_s()
                break
        read = _Round(plan, plan.buffer.tobytes(), begun, concluded)
        with self._lock:
            self._rounds.append(read)
            if lane.is_abandoned or len(self._rounds) >= MOST_ROUNDS:
                self._fold_rounds()
            lane.call = None

    def _fold_rounds(self, until_s: float = math.inf) -> None:
        """Fold the rounds since the last call that had begun by a time; needs the lock."""
        count = sum(1 for it in self._rounds if not it.begun or it.begun[0][1] <= until_s)
        for _, rounds in groupby(self._rounds[:count], key=lambda it: id(it.plan)):
            self._fold_alike(list(rounds))
        del self._rounds[:count]

    def _fold_alike(self, rounds: list[_Round]) -> None:
        """Fold rounds of one plan, device by device."""
        plan = rounds[0].plan
        is_plain = all(not read.concluded and len(read.begun) == len(plan.calls) for read in rounds)
        for position, (planned, slot) in enumerate(zip(plan.calls, plan.slots, strict=True)):
            device = planned.device
            if is_plain and slot is not None:  # as nearly always
                if slot.reader is device.reader:
                    parse, offset = slot.parse, slot.offset
                    parsed = [parse(read.data, offset) for read in rounds]
                    device.fold_prepared(parsed, rounds[-1].begun[position][1])
                continue
            values: list[tuple[int, int, int]] = []
            at_s = 0.0
            for read in rounds:
                if position >= len(read.begun):
                    continue  # the lane was abandoned before
                if position not in read.concluded:
                    if slot is not None and slot.reader is device.reader:
                        values.append(slot.parse(read.data, slot.offset))
                        at_s = read.begun[position][1]
                    continue
                if values:
                    device.fold_prepared(values, at_s)
                    values = []
                memory = read.concluded[position]
                if memory is not None and device.fold_memory(memory, read.begun[position][1]):
                    self._plan = None  # its call may be prepared now
            if values:
                device.fold_prepared(values, at_s)

    def _fold_failure(self, device: DeviceReadings, error: Exception, now_s: float) -> None:
        self._fold_rounds()
        failure = error if isinstance(error, DeviceError) else DeviceError(f"{self.source.name}: {error!r}")
        device.fold_failure(failure, now_s)
        self._plan = None
        if device.is_lost:
            self._choose_readable()
            self._discover_due_s = min(self._discover_due_s, now_s + RETRY_S)

    def _read_details(self, lane: _Lane, device: DeviceReadings, now_s: float) -> None:
        if not lane.begin_call(device, now_s):
            return
        interval_s = self.details_interval_s
        soonest_s = now_s + self.memory_interval_s
        device.details_from_s = max(device.details_from_s + interval_s, soonest_s - interval_s)
        details = DeviceDetails()
        failure = None
        lost: DeviceLostError | None = None
        try:
            details = device.reader.read_details()
        except DeviceLostError as error:
            lost = error
        except DeviceError:
            pass  # the fields stay unmeasured; memory, read ten times a second, says what is wrong
        except Exception as error:  # noqa: BLE001 - a plug-in's bug is reported, and costs only its own devices
            failure = repr(error)
        with self._lock:
            device.fold_details(details, now_s, now_s + interval_s, failure)
            if lost is not None:
                self._fold_failure(device, lost, now_s)
            lane.call = None


def _ask_reader(device: DeviceReadings, _code: int) -> MemoryReading:
    return device.reader.read_memory()


def _is_overdue(lane: _Lane, now_s: float, deadline_s: float) -> bool:
    call = lane.call
    return call is not None and now_s - call[1] >= deadline_s


def _details_from_s(device: DeviceReadings) -> float:
    return device.details_from_s
