"""What the records of a memory trace hold, how they are decoded, and its one clock.

`MB` in the files means MiB, and -1 means never logged.
"""

from itertools import islice
from operator import lt
from typing import Annotated

import msgspec

from ...units import MIB

CLOCK_STEP_LIMIT_S = 1.0
"""A clock that goes back by more is not one clock."""

_Seconds = Annotated[float, msgspec.Meta(ge=0, le=365 * 86400)]
_Mebibytes = Annotated[float, msgspec.Meta(ge=0, le=2**30)]
_LoggedMebibytes = Annotated[float, msgspec.Meta(ge=-1, le=2**30)]


class SampleRecord(msgspec.Struct, gc=False):
    """One sample as the file has it."""

    timestamp_s: _Seconds
    reserved_memory_MB: _Mebibytes  # noqa: N815 - the file's own key
    allocated_memory_MB: _Mebibytes  # noqa: N815 - the file's own key


class LoggedRecord(msgspec.Struct, gc=False):
    """What is logged once an iteration, as the file has it."""

    peak_allocated_MB: _LoggedMebibytes = -1  # noqa: N815 - the file's own key
    theoretical_memory_MB: _LoggedMebibytes = -1  # noqa: N815 - the file's own key
    static_memory_MB: _LoggedMebibytes = -1  # noqa: N815 - the file's own key


class IterationRecord(LoggedRecord, gc=False, kw_only=True):
    """One iteration as the file has it."""

    samples: list[SampleRecord]


class TraceBatch(msgspec.Struct, gc=False):
    """Samples that follow one another within one iteration."""

    key: str
    """Of the iteration, as the file has it."""
    index: int
    """Number of the iteration."""
    position: int
    """Of the first sample within its iteration."""
    samples: list[SampleRecord]
    logged: LoggedRecord | None
    """With the last batch of an iteration."""


class LoggedBytes(msgspec.Struct, frozen=True):
    """What was logged once for an iteration."""

    peak_allocated_bytes: int | None = None
    """Most allocated since the iteration began (`torch.cuda.max_memory_allocated`)."""
    theoretical_bytes: int | None = None
    static_bytes: int | None = None


class ClockError(ValueError):
    """A sample that is much older than one before it; caught where the place in the file is known."""

    def __init__(self, position: int, time_s: float, newest_s: float) -> None:
        super().__init__(f"{time_s:g} s comes after {newest_s:g} s; expected one clock that never goes back")
        self.position = position
        """Of the sample among those that were handed over."""


class TraceClock:
    """Follows the times of one file; those that step back a little stand at the time of the one before."""

    def __init__(self) -> None:
        self._newest_s = 0.0
        self._late_count = 0
        self._late_most_s = 0.0

    def follow(self, times_s: list[float]) -> list[float]:
        """Return the next times in an order that never goes back.

        Raises:
            ClockError: One goes back by more than `CLOCK_STEP_LIMIT_S`.
        """
        if not times_s:
            return times_s
        if times_s[0] < self._newest_s or any(map(lt, islice(times_s, 1, None), times_s)):
            times_s = [self._follow_one(time_s, position) for position, time_s in enumerate(times_s)]
        self._newest_s = times_s[-1]
        return times_s

    def describe(self, rank: int) -> tuple[str, ...]:
        """Return a note about the steps back, if there were any."""
        if not self._late_count:
            return ()
        return (
            f"rank {rank}: the clock went back {self._late_count:,} times, at most by "
            f"{self._late_most_s:.3f} s; those samples stand at the time of the one before",
        )

    def _follow_one(self, time_s: float, position: int) -> float:
        late_s = self._newest_s - time_s
        if late_s > CLOCK_STEP_LIMIT_S:
            raise ClockError(position, time_s, self._newest_s)
        if late_s > 0:
            self._late_count += 1
            self._late_most_s = max(self._late_most_s, late_s)
        self._newest_s = max(self._newest_s, time_s)
        return self._newest_s


def mebibytes(value_mib: float) -> int:
    """Return bytes of MiB, to the nearest byte."""
    return round(value_mib * MIB)


def logged_bytes(value_mib: float) -> int | None:
    """Return bytes of what was logged, None where it never was.

    Raises:
        ValueError: It is below zero and not -1.
    """
    if value_mib == -1:
        return None
    if value_mib < 0:
        raise ValueError(f"{value_mib:g}; expected -1 (never logged) or at least 0")
    return mebibytes(value_mib)
