"""One subject: what is foreseen for it, the finding on that, and its newest assessment."""

from collections.abc import Iterator

from ...engine.model import Assessment, Finding, make_finding_id
from ...engine.model.finding import PROCESS_ENDED
from ..closing import close_finding
from ..subjects import Subject
from .assessing import assess_device, assess_forecast, is_other
from .levels import grade_finding
from .watch import Watch
from .wording import KIND, is_news, read_episode, state_forecast

CALM_S = 30.0
"""For how long nothing must be foreseen before a finding closes while growth goes on."""


class OomTrack:
    """Watch, finding and assessment of one subject."""

    def __init__(self) -> None:
        self.finding: Finding | None = None
        self.seen_s = 0.0
        """Time of the newest sample that listed it."""
        self._watch = Watch()
        self._assessed: Assessment | None = None
        """The newest assessment, until it is taken."""
        self._told: Assessment | None = None
        self._settled_until_s: float | None = None
        self._foreseen_s: float | None = None

    def adopt(self, finding: Finding) -> None:
        """Go on with a finding that a predecessor opened."""
        self.finding = finding
        self.seen_s = self._settled_until_s = self._foreseen_s = finding.updated_s

    def observe(self, subject: Subject) -> Iterator[Finding]:
        """Take one sample; yield what opened, changed or closed."""
        time_s, watch = subject.sample.time_s, self._watch
        watch.observe(subject)
        if not watch.has_allocator:
            self._assessed = assess_device(subject)
            return
        if self._settled_until_s is not None:
            if time_s <= self._settled_until_s:
                return
            self._settled_until_s = None
            if self.finding is not None and watch.growth.episode is None:
                watch.growth.episode = read_episode(self.finding)
        if watch.is_fresh:
            yield from self._conclude(subject)

    def end(self, time_s: float) -> Iterator[Finding]:
        """Yield the finding as closed: its subject has ended."""
        yield from self._close(time_s, PROCESS_ENDED)

    def take_assessment(self) -> Assessment | None:
        """Return the newest assessment where it differs from the one taken before."""
        newest, self._assessed = self._assessed, None
        if newest is None or (self._told is not None and not is_other(self._told, newest)):
            return None
        self._told = newest
        return newest

    def _conclude(self, subject: Subject) -> Iterator[Finding]:
        watch, time_s = self._watch, subject.sample.time_s
        forecast = watch.forecast
        if forecast is None:
            return
        self._assessed = assess_forecast(subject, watch, forecast)
        severity = grade_finding(forecast)
        if severity is not None:
            self._foreseen_s = time_s
            finding = self.finding or _open(subject)
            stated = state_forecast(finding, subject, watch, forecast, severity)
            if self.finding is None or is_news(self.finding, stated):
                self.finding = stated
                yield stated
        elif watch.growth.ended_because is not None:
            yield from self._close(time_s, watch.growth.ended_because)
        elif self._foreseen_s is not None and time_s - self._foreseen_s >= CALM_S:
            yield from self._close(time_s, "nothing is foreseen any more")

    def _close(self, time_s: float, because: str) -> Iterator[Finding]:
        finding, self.finding = self.finding, None
        if finding is not None:
            yield close_finding(finding, time_s, because)


def _open(subject: Subject) -> Finding:
    rank, uuid = subject.rank, subject.device_uuid
    about = uuid if rank is None else f"{uuid or ''}#{rank.pid}"
    node, time_s = subject.sample.node, subject.sample.time_s
    return Finding(
        id=make_finding_id(KIND, node, about, time_s),
        kind=KIND,
        node=node,
        device_uuid=uuid,
        device=None if subject.device is None else subject.device.label,
        severity="low",
        title="",
        opened_s=time_s,
        updated_s=time_s,
    )
