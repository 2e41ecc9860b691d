"""The readings of one device between two ticks, its state, and the sample that a tick publishes of it."""

import math
from collections.abc import Sequence

from msgspec.structs import replace

from ..errors import DeviceDeniedError, DeviceError, DeviceLostError, NotSupportedError
from ..model import DeviceActivity, DeviceHardware, DeviceSample, DeviceState, MemoryReading
from ..sources.source import (
    DeviceDetails,
    DeviceReader,
    HardwareReader,
    HardwareReading,
    PreparedMemory,
    PreparingReader,
    ProcessKnowingReader,
    make_reading,
)

# Between two tries of a refused memory call.
UNSUPPORTED_RETRY_S = 10.0


class DeviceReadings:
    """Folds readings of one device into what the next tick publishes.

    A sampler thread reads, the hub's thread collects; the sampler's lock guards both.
    """

    def __init__(self, reader: DeviceReader) -> None:
        self._take_reader(reader)
        # From when on the details read last count; the next are due one interval later.
        self.details_from_s = -math.inf
        self.memory_due_s = 0.0
        # Its memory has been read, by a reader that may prepare a call for that.
        self.is_preparable = False
        self._memory = MemoryReading()
        self._details = DeviceDetails()
        self._details_at_s: float | None = None
        # When they will be read next, at the pace of their reading.
        self._details_until_s = 0.0
        self._hardware = HardwareReading()
        self._hardware_until_s = 0.0
        # The plug-in's bug that prevented the last reading of details, and of hardware.
        self.details_failure: str | None = None
        self.hardware_failure: str | None = None
        self._read_at_s: float | None = None
        self._min_bytes: int | None = None
        self._max_bytes: int | None = None
        self._state: DeviceState = "ok"
        self._reason: str | None = None

    @property
    def is_lost(self) -> bool:
        """The device fell off the bus; its handle must not be used again."""
        return self._state == "lost"

    @property
    def is_provisional(self) -> bool:
        """The reader is a stand-in for a device that has not answered the source yet."""
        return self.reader.identity.is_provisional and not self.is_lost

    @property
    def was_read(self) -> bool:
        """Its memory has been read at least once."""
        return self._read_at_s is not None

    def prepare_memory(self, buffer: memoryview) -> PreparedMemory | None:
        """Return a call that reads its memory into a buffer, if its reader has one and it has worked."""
        if not self.is_preparable or self._preparing_reader is None:
            return None
        return self._preparing_reader.prepare_memory(buffer)

    def replace_reader(self, reader: DeviceReader) -> None:
        """Go on with a fresh handle of the same device."""
        if reader is not self.reader:
            self._take_reader(reader)
            self.is_preparable = False
        if self.is_lost:
            self._state = "stale"
            self._reason = "it is back and has not been read yet"
            self.memory_due_s = 0.0
            self.details_from_s = -math.inf

    def _take_reader(self, reader: DeviceReader) -> None:
        """Note what a reader knows: asking a protocol costs more than most readings of memory do."""
        self.reader = reader
        # The number that people see. A GPU that its source no longer lists may have lost its own to another.
        self.index = reader.identity.index
        # The same reader, where it knows more than memory and details.
        self.hardware_reader = reader if isinstance(reader, HardwareReader) else None
        self._preparing_reader = reader if isinstance(reader, PreparingReader) else None
        self._process_reader = reader if isinstance(reader, ProcessKnowingReader) else None

    def mark_lost(self, reason: str) -> None:
        self._state = "lost"
        self._reason = reason
        self.is_preparable = False

    def fold_memory(self, memory: MemoryReading, at_s: float) -> bool:
        """Fold a successful memory reading; return whether the next one may be a prepared call's."""
        if not self._note_reading(at_s):
            return False
        self._fold(memory)
        may_prepare = self._preparing_reader is not None and not self.is_preparable
        self.is_preparable = self.is_preparable or may_prepare
        return may_prepare

    def fold_prepared(self, values: Sequence[tuple[int, int, int]], at_s: float) -> None:
        """Fold what a prepared call has read, total, free and used: the newest as it is, others as limits."""
        if not self._note_reading(at_s):
            return
        sizes = [used for total, free, used in values[:-1] if used <= total >= free and total]
        if sizes:
            self._widen(min(sizes), max(sizes))
        self._fold(make_reading(*values[-1]))

    def _note_reading(self, at_s: float) -> bool:
        """Note that its memory was read; False for a round that hung elsewhere, while others went on."""
        if self._read_at_s is not None and at_s < self._read_at_s:
            return False
        self._read_at_s = at_s
        self._state = "ok"
        self._reason = None
        return True

    def _fold(self, memory: MemoryReading) -> None:
        self._memory = memory
        used = memory.used_bytes
        if used is not None:
            self._widen(used, used)

    def _widen(self, least: int, most: int) -> None:
        """Widen the limits of this tick."""
        if self._min_bytes is None or least < self._min_bytes:
            self._min_bytes = least
        if self._max_bytes is None or most > self._max_bytes:
            self._max_bytes = most

    def fold_details(
        self, details: DeviceDetails, at_s: float, until_s: float, failure: str | None = None
    ) -> None:
        """Store a reading of the slower fields, which are read next at `until_s`.

        Args:
            failure: A plug-in's bug in it.
        """
        self._details = details
        self._details_at_s = at_s
        self._details_until_s = until_s
        self.details_failure = failure

    def fold_hardware(self, reading: HardwareReading, until_s: float, failure: str | None = None) -> None:
        """Store a reading of what can wait, which is read next at `until_s`."""
        self._hardware = HardwareReading(
            None if reading.activity == DeviceActivity() else reading.activity,
            None if reading.hardware == DeviceHardware() else reading.hardware,
        )
        self._hardware_until_s = until_s
        self.hardware_failure = failure

    def fold_failure(self, error: DeviceError, now_s: float) -> None:
        """A memory call failed: set the state, and when to try again."""
        self._reason = str(error)
        self.is_preparable = False
        if isinstance(error, DeviceLostError):
            self._state = "lost"
        elif isinstance(error, NotSupportedError | DeviceDeniedError):
            self._state = "unsupported"
            self.memory_due_s = now_s + UNSUPPORTED_RETRY_S
        else:
            self._state = "stale"

    def take(
        self,
        now_s: float,
        stale_after_s: float,
        *,
        held_since_s: float | None = None,
    ) -> DeviceSample:
        """Return the device as the tick publishes it, and begin the next tick.

        Args:
            stale_after_s: How late a reading may be.
            held_since_s: When the call began that has outlived its deadline and still has not returned.
        """
        age_s = None if self._read_at_s is None else max(0.0, now_s - self._read_at_s)
        state, reason = self._judge(now_s, age_s, stale_after_s, held_since_s)
        identity = self.reader.identity
        details = self._details if state != "lost" else DeviceDetails()
        details_age_s = self._find_stale_details_age_s(now_s, stale_after_s)
        if state == "lost":
            details_age_s = None
        elif details_age_s is not None:
            details = self._drop_ended(details)
        is_known = state != "lost" and now_s - self._hardware_until_s <= stale_after_s
        hardware = self._hardware if is_known else HardwareReading()
        sample = DeviceSample(
            uuid=identity.uuid,
            index=self.index,
            name=identity.name,
            kind=identity.kind,
            parent_uuid=identity.parent_uuid,
            mig_index=identity.mig_index,
            state=state,
            reason=reason,
            age_s=None if age_s is None else round(age_s, 3),
            memory=self._collect_memory(state),
            utilization_percent=details.utilization_percent,
            temperature_c=details.temperature_c,
            power_w=details.power_w,
            processes=details.processes,
            details_age_s=details_age_s,
            activity=hardware.activity,
            hardware=hardware.hardware,
            pci_address=identity.pci_address,
            gpu_instance_id=identity.gpu_instance_id,
        )
        self._min_bytes = self._max_bytes = None
        return sample

    def _find_stale_details_age_s(self, now_s: float, stale_after_s: float) -> float | None:
        """Age of the slower fields; None if they are current, or unmeasured."""
        if self._details_at_s is None or self._details == DeviceDetails():
            return None
        is_stale = now_s - self._details_until_s > stale_after_s
        return round(now_s - self._details_at_s, 1) if is_stale else None

    def _drop_ended(self, details: DeviceDetails) -> DeviceDetails:
        """Drop the processes that have ended since, which needs no driver."""
        if not details.processes or self._process_reader is None:
            return details
        return replace(details, processes=self._process_reader.drop_ended(details.processes))

    def _judge(
        self, now_s: float, age_s: float | None, stale_after_s: float, held_since_s: float | None
    ) -> tuple[DeviceState, str | None]:
        if self._state in ("lost", "unsupported"):
            return self._state, self._reason
        if held_since_s is not None:
            return "stale", f"a driver call has not returned for {now_s - held_since_s:.0f} s"
        if self._state == "stale":
            return "stale", self._reason
        if age_s is None or age_s > stale_after_s:
            waited = "yet" if age_s is None else f"for {age_s:.0f} s"
            return "stale", f"the driver has not answered {waited}"
        return "ok", None

    def _collect_memory(self, state: DeviceState) -> MemoryReading:
        memory = self._memory
        if state == "ok":
            return MemoryReading(
                total_bytes=memory.total_bytes,
                used_bytes=memory.used_bytes,
                free_bytes=memory.free_bytes,
                used_min_bytes=self._min_bytes,
                used_max_bytes=self._max_bytes,
                source=memory.source,
                is_lower_bound=memory.is_lower_bound,
            )
        if state == "stale":
            return memory
        return MemoryReading(total_bytes=memory.total_bytes, source=memory.source)
