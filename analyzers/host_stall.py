"""The host on which everything stands still: where a GPU has the host's memory, a full one stops the node.

Such a node (GB10, Jetson, an APU) does not end a job with an out-of-memory error: it swaps until nobody can
log in. So what counts is what the kernel can still give out (MemAvailable) and how fast that falls, before
there is a stall. Page cache and mapped files do not make it fall: the kernel can drop them, and counts them
as available. `docs/verdicts.md` has the rules.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ..engine.model import Finding, HostSample, Sample, Severity
from ..engine.units import format_bytes, format_left, format_share
from .findings.evidence import EvidenceKey
from .findings.lifecycle import NodeClocks, OpenFinding, Passage, begin_finding, restate

KIND = "host_stall"

# How long samples are looked at, and least of it that must be seen.
WINDOW_S = 20.0
LEAST_WINDOW_S = 12.0
LEAST_SAMPLES = 6
# A finding opens where memory would be used up within this time.
AHEAD_S = 90.0
# Least fall within the window, as a share of the host: less is noise.
LEAST_FALL_SHARE = 0.001
# The lowest values of the window's thirds must fall both times at this share of the whole's rate at least:
# what was allocated at once is no trend, nor are the ups and downs of training steps.
STEADY_SHARE = 0.4
# A fall counts only below what was the least in this time: longer ups and downs come back to the same least.
LOWEST_WITHIN_S = 600.0
# Below this share available the finding is high, and stalls count: with more, the kernel waits for other
# reasons, and what falls fast may be a model that is being loaded, so that the finding is low.
SCARCE_SHARE = 0.15
# What is not given out: at that share the kernel swaps and drops the pages of running programs.
RESERVE_SHARE = 0.02
# Stalls that are critical: percent of time over a few seconds, or bytes a second from swap.
STALL_PERCENT = 5.0
SWAP_IN_BYTES_PER_S = 50e6
STALL_WINDOW_S = 5.0
LEAST_STALLS = 3
# How long it must not look like that for the finding to close.
CLEAN_S = 30.0

_AVAILABLE = EvidenceKey("available", "bytes")
_TOTAL = EvidenceKey("host memory", "bytes")
_RATE = EvidenceKey("falls by", "bytes/s")
_LEFT = EvidenceKey("used up in", "s")
_STALL = EvidenceKey("stalled", "%")
_SWAP_IN = EvidenceKey("from swap", "bytes/s")
_METHOD = (
    f"Available memory (MemAvailable) fell steadily over {WINDOW_S:.0f} s and would be used up within "
    f"{AHEAD_S:.0f} s; or less than {format_share(SCARCE_SHARE)} is available and the node waits for memory: "
    f"all processes for {STALL_PERCENT:.0f} % of the time, or {SWAP_IN_BYTES_PER_S / 1e6:.0f} MB/s come "
    "from swap"
)


class _Point(NamedTuple):
    time_s: float
    available_bytes: int
    stall_percent: float | None
    swap_in_bytes_per_s: float | None


class _State(NamedTuple):
    severity: Severity
    available_bytes: int
    total_bytes: int
    # None where it does not fall.
    fall_bytes_per_s: float | None
    left_s: float | None
    stall_percent: float | None
    swap_in_bytes_per_s: float | None

    @property
    def is_stalling(self) -> bool:
        return self.severity == "critical"


class StallTrack(OpenFinding):
    """What one node has available over the last seconds, and its open finding, if any."""

    def __init__(self) -> None:
        super().__init__()
        self._points: deque[_Point] = deque()
        # Least available of each window before this one, with the time of its end.
        self._lows: deque[tuple[float, int]] = deque()
        self._calm_since_s: float | None = None

    def restart(self) -> None:
        """Forget the past but for the open finding: there is a gap, or the clock was set back."""
        self._points.clear()
        self._lows.clear()
        self._calm_since_s = None

    def observe(self, sample: Sample, host: HostSample) -> Sequence[Finding]:
        if host.available_bytes is None or not host.total_bytes:
            return ()
        time_s = sample.time_s
        self._points.append(
            _Point(time_s, host.available_bytes, host.stall_percent, host.swap_in_bytes_per_s)
        )
        while time_s - self._points[0].time_s > WINDOW_S:
            self._note_low(self._points.popleft())
        state = self._judge(host.available_bytes, host.total_bytes, is_whole=host.limit == "host")
        if self.is_settled(time_s):
            return ()
        if state is None:
            return self._calm(time_s)
        self._calm_since_s = None
        finding = self.finding or begin_finding(KIND, sample.node, time_s)
        if self.finding is not None and not _is_news(self.finding, state):
            return ()
        return self.state(_restate(finding, time_s, state))

    def _calm(self, time_s: float) -> Sequence[Finding]:
        if self.finding is None:
            return ()
        if self._calm_since_s is None:
            self._calm_since_s = time_s
        if time_s - self._calm_since_s < CLEAN_S:
            return ()
        return self.close(time_s, f"for {CLEAN_S:.0f} s available memory did not fall and nothing waited")

    def _judge(self, available_bytes: int, total_bytes: int, *, is_whole: bool) -> _State | None:
        """Return how the node is; None if there is nothing to say.

        Args:
            is_whole: Whether it is the host's memory: a control group counts page cache in use as used.
        """
        fall = self._find_fall(total_bytes) if is_whole else None
        room_bytes = max(0.0, available_bytes - RESERVE_SHARE * total_bytes)
        left_s = None if fall is None else room_bytes / fall
        is_scarce = available_bytes < SCARCE_SHARE * total_bytes
        stall, swap_in = self._average_stalls()
        is_stalling = is_scarce and (
            (stall or 0.0) >= STALL_PERCENT or (swap_in or 0.0) >= SWAP_IN_BYTES_PER_S
        )
        if not is_stalling and (left_s is None or left_s > AHEAD_S):
            return None
        severity: Severity = "critical" if is_stalling else "high" if is_scarce else "low"
        return _State(severity, available_bytes, total_bytes, fall, left_s, stall, swap_in)

    def _find_fall(self, total_bytes: int) -> float | None:
        """Return bytes a second by which it falls steadily; None if it does not."""
        points = self._points
        passed_s = points[-1].time_s - points[0].time_s
        if len(points) < LEAST_SAMPLES or passed_s < LEAST_WINDOW_S:
            return None
        fallen = points[0].available_bytes - points[-1].available_bytes
        if fallen < LEAST_FALL_SHARE * total_bytes:
            return None
        lowest = min((low for _, low in self._lows), default=None)
        if lowest is None or points[-1].available_bytes > lowest - LEAST_FALL_SHARE * total_bytes:
            return None
        third_s = passed_s / 3
        thirds: list[list[int]] = [[], [], []]
        for point in points:
            thirds[min(2, int((point.time_s - points[0].time_s) / third_s))].append(point.available_bytes)
        if not all(thirds):
            return None
        first, second, third = map(min, thirds)
        rate = (first - third) / (2 * third_s)
        least = STEADY_SHARE * rate * third_s
        return rate if rate > 0.0 and min(first - second, second - third) >= least else None

    def _note_low(self, point: _Point) -> None:
        """Store the least that was available before the window, one value for each window's length."""
        lows = self._lows
        if lows and point.time_s - lows[-1][0] < WINDOW_S:
            lows[-1] = lows[-1][0], min(lows[-1][1], point.available_bytes)
        else:
            lows.append((point.time_s, point.available_bytes))
        while point.time_s - lows[0][0] > LOWEST_WITHIN_S:
            lows.popleft()

    def _average_stalls(self) -> tuple[float | None, float | None]:
        newest_s = self._points[-1].time_s
        recent = [point for point in self._points if newest_s - point.time_s < STALL_WINDOW_S]
        stalls = [it.stall_percent for it in recent if it.stall_percent is not None]
        swaps = [it.swap_in_bytes_per_s for it in recent if it.swap_in_bytes_per_s is not None]
        # One bad second is none: it takes all of a few seconds.
        if newest_s - self._points[0].time_s < STALL_WINDOW_S:
            return None, None
        return (
            sum(stalls) / len(stalls) if len(stalls) >= LEAST_STALLS else None,
            sum(swaps) / len(swaps) if len(swaps) >= LEAST_STALLS else None,
        )


