"""Leaks of device memory (`leak`) and of host memory (`host_leak`), of a process or of a host as a whole.

The rule is the horizon ratio over floors (`analyzers/floors/growth.py`); thresholds and what they mean stand
in `docs/verdicts.md`.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from ...engine.model import Finding, Sample
from .host import hosts_of, make_track
from .owner import KINDS, OwnerKey, listed_keys, owners_of
from .track import LeakTrack
from .wording import read_key

ABSENT_S = 10.0
"""Seconds for which an owner must not be listed before its finding closes; longer ticks allow three."""
ABSENT_TICKS = 3.5


class LeakAnalyzer:
    """Open one finding per owner while its floors grow without end; close it when they stop or it ends."""

    name = "leak"

    def __init__(self) -> None:
        self._tracks: dict[OwnerKey, LeakTrack] = {}

    def observe(self, sample: Sample) -> Sequence[Finding]:
        """Take one sample and return the findings it opened, updated or closed."""
        found: list[Finding] = []
        for owner, beat, limit_bytes in chain(owners_of(sample), hosts_of(sample)):
            track = self._tracks.get(owner.key)
            if track is None:
                track = self._tracks[owner.key] = make_track(owner.key)
            track.seen_s = sample.time_s
            if beat is not None:
                found += track.observe(owner, beat, limit_bytes)
        found += self._observe_absent(sample)
        return found

    def restore(self, findings: Sequence[Finding]) -> None:
        """Adopt open findings of these kinds; samples up to their last update change nothing about them."""
        for finding in findings:
            if finding.kind in KINDS and finding.is_open:
                key = read_key(finding)
                self._tracks.setdefault(key, make_track(key)).adopt(finding)

    def _observe_absent(self, sample: Sample) -> Iterator[Finding]:
        absent_s = max(ABSENT_S, ABSENT_TICKS * sample.interval_s)
        late = [key for key, track in self._tracks.items() if track.seen_s != sample.time_s]
        listed = listed_keys(sample) if late else set()
        for key in late:
            track = self._tracks[key]
            if key[1] != sample.node or key in listed or abs(sample.time_s - track.seen_s) < absent_s:
                continue
            yield from track.end(sample.time_s)
            del self._tracks[key]
