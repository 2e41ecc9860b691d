"""How the memory of a device goes, the same in every report: its trend in words, and one rate."""

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from ...analyzers.floors.rate import fit_clear_slope
from ...analyzers.risk import Risk, assess_risk, doubt_silent
from ...analyzers.trend_words import word_trend
from ...engine.model import Assessment, DeviceTrend, TrendWord
from ...engine.model.finding import bring_forward
from ...engine.units import MIB
from .log import DeviceLog, RunLog, known_points

WINDOW = 100
"""Newest snapshots that a rate is fitted to where no analyzer has one."""
PARTS = 5
LEAST_POINTS = 20
DOUBT = 2.0
"""Standard errors by which a rate must differ from none."""


class UsedTrend(msgspec.Struct, frozen=True, kw_only=True):
    """Where device used is all that is known: how it goes, as the live view says; no forecast of an error."""

    word: TrendWord
    text: str
    """The word with what is known of it."""
    since_s: float
    """When the growth began; without growth, when the word became what it is."""
    rate_mb_per_min: float | None
    full_in_s: float | None
    """Seconds from the newest sample until the device is full; None where it does not fill."""
    full_in_low_s: float | None
    full_in_high_s: float | None


def list_assessments(log: RunLog, device: DeviceLog) -> Sequence[Assessment]:
    """Return the forecasts for a device that still hold: those of processes that live, or its own.

    A forecast is published when it changes; here its times count from the newest sample.
    """
    last = log.last
    living = set() if last is None else {rank.pid for rank in last.ranks if rank.state != "ended"}
    return [
        it if last is None else bring_forward(it, last.time_s)
        for it in log.assessments_of(device.uuid)
        if it.pid is None or it.pid in living
    ]


def describe_used(log: RunLog, device: DeviceLog) -> UsedTrend | None:
    """Return the trend of device used; None where an allocator reports, or nothing is known yet."""
    trend = _find_trend(log, device)
    if trend is None or log.last is None:
        return None
    rate = trend.rate_bytes_per_s
    return UsedTrend(
        word=trend.word,
        text=word_trend(trend, log.last.time_s)[0],
        since_s=trend.since_s,
        rate_mb_per_min=None if rate is None else rate * 60.0 / MIB,
        full_in_s=trend.full_in_s,
        full_in_low_s=trend.full_in_low_s,
        full_in_high_s=trend.full_in_high_s,
    )


def assess_device(log: RunLog, device: DeviceLog) -> Risk:
    """Return the risk of a device as the live view has it at the newest sample."""
    sample = log.last
    found = None if sample is None else next((it for it in sample.devices if it.uuid == device.uuid), None)
    if sample is None or found is None:
        return Risk("unknown", "not in the newest sample")
    known = doubt_silent(sample, list_assessments(log, device))
    findings = [log.renew(it) for it in log.findings_of(device.uuid)]
    return assess_risk(found, findings, known, sample.ranks)


def find_rate(log: RunLog, device: DeviceLog, window: int) -> float | None:
    """Return the rate at which the memory of a device grows between steps, in bytes a second.

    It is that of the analyzers, as the live view shows it: of the floors of all processes on it, else of the
    trend of device used. Where they have none yet it is the slope of the floors of snapshots.

    Args:
        window: Newest snapshots that count then.
    """
    found = list_assessments(log, device)
    # Of growth that is seen in peaks first nobody says yet whether floors grow too.
    rates = [
        it.growth_bytes_per_s
        for it in found
        if it.memory_source == "allocator" and it.growth_bytes_per_s is not None and not it.is_growth_of_peaks
    ]
    if rates:
        return sum(rates)
    trend = _find_trend(log, device)
    if trend is not None and trend.rate_bytes_per_s is not None:
        return trend.rate_bytes_per_s
    newest = islice(device.snapshots, max(0, len(device.snapshots) - window), None)
    return fit_floors(known_points((it.time_s, it.taken_bytes(device.memory_source)) for it in newest))


def find_peak_rate(log: RunLog, device: DeviceLog) -> float | None:
    """Return how fast steps on a device take more and more, in bytes a second; None where they do not."""
    peaks = (it for it in list_assessments(log, device) if it.is_growth_of_peaks)
    return max((it.growth_bytes_per_s or 0.0 for it in peaks), default=None)


def find_time_to_full(log: RunLog, device: DeviceLog, rate: float | None) -> float | None:
    """Return the seconds until a device is full: by its trend, else by its free bytes over a rate."""
    trend = _find_trend(log, device)
    free = None if device.last is None else device.last.free_bytes
    if trend is not None and trend.full_in_s is not None:
        return trend.full_in_s
    return None if free is None or rate is None or rate <= 0 else free / rate


def fit_floors(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the slope of the floors of (seconds, value) points; None for fewer than three moments.

    Floors are the least values of five parts of the time, of all where they are few: what each step takes and
    gives back is no growth. A slope that may be chance is none: 0.
    """
    floors, blur = _find_floors(points)
    return fit_clear_slope(floors, blur, DOUBT)


def _find_floors(points: Sequence[tuple[float, float]]) -> tuple[Sequence[tuple[float, float]], float]:
    """Return the least of each part of the time, and how far it may be above the floor, as the next is."""
    if len(points) < LEAST_POINTS:
        return points, 0.0
    parts = list(_cut(points))
    floors = [min(part, key=lambda point: point[1]) for part in parts]
    nexts = [sorted(value for _, value in part)[:2][-1] for part in parts]
    return floors, sum(after - floor for after, (_, floor) in zip(nexts, floors, strict=True)) / len(parts)


def _cut(points: Sequence[tuple[float, float]]) -> Iterator[list[tuple[float, float]]]:
    start_s = points[0][0]
    part_s = (points[-1][0] - start_s) / PARTS
    found: dict[int, list[tuple[float, float]]] = {}
    for point in points:
        part = min(PARTS - 1, int((point[0] - start_s) / part_s)) if part_s > 0 else 0
        found.setdefault(part, []).append(point)
    yield from found.values()


def _find_trend(log: RunLog, device: DeviceLog) -> DeviceTrend | None:
    if device.memory_source != "device":
        return None
    trends = (it.device_trend for it in list_assessments(log, device))
    return next((trend for trend in trends if trend is not None), None)
