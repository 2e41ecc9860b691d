"""What feeds the screens of a replay: a thread that plays, and is told what to do."""

import threading
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from ..alerts.state import FindingDecision
from ..clock import Clock, SystemClock
from ..errors import VramscopeError
from ..history import History
from ..model import Analyzer
from ..viewer.snapshot import Snapshot
from .player import ReplayCommand, ReplayOptions, ReplayPlayer
from .tapes import Tape

MOST_COMMANDS = 256
PATIENCE_S = 0.2
"""A moment that takes longer to work out is shown without its verdicts meanwhile."""


class ReplayFeed:
    """Plays tapes on a thread of its own; reading never holds up a screen.

    Args:
        open_tapes: Opens what is played, on that thread: one tape a node.
        make_analyzers: Returns fresh analyzers.
        options: How it begins.
        clock: Injected in tests.
    """

    def __init__(
        self,
        open_tapes: Callable[[], Sequence[Tape]],
        *,
        make_analyzers: Callable[[], Sequence[Analyzer]],
        options: ReplayOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.history = History()
        """What was played so far of the node that is told of first; safe to read from any thread."""
        self._histories: dict[str, History] = {}
        self._open_tapes = open_tapes
        self._make_analyzers = make_analyzers
        self._options = options
        self._clock = clock or SystemClock()
        self._called = threading.Condition()
        self._commands: deque[ReplayCommand] = deque(maxlen=MOST_COMMANDS)
        self._is_stopped = False
        self._told: dict[str, object] = {}
        self._on_snapshot: Callable[[Snapshot], None] = lambda _: None
        self._thread = threading.Thread(target=self._run, name="replay-feed", daemon=True)

    def start(self, on_snapshot: Callable[[Snapshot], None]) -> None:
        """Call `on_snapshot` from this feed's own thread whenever there is something new."""
        self._on_snapshot = on_snapshot
        self._thread.start()

    def stop(self) -> None:
        """End the thread; returns within half a second."""
        with self._called:
            self._is_stopped = True
            self._called.notify()
        if self._thread.is_alive():
            self._thread.join(timeout=0.5)

    def command(self, command: ReplayCommand) -> None:
        """Ask something of the replay, from any thread; returns at once."""
        with self._called:
            self._commands.append(command)
            self._called.notify()

    def history_of(self, node: str) -> History:
        """Return what was played so far of a node; safe from any thread."""
        with self._called:
            return self._histories.setdefault(node, History() if self._histories else self.history)

    def look_at(self, node: str) -> None:
        """Say which node is looked at: it is worked out first, and stepped through by its own samples."""
        self.command(ReplayCommand("node", text=node))

    def ask_segments(self, pid: int) -> None:
        """Ask for a segment map, of which a recording has none; a later snapshot says so."""
        self.command(ReplayCommand("segments", pid))

    def ask_modules(self, pid: int) -> None:
        """Ask nobody: no process runs that could be followed."""

    def decide(self, decision: FindingDecision) -> None:
        """Keep nothing, and say so: there is no agent that could keep what is decided."""
        self.command(ReplayCommand("decide"))

    @property
    def _is_left(self) -> bool:
        """Whether what plays is to be played no further."""
        return self._is_stopped

    def _wait_s(self, player: ReplayPlayer) -> float:
        """Return the seconds until something is to be done; 0 when something is."""
        return player.wait_s

    def _advance(self, player: ReplayPlayer) -> bool:
        """Play what is due; return whether there was anything."""
        return player.advance()

    @property
    def _is_called(self) -> bool:
        return self._is_stopped or bool(self._commands)

    def _run(self) -> None:
        try:
            self._play_all()
        except VramscopeError as error:
            self._on_snapshot(Snapshot("lost", reason=str(error)))

    def _play_all(self) -> None:
        """Play everything, until the feed is stopped."""
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
                self._tell(player)
            is_news = self._work_or_wait(player)
            is_news = self._obey(player) or is_news
            is_news = self._advance(player) or is_news

    def _tell(self, player: ReplayPlayer) -> None:
        """Hand on what changed; where the replay is, with the node that is looked at alone."""
        for at, snapshot in enumerate(player.snapshots):
            is_catching_up = snapshot.replay is not None and snapshot.replay.is_catching_up
            beside = msgspec.structs.replace(snapshot, replay=None), is_catching_up
            news = snapshot if at == 0 else beside
            if self._told.get(snapshot.node) != news:
                self._told[snapshot.node] = news
                self._on_snapshot(snapshot)

    def _work_or_wait(self, player: ReplayPlayer) -> bool:
        """Work out nodes that are not looked at while nothing is due; return whether one is done."""
        if player.has_more_to_work_out and not player.is_catching_up:
            return player.catch_up_others(lambda: self._is_called or player.wait_s <= 0)
        with self._called:
            wait_s = self._wait_s(player)
            if not self._is_called and wait_s > 0:
                self._called.wait(min(wait_s, threading.TIMEOUT_MAX))
        return False

    def _catch_up(self, player: ReplayPlayer) -> bool:
        """Work out the moment that was jumped to; show it alone where that takes long."""
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
        """Do all that was asked; return whether there was anything."""
        is_news = False
        while self._commands:
            player.apply(self._commands.popleft())
            is_news = True
        return is_news