def _is_news(finding: Finding, state: _State) -> bool:
    before = _AVAILABLE.read_count(finding) or 0
    return finding.severity != state.severity or abs(before - state.available_bytes) > 0.2 * before


def _restate(finding: Finding, time_s: float, state: _State) -> Finding:
    available = f"{format_bytes(state.available_bytes)} of {format_bytes(state.total_bytes)} available"
    if state.is_stalling:
        why = "all processes wait for memory" if (state.stall_percent or 0.0) >= STALL_PERCENT else "it swaps"
        title = f"the host stalls: {why}, {available}"
    else:
        left = format_left(state.left_s or 0.0)
        rate = format_bytes(round(state.fall_bytes_per_s or 0.0))
        title = (
            f"host memory, which is the GPU's too, is used up in {left}: {available}, {rate} less a second"
        )
    return restate(
        finding,
        time_s,
        severity=state.severity,
        title=title,
        evidence=(
            _AVAILABLE(state.available_bytes),
            _TOTAL(state.total_bytes),
            _RATE(state.fall_bytes_per_s),
            _LEFT(state.left_s),
            _STALL(state.stall_percent),
            _SWAP_IN(state.swap_in_bytes_per_s),
        ),
        method=_METHOD,
        advice=(
            "End or pause a job before the node stops answering: here no out-of-memory error ends it. "
            "`vramscope guard --signal-job NAME` does so by itself next time"
        ),
    )


class HostStallAnalyzer:
    """Opens one finding for a node with a GPU that has the host's memory."""

    name = "host_stall"

    def __init__(self) -> None:
        self._clocks = NodeClocks()
        self._tracks: dict[str, StallTrack] = {}

    def observe(self, sample: Sample) -> Sequence[Finding]:
        passage = self._clocks.note(sample)
        if passage is Passage.LATE or sample.host is None:
            return ()
        track = self._tracks.get(sample.node)
        if not any(device.kind == "unified" for device in sample.devices):
            return () if track is None else track.observe_absence(sample.time_s, is_lost=False)
        if track is None:
            track = self._tracks[sample.node] = StallTrack()
        if passage is not Passage.NEXT:
            track.restart()
        return track.observe(sample, sample.host)

    def restore(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            if finding.kind == KIND and finding.is_open:
                track = self._tracks[finding.node] = StallTrack()
                track.adopt(finding)
