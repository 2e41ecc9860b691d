"""Troubles: each takes a run and returns it as it arrives after something went wrong on the way."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import msgspec

from vramscope.engine.model import AllocatorReading, DeviceSample, MemoryReading, RankSample, Sample

Trouble = Callable[[Sequence[Sample]], list[Sample]]
_NOTHING = AllocatorReading()


def change(
    sample: Sample,
    device: Callable[[DeviceSample], DeviceSample] = lambda it: it,
    rank: Callable[[RankSample], RankSample] = lambda it: it,
) -> Sample:
    """Return a sample with each of its devices and ranks changed."""
    return msgspec.structs.replace(
        sample, devices=tuple(map(device, sample.devices)), ranks=tuple(map(rank, sample.ranks))
    )


def _at(sample: Sample, time_s: float) -> Sample:
    return msgspec.structs.replace(sample, time_s=time_s)


def _flatten(groups: Iterable[Iterable[Sample]]) -> list[Sample]:
    return list(chain.from_iterable(groups))


def come_twice(run: Sequence[Sample]) -> list[Sample]:
    """Return each sample twice."""
    return _flatten((sample, sample) for sample in run)


def come_late(run: Sequence[Sample]) -> list[Sample]:
    """Return every seventh sample once more after the two that follow it."""
    late = {at + 2: sample for at, sample in enumerate(run) if at % 7 == 0}
    return _flatten((sample, late[at]) if at in late else (sample,) for at, sample in enumerate(run))


def be_lost(run: Sequence[Sample]) -> list[Sample]:
    """Return a run of which one sample in five never arrives."""
    return [sample for at, sample in enumerate(run) if at % 5 != 2]


def have_no_time(run: Sequence[Sample]) -> list[Sample]:
    """Return samples without a time, of a time without an end, between those of the run."""
    bad = (math.nan, math.inf, -math.inf)
    return _flatten((sample, _at(sample, bad[at % 3])) for at, sample in enumerate(run))


def count_from_anew(run: Sequence[Sample]) -> list[Sample]:
    """Return a run whose samples are numbered anew in the middle, as by another hub."""
    half = len(run) // 2
    return [msgspec.structs.replace(sample, seq=at % half) for at, sample in enumerate(run)]


def tell_nothing(run: Sequence[Sample]) -> list[Sample]:
    """Return a run in which every 40 s nothing was measured, though all are well."""

    def strip(sample: Sample) -> Sample:
        return change(
            sample,
            lambda it: msgspec.structs.replace(it, memory=MemoryReading(), allocator=None),
            lambda it: RankSample(it.pid, it.started_s, device_uuid=it.device_uuid, allocator=_NOTHING),
        )

    return [strip(sample) if at % 40 == 39 else sample for at, sample in enumerate(run)]


def be_stale(run: Sequence[Sample]) -> list[Sample]:
    """Return a run in which a driver and a probe do not answer for two ticks, again and again."""

    def hold(sample: Sample) -> Sample:
        return change(
            sample,
            lambda it: msgspec.structs.replace(it, state="stale", age_s=3.0),
            lambda it: msgspec.structs.replace(it, state="stale"),
        )

    return [hold(sample) if at % 90 > 87 else sample for at, sample in enumerate(run)]


def be_missing(run: Sequence[Sample]) -> list[Sample]:
    """Return a run in which samples come empty now and then."""
    return [
        msgspec.structs.replace(sample, devices=(), ranks=()) if at % 90 == 89 else sample
        for at, sample in enumerate(run)
    ]


def have_no_figures(run: Sequence[Sample]) -> list[Sample]:
    """Return a run whose temperature and power, which decide nothing, are no numbers."""

    def spoil(device: DeviceSample) -> DeviceSample:
        return msgspec.structs.replace(device, temperature_c=math.nan, power_w=math.inf)

    return [change(sample, spoil) for sample in run]


HARMLESS: dict[str, Trouble] = {
    trouble.__name__: trouble
    for trouble in (
        come_twice,
        come_late,
        be_lost,
        have_no_time,
        count_from_anew,
        tell_nothing,
        be_stale,
        be_missing,
        have_no_figures,
    )
}
"""Troubles that hide nothing: what is found is the same."""


def fall_silent(run: Sequence[Sample]) -> list[Sample]:
    """Return a run of which a tenth is missing at one place."""
    first, last = len(run) * 6 // 10, len(run) * 7 // 10
    return [*run[:first], *run[last:]]


def set_clock_back(run: Sequence[Sample]) -> list[Sample]:
    """Return a run before whose last part the clock was set back by an hour."""
    late = len(run) * 3 // 4
    return [*run[:late], *(_at(sample, sample.time_s - 3600.0) for sample in run[late:])]


def count_errors_from_anew(run: Sequence[Sample]) -> list[Sample]:
    """Return a run whose counters of refusals and errors are high from the beginning, then begin anew."""

    def count(sample: Sample, counted: int) -> Sample:
        def told(reading: AllocatorReading | None) -> AllocatorReading | None:
            return reading and msgspec.structs.replace(reading, retries=counted, ooms=counted)

        return change(
            sample,
            lambda it: msgspec.structs.replace(it, allocator=told(it.allocator)),
            lambda it: msgspec.structs.replace(it, allocator=told(it.allocator)),
        )

    return [count(sample, 9 if at < len(run) // 2 else 0) for at, sample in enumerate(run)]


def start_again(run: Sequence[Sample]) -> list[Sample]:
    """Return a run twice: its processes end and come back under the same ids, from their first step on."""
    last_s = run[-1].time_s + run[-1].interval_s

    def reborn(rank: RankSample) -> RankSample:
        return msgspec.structs.replace(rank, started_s=last_s)

    again = (_at(change(sample, rank=reborn), sample.time_s + last_s) for sample in run)
    return [*run, *again]


def change_capacity(run: Sequence[Sample]) -> list[Sample]:
    """Return a run whose device has half as much again from the middle on (MIG was changed), and back."""

    def widen(device: DeviceSample) -> DeviceSample:
        memory = device.memory
        more = (memory.total_bytes or 0) // 2
        free = None if memory.free_bytes is None else memory.free_bytes + more
        wider = msgspec.structs.replace(
            memory, total_bytes=None if memory.total_bytes is None else memory.total_bytes + more
        )
        return msgspec.structs.replace(device, memory=msgspec.structs.replace(wider, free_bytes=free))

    first, last = len(run) // 3, len(run) * 2 // 3
    return [change(sample, widen) if first <= at < last else sample for at, sample in enumerate(run)]


GRAVE: dict[str, Trouble] = {
    trouble.__name__: trouble
    for trouble in (fall_silent, set_clock_back, count_errors_from_anew, start_again, change_capacity)
}
"""Troubles after which a finding may open later, or another one after it."""
