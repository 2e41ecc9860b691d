"""Feeds the screens of a replay: of one run, or of several that play one after the other."""

import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..alerts.state import FindingDecision
from ..clock import Clock, SystemClock
from ..errors import InputFileError, VramscopeError
from ..history import History
from ..model import Analyzer
from ..viewer.feed import BaseFeed
from ..viewer.snapshot import ReplayPart, ReplayWord, Snapshot
from .player import ReplayCommand, ReplayOptions, ReplayPlayer
from .tapes import Tape

MOST_COMMANDS = 256
# A moment that takes longer to work out is shown without its verdicts meanwhile.
PATIENCE_S = 0.2


class ReplayFeed(BaseFeed):
    """Plays tapes on its own thread; reading never blocks a screen.

    Args:
        open_tapes: Opens one tape a node, on that thread.
    """

    def __init__(
        self,
        open_tapes: Callable[[], Sequence[Tape]],
        *,
        make_analyzers: Callable[[], Sequence[Analyzer]],
        options: ReplayOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__("replay-feed")
        # History of the first node.
        self.history = History()
        self._histories: dict[str, History] = {}
        self._open_tapes = open_tapes
        self._make_analyzers = make_analyzers
        self._options = options
        self._clock = clock or SystemClock()
        self._called = threading.Condition()
        self._commands: deque[ReplayCommand] = deque(maxlen=MOST_COMMANDS)
        self._told: dict[str, object] = {}

    def _wake(self) -> None:
        with self._called:
            self._called.notify()

    def command(self, command: ReplayCommand) -> None:
        """Queue a command, from any thread; returns at once."""
        with self._called:
            self._commands.append(command)
            self._called.notify()

    def history_of(self, node: str) -> History:
        """The history of a node as far as it was played; safe from any thread."""
        with self._called:
            return self._histories.setdefault(node, History() if self._histories else self.history)

    def look_at(self, node: str) -> None:
        """Focus a node: it is worked out first, and steps follow its own samples."""
        self.command(ReplayCommand("node", text=node))

    def ask_segments(self, pid: int) -> None:
        """A recording has no segment maps; a later snapshot says so."""
        self.command(ReplayCommand("segments", pid))

    def ask_modules(self, pid: int) -> None:
        """Do nothing: no process runs that could be followed."""

    def decide(self, decision: FindingDecision) -> None:
        """Store nothing, and say so: there is no agent that could store a decision."""
        self.command(ReplayCommand("decide"))

    @property
    def _is_left(self) -> bool:
        """Nothing more of the present run is to be played."""
        return self._stopped.is_set()

    def _wait_s(self, player: ReplayPlayer) -> float:
        """Seconds until something is due; 0 if something is."""
        return player.wait_s

    def _advance(self, player: ReplayPlayer) -> bool:
        """Play what is due; return whether there was anything."""
        return player.advance()

    @property
    def _is_called(self) -> bool:
        return self._stopped.is_set() or bool(self._commands)

    def _run(self) -> None:
        try:
            self._play_all()
        except VramscopeError as error:
            self._on_snapshot(Snapshot("lost", reason=str(error)))

    def _play_all(self) -> None:
        self._play(self._open_tapes(), self._options)

    def _play(self, tapes: Sequence[Tape], options: ReplayOptions | None) -> None:
        """Play tapes until they are left, and close them."""
        try:
            self._play_on(tapes, options)
        finally:
            for tape in tapes:
                tape.close()

    def _play_on(self, tapes: Sequence[Tape], options: ReplayOptions | None) -> None:
        self.history_of(min(tapes, key=lambda tape: tape.start_s).node)
        player = ReplayPlayer(
            tapes,
            make_analyzers=self._make_analyzers,
            histories=self.history_of,
            clock=self._clock,
            options=options,
        )
        is_news = True
        while not self._is_left:
            is_news = self._catch_up(player) or is_news
            if is_news:
                self._emit(player)
            is_news = self._work_or_wait(player)
            is_news = self._obey(player) or is_news
            is_news = self._advance(player) or is_news

    def _emit(self, player: ReplayPlayer) -> None:
        """Emit snapshots of what changed; the position alone changes only that of the focused node."""
        for at, snapshot in enumerate(player.snapshots):
            is_catching_up = snapshot.replay is not None and snapshot.replay.is_catching_up
            without_position = msgspec.structs.replace(snapshot, replay=None), is_catching_up
            news = snapshot if at == 0 else without_position
            if self._told.get(snapshot.node) != news:
                self._told[snapshot.node] = news
                self._on_snapshot(snapshot)

    def _work_or_wait(self, player: ReplayPlayer) -> bool:
        """Work out nodes that are not focused while nothing is due; return whether one is done."""
        if player.has_more_to_work_out and not player.is_catching_up:
            return player.catch_up_others(lambda: self._is_called or player.wait_s <= 0)
        with self._called:
            wait_s = self._wait_s(player)
            if not self._is_called and wait_s > 0:
                self._called.wait(min(wait_s, threading.TIMEOUT_MAX))
        return False

    def _catch_up(self, player: ReplayPlayer) -> bool:
        """Work out the moment that was jumped to; if that takes long, show it without verdicts first."""
        begun_s = self._clock.monotonic_s()
        is_shown = False

        def is_called() -> bool:
            nonlocal is_shown
            if not is_shown and self._clock.monotonic_s() - begun_s >= PATIENCE_S:
                self._on_snapshot(player.snapshot)
                is_shown = True
            return self._is_called

        return player.is_catching_up and player.catch_up(is_called)

    def _obey(self, player: ReplayPlayer) -> bool:
        is_news = False
        while self._commands:
            player.apply(self._commands.popleft())
            is_news = True
        return is_news


_MOST_NAMED = 2
_MOST_REASON = 160


class PlaylistEntry(msgspec.Struct, frozen=True, kw_only=True):
    # Such as `TP 8 PP 64`.
    name: str
    # Its outcome, in a word or two.
    state: str
    # One of its traces; None if it has none.
    path: Path | None = None
    # Its outcome if it has none, such as `ran out of memory`: follows one name or several.
    absence: str = ""
    peak_bytes: int | None = None
    theoretical_bytes: int | None = None
    static_bytes: int | None = None


class ReadingLeft(Exception):  # noqa: N818  # no error: something newer was asked for
    """Raised by `on_read` when the run that is being read is not wanted any more."""


# Opens the tapes of an entry that has a path; the second argument is called with the share read.
OpenEntry = Callable[[PlaylistEntry, Callable[[float], None]], Sequence[Tape]]


class OpenedEntry(NamedTuple):
    # Among all entries.
    place: int
    tapes: Sequence[Tape]


class Playlist:
    """Runs in order, those without traces among them."""

    def __init__(self, entries: Sequence[PlaylistEntry], open_entry: OpenEntry) -> None:
        self._entries = entries
        self._open_entry = open_entry
        self._playable = [at for at, entry in enumerate(entries) if entry.path is not None]
        self._number_of = {at: number for number, at in enumerate(self._playable, 1)}
        self._refused: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def name(self, index: int) -> str:
        return self._entries[index].name

    def part(self, index: int) -> ReplayPart:
        """What screens show of an entry that has traces."""
        entry = self._entries[index]
        return ReplayPart(
            number=self._number_of[index],
            total=len(self._playable),
            name=entry.name,
            state=entry.state,
            peak_bytes=entry.peak_bytes,
            theoretical_bytes=entry.theoretical_bytes,
            static_bytes=entry.static_bytes,
        )

    def find(self, index: int, direction: int) -> int | None:
        """Return the first entry from `index` on that can be played, or None.

        Args:
            index: Counts too.
            direction: 1 for onwards, -1 for back.
        """
        able = [at for at in self._playable if at not in self._refused and (at - index) * direction >= 0]
        return min(able, key=lambda at: abs(at - index), default=None)

    def step(self, index: int, places: int) -> int | None:
        """Return the entry `places` playable entries on, or back; the last one if there are fewer."""
        direction = 1 if places > 0 else -1
        at = index
        found = None
        for _ in range(min(abs(places), len(self._entries))):
            further = self.find(at + direction, direction)
            if further is None:
                break
            at = found = further
        return found

    def open(
        self, index: int, direction: int, on_read: Callable[[float], None] = lambda _: None
    ) -> OpenedEntry | None:
        """Open the first entry from `index` on that can be read, or None.

        `describe_passed` names the entries that cannot be read from then on.

        Args:
            index: Counts too.
            direction: 1 for onwards, -1 for back.
            on_read: Called with the share read of an entry; may raise `ReadingLeft`.

        Raises:
            ReadingLeft: A newer command came.
            OutputFileError: No room for temporary files.
        """
        at: int | None = index
        while at is not None and (at := self.find(at, direction)) is not None:
            try:
                return OpenedEntry(at, self._open_entry(self._entries[at], on_read))
            except InputFileError as error:
                self._refused[at] = str(error)
        return None

    def describe_passed(self, passed: range) -> str:
        """Return why entries are not played; empty if all of them can be."""
        absent = [at for at in passed if 0 <= at < len(self) and self._entries[at].path is None]
        counted = Counter(self._entries[at].absence for at in absent)
        sentences = []
        for absence, count in counted.items():
            names = [self.name(at) for at in absent if self._entries[at].absence == absence]
            more = f" and {count - _MOST_NAMED:,} more" if count > _MOST_NAMED else ""
            joined = (", " if more else " and ").join(names[:_MOST_NAMED])
            sentences.append(f"{joined}{more} {absence}: no trace.")
        for at in passed:
            if at in self._refused:
                sentences.append(f"{self.name(at)} is skipped: {_shorten(self._refused[at])}.")
        return " ".join(sentences)


def _shorten(reason: str) -> str:
    return reason if len(reason) <= _MOST_REASON else f"{reason[: _MOST_REASON - 1]}…"


# How long the last picture of a run stays before the next one begins.
HOLD_S = 3.0


class PlaylistFeed(ReplayFeed):
    """Plays the runs of a playlist; all fill the same history, one after the other.

    Args:
        first: Where it begins, open already.
        options: How it begins; the word is for the first run.
    """

    def __init__(
        self,
        playlist: Playlist,
        first: OpenedEntry,
        *,
        make_analyzers: Callable[[], Sequence[Analyzer]],
        options: ReplayOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(lambda: first.tapes, make_analyzers=make_analyzers, options=options, clock=clock)
        self._playlist = playlist
        self._opened = first
        self._next: OpenedEntry | None = None
        self._next_options = options or ReplayOptions()
        self._ended_s: float | None = None
        self._has_explained_rest = False

    @property
    def index(self) -> int:
        """Place of the run that is shown among all entries; safe from any thread."""
        return self._opened.place

    def _play_all(self) -> None:
        upcoming: OpenedEntry | None = self._opened
        while upcoming is not None and not self._stopped.is_set():
            self._opened = upcoming
            self._next = None
            self._ended_s = None
            part = self._playlist.part(upcoming.place)
            self._play(upcoming.tapes, replace(self._next_options, part=part))
            upcoming = self._next

    @property
    def _is_left(self) -> bool:
        return self._stopped.is_set() or self._next is not None

    def _wait_s(self, player: ReplayPlayer) -> float:
        return min(player.wait_s, self._hold_s(player))

    def _advance(self, player: ReplayPlayer) -> bool:
        if self._hold_s(player) <= 0:
            self._switch_run(player, 1)
            return True
        return self._explain_rest(player) or player.advance()

    def _hold_s(self, player: ReplayPlayer) -> float:
        """Seconds until the next run begins by itself; infinity if it does not."""
        if not player.is_at_end or (state := player.state).is_paused or state.is_looping:
            self._ended_s = None
            return math.inf
        now_s = self._clock.monotonic_s()
        self._ended_s = now_s if self._ended_s is None else self._ended_s
        has_more = self._playlist.find(self.index + 1, 1) is not None
        return self._ended_s + HOLD_S - now_s if has_more else math.inf

    def _explain_rest(self, player: ReplayPlayer) -> bool:
        """At the end of the last run say once why those after it are not played."""
        if (
            self._has_explained_rest
            or not player.is_at_end
            or self._playlist.find(self.index + 1, 1) is not None
        ):
            return False
        self._has_explained_rest = True
        rest = self._playlist.describe_passed(range(self.index + 1, len(self._playlist)))
        if rest:
            player.say(rest)
        return bool(rest)

    def _obey(self, player: ReplayPlayer) -> bool:
        is_news = False
        while self._commands and not self._is_left:
            command = self._commands.popleft()
            if command.verb == "turn":
                self._switch_run(player, int(command.count))
            else:
                player.apply(command)
            is_news = True
        return is_news

    def _switch_run(self, player: ReplayPlayer, places: int) -> None:
        """Go to another run; the present one continues if none can be read."""
        at = self.index
        while True:
            further = self._playlist.step(at, places)
            aim = at if further is None else further
            if aim == self.index:
                break
            try:
                opened = self._playlist.open(aim, 1 if places > 0 else -1, self._follow_reading(player, aim))
            except ReadingLeft:
                if self._stopped.is_set():
                    return
                at = aim
                places = self._pop_turn()
                continue
            if opened is not None:
                self._leave(player, opened)
                return
            further = None
            break
        if further is None:
            # Say that there is nothing to go to, and why the entries in that direction are not played.
            onwards = range(self.index + 1, len(self._playlist))
            passed = onwards if places > 0 else range(self.index)
            where = "after" if places > 0 else "before"
            player.say(f"Nothing to play {where} this one. {self._playlist.describe_passed(passed)}".rstrip())

    def _leave(self, player: ReplayPlayer, opened: OpenedEntry) -> None:
        """Play another run next, at the pace of this one."""
        state = player.state
        between = range(min(self.index, opened.place) + 1, max(self.index, opened.place))
        passed = self._playlist.describe_passed(between)
        word = state.word
        if passed:
            word = ReplayWord(1 if word is None else word.number + 1, passed)
        self._next_options = ReplayOptions(
            state.speed, is_paused=state.is_paused, is_looping=state.is_looping, word=word
        )
        self._next = opened

    def _follow_reading(self, player: ReplayPlayer, aim: int) -> Callable[[float], None]:
        """Return an `on_read` that says when reading takes long, and leaves the run for a newer command."""
        begun_s = self._clock.monotonic_s()
        is_told = False

        def follow(share: float) -> None:
            nonlocal is_told
            with self._called:
                is_left = any(command.verb == "turn" for command in self._commands)
            if is_left or self._stopped.is_set():
                raise ReadingLeft
            if not is_told and self._clock.monotonic_s() - begun_s >= PATIENCE_S:
                is_told = True
                player.say(f"Reading {self._playlist.name(aim)}…")
                self._emit(player)

        return follow

    def _pop_turn(self) -> int:
        """Take the oldest command to go to another run out of the queue; return how many places."""
        with self._called:
            command = next(it for it in self._commands if it.verb == "turn")
            self._commands.remove(command)
        return int(command.count)
