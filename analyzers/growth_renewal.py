"""Findings on growth as of now: between two statements their times, rates and sizes are those of the newest
assessment, so that every number on a screen or in a report has one source. What has ended is in the past and
forecasts nothing.
"""

import math
import re
from collections.abc import Iterator, Sequence

import msgspec

from ..engine.model import Assessment, Evidence, Finding
from ..engine.units import format_bytes, format_left, format_share
from .findings.evidence import (
    BELIEF,
    CAPACITY,
    FLOOR,
    FLOOR_AT_ONSET,
    GROWN,
    PEAK_ABOVE_FLOOR,
    PROBABILITY,
    RATE,
    RATE_PER_STEP,
    TIME_AT_LEAST,
    TIME_AT_MOST,
    TIME_LEFT,
    read_process,
)

OOM = "oom"
LEAK = "leak"

_TIME = r"\d+ [smhd](?: \d+ [smh])?"
_SIZE = r"[\d,.]+ [KMGTP]?i?B"
_LEFT = re.compile(rf"(out of memory in )({_TIME})")
_RANGE = re.compile(rf"\((\d+)-(\d+) s, |\(({_TIME}) to ({_TIME}), ")
_PACE = re.compile(rf"(grow by|leaks) {_SIZE} a (step|minute)")
_GROWN = re.compile(rf"\({_SIZE}\)")
# How titles say what goes on, and what has ended.
_PAST = tuple(
    (re.compile(present), past)
    for present, past in (
        (rf"may run out of memory(?: in {_TIME})?(?: \([^)]*\))?", "might have run out of memory"),
        (rf"out of memory in {_TIME}(?: \([^)]*\))?", "was running out of memory"),
        (r"\bgrow by(?= \d)", "grew by"),
        (r"\bleaks(?= \d)", "leaked"),
        (r"\bmay not fit$", "might not have fitted"),
    )
)
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def renew_findings(
    findings: Sequence[Finding], assessments: Sequence[Assessment], now_s: float
) -> Sequence[Finding]:
    """Return findings as of now: those on growth are renewed, others are as they are.

    Args:
        assessments: The newest of each process and device.
    """
    if not any(it.kind in (OOM, LEAK) for it in findings):
        return findings
    return tuple(renew_finding(it, assessments, now_s) for it in findings)


def renew_finding(finding: Finding, assessments: Sequence[Assessment], now_s: float) -> Finding:
    """Return a finding `oom` or `leak` with title and evidence as of now; any other one as it is.

    Times, rates and sizes are those of the newest assessment of its process. Without one the times of its
    title count down by what has passed since it was stated. The title of a closed one is in the past.
    """
    if finding.kind not in (OOM, LEAK):
        return finding
    if not finding.is_open:
        return msgspec.structs.replace(finding, title=word_past(finding))
    word = _find_word(finding, assessments)
    title = _count_down(finding, word, now_s)
    if word is None:
        return msgspec.structs.replace(finding, title=title, updated_s=max(now_s, finding.updated_s))
    known = {it.name: it for it in _list_newest(finding, word, now_s) if it.value is not None}
    title = _restate_growth(title, word, known.get(GROWN.name) if finding.kind == LEAK else None)
    return msgspec.structs.replace(
        finding,
        title=title,
        updated_s=max(now_s, finding.updated_s),
        evidence=tuple(known.get(it.name, it) for it in finding.evidence),
    )


def word_past(finding: Finding) -> str:
    """Return the title of a finding on growth that has ended: in the past, without a forecast."""
    title = finding.title
    if finding.kind in (OOM, LEAK):
        for present, past in _PAST:
            title = present.sub(past, title, count=1)
    return title


def _find_word(finding: Finding, assessments: Sequence[Assessment]) -> Assessment | None:
    """Return the assessment of the process that a finding is about; the one that ends first of several.

    A leak has grown floors: an assessment of growing peaks, or of none, says nothing about it.
    """
    pid, _ = read_process(finding)
    found = [
        it
        for it in assessments
        if it.device_uuid == finding.device_uuid
        and (pid is None or it.pid == pid)
        and (it.oom_in_s is not None if finding.kind == OOM else _has_grown_floors(it))
    ]
    return min(
        found, key=lambda it: it.time_s + (math.inf if it.oom_in_s is None else it.oom_in_s), default=None
    )


