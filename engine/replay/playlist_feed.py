"""What feeds the screens of a replay of several runs: at the end of each the next one begins."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..clock import Clock
from ..model import Analyzer
from ..viewer.snapshot import ReplayWord
from .feed import PATIENCE_S, ReplayFeed
from .player import ReplayOptions, ReplayPlayer
from .playlist import OpenedEntry, Playlist, ReadingLeft

HOLD_S = 3.0
"""How long the last picture of a run stays before the next one begins."""


class PlaylistFeed(ReplayFeed):
    """Plays the runs of a playlist; all of them fill the same history, one after the other.

    Args:
        playlist: What is played.
        first: Where it begins, open already.
        make_analyzers: Returns fresh analyzers.
        options: How it begins; its word is said of the first run.
        clock: Injected in tests.
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
        self._has_told_rest = False

    @property
    def index(self) -> int:
        """Place of the run that is shown among all entries; safe from any thread."""
        return self._opened.place

    def _play_all(self) -> None:
        upcoming: OpenedEntry | None = self._opened
        while upcoming is not None and not self._is_stopped:
            self._opened = upcoming
            self._next = None
            self._ended_s = None
            part = self._playlist.part(upcoming.place)
            self._play(upcoming.tapes, replace(self._next_options, part=part))
            upcoming = self._next

    @property
    def _is_left(self) -> bool:
        return self._is_stopped or self._next is not None

    def _wait_s(self, player: ReplayPlayer) -> float:
        return min(player.wait_s, self._hold_s(player))

    def _advance(self, player: ReplayPlayer) -> bool:
        if self._hold_s(player) <= 0:
            self._turn(player, 1)
            return True
        return self._tell_rest(player) or player.advance()

    def _hold_s(self, player: ReplayPlayer) -> float:
        """Return the seconds until the next run begins by itself; infinity where it does not."""
        if not player.is_at_end or (state := player.state).is_paused or state.is_looping:
            self._ended_s = None
            return math.inf
        now_s = self._clock.monotonic_s()
        self._ended_s = now_s if self._ended_s is None else self._ended_s
        has_more = self._playlist.find(self.index + 1, 1) is not None
        return self._ended_s + HOLD_S - now_s if has_more else math.inf

    def _tell_rest(self, player: ReplayPlayer) -> bool:
        """At the end of the last run say once what became of those after it."""
        if self._has_told_rest or not player.is_at_end or self._playlist.find(self.index + 1, 1) is not None:
            return False
        self._has_told_rest = True
        rest = self._playlist.describe_passed(range(self.index + 1, len(self._playlist)))
        if rest:
            player.say(rest)
        return bool(rest)

    def _obey(self, player: ReplayPlayer) -> bool:
        is_news = False
        while self._commands and not self._is_left:
            command = self._commands.popleft()
            if command.verb == "turn":
                self._turn(player, int(command.count))
            else:
                player.apply(command)
            is_news = True
        return is_news

    def _turn(self, player: ReplayPlayer, places: int) -> None:
        """Go to another run; the one that plays stays where there is none that can be read."""
        at = self.index
        while True:
            further = self._playlist.step(at, places)
            aim = at if further is None else further
            if aim == self.index:
                break
            try:
                opened = self._playlist.open(aim, 1 if places > 0 else -1, self._follow_reading(player, aim))
            except ReadingLeft:
                if self._is_stopped:
                    return
                at = aim
                places = self._take_turn()
                continue
            if opened is not None:
                self._leave(player, opened)
                return
            further = None
            break
        if further is None:
            self._refuse_turn(player, places)

    def _refuse_turn(self, player: ReplayPlayer, places: int) -> None:
        """Say that there is nothing to go to, and what became of those that there would be."""
        onwards = range(self.index + 1, len(self._playlist))
        passed = onwards if places > 0 else range(self.index)
        where = "after" if places > 0 else "before"
        player.say(f"Nothing to play {where} this one. {self._playlist.describe_passed(passed)}".rstrip())

    def _leave(self, player: ReplayPlayer, opened: OpenedEntry) -> None:
        """Have another run played next, at the pace of this one."""
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
        """Return what follows the reading of a run: says that it takes long, leaves it for another one."""
        begun_s = self._clock.monotonic_s()
        is_told = False

        def follow(share: float) -> None:
            nonlocal is_told
            with self._called:
                is_left = any(command.verb == "turn" for command in self._commands)
            if is_left or self._is_stopped:
                raise ReadingLeft
            if not is_told and self._clock.monotonic_s() - begun_s >= PATIENCE_S:
                is_told = True
                player.say(f"Reading {self._playlist.name(aim)}…")
                self._tell(player)

        return follow

    def _take_turn(self) -> int:
        """Take the oldest command to go to another run off the others; return how many places."""
        with self._called:
            command = next(it for it in self._commands if it.verb == "turn")
            self._commands.remove(command)
        return int(command.count)
