"""One owner: the growth of its floors, and the finding that is open on it."""

from collections.abc import Iterator

from ...engine.model import Finding, make_finding_id
from ...engine.model.finding import PROCESS_ENDED
from ..closing import close_finding
from ..floors.beat import Beat
from ..floors.episode import Episode, GrowthTrack
from .owner import Owner
from .wording import Leak, is_news, read_episode, state_leak


class LeakTrack:
    """The growth of one owner and the finding on it."""

    def __init__(self) -> None:
        self.finding: Finding | None = None
        self.seen_s = 0.0
        """Time of the newest sample that listed it."""
        self._growth = GrowthTrack()
        self._settled_until_s: float | None = None

    def adopt(self, finding: Finding) -> None:
        """Go on with a finding that a predecessor opened."""
        self.finding = finding
        self.seen_s = finding.updated_s
        self._settled_until_s = finding.updated_s

    def observe(self, owner: Owner, beat: Beat, limit_bytes: int | None) -> Iterator[Finding]:
        """Take one beat; yield what opened, changed or closed."""
        self._growth.observe(beat, limit_bytes)
        if self._settled_until_s is not None:
            if beat.time_s <= self._settled_until_s:
                return
            self._settle()
        if self._growth.ended_because is not None:
            yield from self._close(beat.time_s, self._growth.ended_because)
        elif self._growth.episode is not None and self._growth.completed:
            yield from self._state(owner, self._growth.episode, beat.time_s)

    def end(self, time_s: float) -> Iterator[Finding]:
        """Yield the finding as closed: its owner has ended."""
        yield from self._close(time_s, PROCESS_ENDED)

    def _settle(self) -> None:
        """Go on from where the predecessor was: what it opened is growth still."""
        self._settled_until_s = None
        if self.finding is not None and self._growth.episode is None:
            self._growth.episode = read_episode(self.finding)

    def _state(self, owner: Owner, episode: Episode, time_s: float) -> Iterator[Finding]:
        leak = self._measure(owner, episode, time_s)
        if self.finding is None or (leak.grown_bytes > 0 and is_news(self.finding, leak)):
            self.finding = state_leak(self.finding or _open(owner, time_s), leak)
            yield self.finding

    def _measure(self, owner: Owner, episode: Episode, time_s: float) -> Leak:
        floors = self._growth.floors
        return Leak(
            owner=owner,
            time_s=time_s,
            episode=episode,
            floor_bytes=floors.floor_bytes or episode.onset_bytes,
            limit_bytes=floors.limit_bytes,
            headroom_bytes=None if floors.limit_bytes is None else max(0.0, floors.headroom_bytes),
            steps_per_s=floors.steps_per_s,
            source=floors.last.kind if floors.last is not None else "sample",
        )

    def _close(self, time_s: float, because: str) -> Iterator[Finding]:
        finding, self.finding = self.finding, None
        if finding is not None:
            yield close_finding(finding, time_s, because)


def _open(owner: Owner, time_s: float) -> Finding:
    about = owner.device_uuid if owner.pid is None else f"{owner.device_uuid or ''}#{owner.pid}"
    return Finding(
        id=make_finding_id(owner.kind, owner.node, about, time_s),
        kind=owner.kind,
        node=owner.node,
        device_uuid=owner.device_uuid,
        device=owner.device,
        severity="low",
        title="",
        opened_s=time_s,
        updated_s=time_s,
    )
