"""The Breakdown screen for training processes: it stays at the newest point until the user goes back."""

from collections.abc import Callable, Sequence

from ...analyzers.modules import make_breakdown
from ...engine.clock import Clock
from ...engine.model import RankSample
from ...engine.model.sample import ModuleMemory
from ...engine.units import format_age, format_bytes
from ...engine.viewer.feed import Feed
from ...engine.viewer.snapshot import RankModules, Snapshot
from ...exporters.modules.text import COST, describe_wait, name_process
from ..draw.pieces import Piece
from ..frame import keys
from .profiled import Place, Profiled, describe_most
from .screen import BreakdownScreen

# After a refusal, and for a lost question a multiple of it.
ASK_AGAIN_S = 10.0
# Age from which the screen shows how old the data is.
OLD_FROM_S = 5.0
NOTHING = ModuleMemory(format="module memory", moments=())


class LiveProfiles:
    """Asks the shown process repeatedly for its modules, which keeps its profile running."""

    def __init__(self, feed: Feed, clock: Clock, ranks: Sequence[RankSample]) -> None:
        self._feed = feed
        self._clock = clock
        self._ranks = {rank.pid: rank for rank in ranks}
        self._pids = [rank.pid for rank in ranks]
        self._answers: dict[int, RankModules] = {}
        # Start of the wait for an answer.
        self._asked_s: dict[int, float] = {}
        self._answered_s: dict[int, float] = {}
        self._first_asked_s: dict[int, float] = {}

    @property
    def profiles(self) -> tuple[Profiled, ...]:
        """The profile of each process; one without moments where none has come."""
        return tuple(
            Profiled(name_process(self._ranks[pid]), self._find_memory(pid) or NOTHING) for pid in self._pids
        )

    def observe(self, snapshot: Snapshot) -> None:
        for rank in () if snapshot.sample is None else snapshot.sample.ranks:
            if rank.pid in self._ranks:
                self._ranks[rank.pid] = rank
        for answer in snapshot.modules:
            known = self._answers.get(answer.pid)
            if answer.pid in self._ranks and (known is None or known.number != answer.number):
                self._answers[answer.pid] = answer
                if answer.refusal is None:
                    self._asked_s.pop(answer.pid, None)
                    self._answered_s[answer.pid] = self._clock.monotonic_s()

    def ask(self, place: int) -> None:
        """Ask a process for its next step, unless it has ended or an answer is pending."""
        pid = self._pids[place]
        now_s = self._clock.monotonic_s()
        asked_s = self._asked_s.get(pid)
        answer = self._answers.get(pid)
        patience_s = ASK_AGAIN_S if answer is not None and answer.refusal is not None else 10 * ASK_AGAIN_S
        if self._ranks[pid].state == "ended" or (asked_s is not None and now_s - asked_s < patience_s):
            return
        self._asked_s[pid] = now_s
        self._first_asked_s.setdefault(pid, now_s)
        self._feed.ask_modules(pid)

    def describe_wait(self, place: int) -> str:
        """Return the state of the wait, or why nothing comes."""
        pid = self._pids[place]
        answer = self._answers.get(pid)
        rank = self._ranks[pid]
        if answer is not None and answer.refusal is not None and rank.state != "ended":
            return f"{name_process(rank)}: {answer.refusal}; asking again every {ASK_AGAIN_S:.0f} s"
        return describe_wait(rank, self._clock.monotonic_s() - self._first_asked_s.get(pid, 0.0))

    def describe_trouble(self, place: int) -> str:
        """Return the beginning of a sentence that says why the data is old; empty where it is not."""
        pid = self._pids[place]
        age_s = self._clock.monotonic_s() - self._answered_s.get(pid, 0.0)
        old = f"data of {format_age(age_s)} ago" if age_s >= OLD_FROM_S else ""
        if self._ranks[pid].state == "ended":
            return f"Ended, {old}" if old else "Ended"
        return old.capitalize()

    def _find_memory(self, pid: int) -> ModuleMemory | None:
        answer = self._answers.get(pid)
        return None if answer is None else answer.memory