def _has_grown_floors(word: Assessment) -> bool:
    return (word.growth_bytes_per_s or 0.0) > 0.0 and not word.is_growth_of_peaks


def _list_newest(finding: Finding, word: Assessment, now_s: float) -> Iterator[Evidence]:
    past_s = now_s - word.time_s
    per_step = word.growth_bytes_per_step
    yield RATE(word.growth_bytes_per_s)
    yield RATE_PER_STEP(None if per_step is None else round(per_step))
    for key, time_s in (
        (TIME_LEFT, word.oom_in_s),
        (TIME_AT_LEAST, word.oom_in_low_s),
        (TIME_AT_MOST, word.oom_in_high_s),
    ):
        yield key(None if time_s is None else max(0.0, time_s - past_s))
    yield PROBABILITY(word.probability)
    yield BELIEF(None if word.oom_in_s is None else word.confidence)
    yield CAPACITY(word.capacity_bytes)
    onset = FLOOR_AT_ONSET.read_count(finding)
    floor = word.floor_bytes
    peak = word.peak_bytes
    yield FLOOR(floor)
    yield PEAK_ABOVE_FLOOR(None if peak is None or floor is None else peak - floor)
    is_more = floor is not None and onset is not None and floor > onset
    yield GROWN((floor or 0) - (onset or 0) if is_more else None)


def _restate_growth(title: str, word: Assessment, grown: Evidence | None) -> str:
    """Return a title with the pace of an assessment, and with what has grown where it ends with that."""
    paces = {"step": word.growth_bytes_per_step, "minute": (word.growth_bytes_per_s or 0.0) * 60.0}

    def restate(match: re.Match[str]) -> str:
        pace = paces[match[2]]
        return match[0] if not pace else f"{match[1]} {format_bytes(round(pace))} a {match[2]}"

    restated = _PACE.sub(restate, title, count=1)
    size = None if grown is None else grown.value
    return _GROWN.sub(f"({format_bytes(size)})", restated, count=1) if isinstance(size, int) else restated


def _count_down(finding: Finding, word: Assessment | None, now_s: float) -> str:
    """Return a title with its times as of now; unchanged where it has none."""
    match = _LEFT.search(finding.title)
    if match is None:
        return finding.title
    if word is None or word.oom_in_s is None:
        past_s = now_s - finding.updated_s
        return _replace_times(
            finding.title, _parse_time(match[2]) - past_s, _parse_range(finding.title, past_s)
        )
    past_s = now_s - word.time_s
    low_s = word.oom_in_low_s
    high_s = word.oom_in_high_s
    known = None if low_s is None or high_s is None else (low_s - past_s, high_s - past_s)
    restated = _replace_times(finding.title, word.oom_in_s - past_s, known)
    # With a forecast the confidence is the probability that growth goes on, which the title has.
    return (
        restated
        if word.confidence is None
        else re.sub(r", \d+ ?%\)", f", {format_share(word.confidence)})", restated, count=1)
    )


def _parse_time(text: str) -> float:
    """Return the seconds in `1 m 16 s`."""
    words = text.split()
    pairs = zip(words[::2], words[1::2], strict=True)
    return float(sum(int(number) * _UNIT_S[unit] for number, unit in pairs))


def _parse_range(title: str, past_s: float) -> tuple[float, float] | None:
    match = _RANGE.search(title)
    if match is None:
        return None
    low, high = (
        (float(match[1]), float(match[2])) if match[1] else (_parse_time(match[3]), _parse_time(match[4]))
    )
    return low - past_s, high - past_s


def _replace_times(title: str, left_s: float, span_s: tuple[float, float] | None) -> str:
    restated = _LEFT.sub(lambda match: f"{match[1]}{format_left(left_s)}", title, count=1)
    if span_s is None:
        return restated
    low_s, high_s = (max(0, round(value)) for value in span_s)
    text = f"({low_s}-{high_s} s, " if high_s < 600 else f"({format_left(low_s)} to {format_left(high_s)}, "
    return _RANGE.sub(text, restated, count=1)
