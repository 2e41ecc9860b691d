"""The latest readings of one device, and the minimum and maximum since the last published tick."""

from msgspec.structs import replace

from ..errors import DeviceDeniedError, DeviceError, DeviceLostError, NotSupportedError
from ..model import DeviceSample, DeviceState, MemoryReading
from ..sources.source import (
    DeviceDetails,
    DeviceReader,
    PreparedMemory,
    PreparingReader,
    ProcessKnowingReader,
    make_reading,
)

UNSUPPORTED_RETRY_S = 10.0
"""How often a refused memory call is tried again."""


class DeviceReadings:
    """Folds readings of one device into what the next tick publishes.

    Reading happens on a sampler thread, taking on the hub's; the sampler's lock guards both.
    """

    def __init__(self, reader: DeviceReader) -> None:
        self.reader = reader
        self.details_due_s = 0.0
        self.memory_due_s = 0.0
        self.prepared: PreparedMemory | None = None
        """The call that reads its memory, where the reader has one that was seen to work."""
        self._unparsed: list[bytes] = []
        self._memory = MemoryReading()
        self._details = DeviceDetails()
        self._details_at_s: float | None = None
        self.details_failure: str | None = None
        """The bug in a plug-in that kept its details from being read the last time."""
        self._read_at_s: float | None = None
        self._min_bytes: int | None = None
        self._max_bytes: int | None = None
        self._state: DeviceState = "ok"
        self._reason: str | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the device fell off the bus; its handle must not be used again."""
        return self._state == "lost"

    @property
    def is_provisional(self) -> bool:
        """Whether the reader stands in for a device that has not answered the source yet."""
        return self.reader.identity.is_provisional and not self.is_lost

    @property
    def was_read(self) -> bool:
        """Whether its memory has ever been read."""
        return self._read_at_s is not None

    def replace_reader(self, reader: DeviceReader) -> None:
        """Go on with a fresh handle of the same device."""
        if reader is not self.reader:
            self._parse()
            self.reader, self.prepared = reader, None
        if self.is_lost:
            self._state, self._reason = "stale", "it came back and has not been read yet"
            self.memory_due_s = self.details_due_s = 0.0

    def mark_lost(self, reason: str) -> None:
        """Say that the device is gone, and why."""
        self._state, self._reason = "lost", reason
        self._parse()
        self.prepared = None

    def fold_memory(self, taken: MemoryReading | bytes, at_s: float) -> None:
        """Take one successful memory reading of some time, or the bytes that the prepared call has read."""
        if isinstance(taken, bytes) and self.prepared is None:
            return  # the call hung, and its reader was replaced meanwhile
        if self._read_at_s is not None and at_s < self._read_at_s:
            return  # of a round that hung elsewhere, while others went on
        self._read_at_s = at_s
        self._state, self._reason = "ok", None
        if isinstance(taken, bytes):
            self._unparsed.append(taken)
            return
        self._parse()
        self._fold(taken)
        if isinstance(self.reader, PreparingReader):
            self.prepared = self.reader.prepare_memory()

    def _parse(self) -> None:
        """Fold what the prepared call has read since the last time."""
        if self.prepared is not None:
            for total, free, used in self.prepared.layout.iter_unpack(b"".join(self._unparsed)):
                self._fold(make_reading(total, free, used))
        self._unparsed.clear()

    def _fold(self, memory: MemoryReading) -> None:
        self._memory = memory
        used, least, most = memory.used_bytes, self._min_bytes, self._max_bytes
        if used is None:
            return
        if least is None or used < least:
            self._min_bytes = used
        if most is None or used > most:
            self._max_bytes = used

    def fold_details(self, details: DeviceDetails, at_s: float, failure: str | None = None) -> None:
        """Take one reading of the slower fields, of some time; `failure` is a plug-in's bug in it."""
        self._details, self._details_at_s, self.details_failure = details, at_s, failure

    def fold_failure(self, error: DeviceError, now_s: float) -> None:
        """Take a failed memory call: what it means for the state, and when to try again."""
        self._reason = str(error)
        self._parse()
        self.prepared = None
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
        details_stale_after_s: float,
        *,
        held_since_s: float | None = None,
    ) -> DeviceSample:
        """Return the device as the tick publishes it, and begin the next tick.

        Args:
            now_s: Monotonic seconds.
            stale_after_s: Age from which its memory is not of now.
            details_stale_after_s: The same of its other fields.
            held_since_s: When the call began that has outlived its deadline and still has not returned.
        """
        self._parse()
        age_s = None if self._read_at_s is None else max(0.0, now_s - self._read_at_s)
        state, reason = self._judge(now_s, age_s, stale_after_s, held_since_s)
        identity, details = self.reader.identity, self._details if state != "lost" else DeviceDetails()
        details_age_s = self._find_stale_details_age_s(now_s, details_stale_after_s)
        if state == "lost":
            details_age_s = None
        elif details_age_s is not None:
            details = self._drop_ended(details)
        sample = DeviceSample(
            uuid=identity.uuid,
            index=identity.index,
            name=identity.name,
            kind=identity.kind,
            parent_uuid=identity.parent_uuid,
            mig_index=identity.mig_index,
            state=state,
            reason=reason,
            age_s=None if age_s is None else round(age_s, 3),
            memory=self._take_memory(state),
            utilization_percent=details.utilization_percent,
            temperature_c=details.temperature_c,
            power_w=details.power_w,
            processes=details.processes,
            details_age_s=details_age_s,
        )
        self._min_bytes = self._max_bytes = None
        return sample

    def _find_stale_details_age_s(self, now_s: float, stale_after_s: float) -> float | None:
        """Return the age of the slower fields; None where they are of now, or unmeasured."""
        if self._details_at_s is None or self._details == DeviceDetails():
            return None
        age_s = now_s - self._details_at_s
        return round(age_s, 1) if age_s > stale_after_s else None

    def _drop_ended(self, details: DeviceDetails) -> DeviceDetails:
        """Return details without the processes that have ended since, which needs no driver."""
        if not details.processes or not isinstance(self.reader, ProcessKnowingReader):
            return details
        return replace(details, processes=self.reader.drop_ended(details.processes))

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

    def _take_memory(self, state: DeviceState) -> MemoryReading:
        memory = self._memory
        if state == "ok":
            return MemoryReading(
                total_bytes=memory.total_bytes,
                used_bytes=memory.used_bytes,
                free_bytes=memory.free_bytes,
                used_min_bytes=self._min_bytes,
                used_max_bytes=self._max_bytes,
                source=memory.source,
            )
        if state == "stale":
            return memory
        return MemoryReading(total_bytes=memory.total_bytes, source=memory.source)