class LiveBreakdownScreen(BreakdownScreen):
    """One point of the growing profile of one process; `Esc` at the whole tree calls `leave`, if any."""

    BINDINGS = [*keys.LIVE_BREAKDOWN]

    def __init__(
        self,
        live: LiveProfiles,
        *,
        leave: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(leave=leave)
        self._live = live
        self._profiles = live.profiles
        # Whether each new point is shown at once.
        self.is_following = True

    def on_mount(self) -> None:
        """Ask the first process, and notify what it costs."""
        self.notify(f"Profiling {COST}; it stops when you leave.", timeout=6)
        self._show_newest()

    def follow(self, snapshot: Snapshot) -> None:
        """Show the data of a snapshot, and ask the shown process again."""
        self._live.observe(snapshot)
        self._live.ask(self._at)
        self._show_newest()

    def _show_newest(self) -> None:
        """Draw new data; the chosen point stays the same one, or is the newest."""
        before = self._profiles[self._at]
        profiles = self._live.profiles
        memory = profiles[self._at].memory
        is_new = memory is not before.memory
        self._profiles = profiles
        if not memory.moments:
            self._live.ask(self._at)
            self.wait(self._live.describe_wait(self._at))
        elif self.is_following:
            self.place = self.place._replace(point=len(memory.moments) - 1)
        elif is_new:
            self.place = self.place._replace(point=_find_again(before.memory, memory, self.place.point))
        if is_new:
            self._show_place()
            if not before.memory.moments:
                self.refresh_bindings()
        elif memory.moments:
            self._draw_head(self._profiles[self._at])

    def wait(self, sentence: str) -> None:
        super().wait(sentence)
        self._title.set_pieces(
            [
                Piece(self._name_screen(), "accent"),
                Piece(f"  {self._name_profile(self._profiles[self._at])}", "muted"),
            ]
        )

    def _go_to(self, place: Place) -> None:
        super()._go_to(place)
        profile = self.profile
        self.is_following = profile is not None and self.place.point == len(profile.memory.moments) - 1
        self._draw_lines()

    def _name_profile(self, profile: Profiled) -> str:
        return f"live: {super()._name_profile(profile)}"

    def _name_point(self, memory: ModuleMemory) -> str:
        named = super()._name_point(memory)
        return f"newest, {named}" if self.is_following else named

    def _describe_verdict(self, memory: ModuleMemory) -> str:
        trouble = self._live.describe_trouble(self._at)
        return f"{trouble}. {self._describe_most(memory)}" if trouble else self._describe_most(memory)

    def _describe_most(self, memory: ModuleMemory) -> str:
        """Return what takes most; at the newest point also the activations before it."""
        if not self.is_following:
            return super()._describe_verdict(memory)
        verdict = describe_most(self._tree, self.basis, memory, self.place, is_short=True)
        most = make_breakdown(memory).find("activation")
        size = most.measured_bytes if most.measured_bytes is not None else most.computed_bytes
        return f"{verdict}; activations reach {format_bytes(size)} (])" if size else verdict

    def _find_in_other(self, other: ModuleMemory) -> Place | None:
        """Return the newest point of the same kind in another process."""
        profile = self.profile
        if not other.moments or profile is None:
            return None
        if self.place.point is None or not profile.memory.moments:
            return self.place._replace(point=None)
        kind = _name_kind(profile.memory.moments[self.place.point].tag)
        alike = [at for at, moment in enumerate(other.moments) if _name_kind(moment.tag) == kind]
        return self.place._replace(point=alike[-1]) if alike else None

    def action_follow_newest(self) -> None:
        self.is_following = True
        self._show_newest()
        self._show_place()

    def action_step_profile(self, places: int) -> None:
        """Show another process, at its newest point where this one's was shown."""
        super().action_step_profile(places)
        self._live.ask(self._at)
        self._show_newest()
        self._show_place()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action makes sense now: most need a profile with moments."""
        has_none = self.profile is None or not self.profile.memory.moments
        if has_none and action in ("export_breakdown", "report", "step_point"):
            return False
        return super().check_action(action, parameters)


def _find_again(before: ModuleMemory, memory: ModuleMemory, point: int | None) -> int | None:
    """Return the place of a moment in a profile that has grown, and may have lost its oldest; else the
    oldest.
    """
    if point is None or point >= len(before.moments):
        return None
    wanted_s = before.moments[point].time_s
    return next((at for at, moment in enumerate(memory.moments) if moment.time_s == wanted_s), 0)


def _name_kind(tag: str) -> str:
    """Return the name of a point without the number of its step."""
    return tag.rstrip("0123456789").rstrip()
