"""A small recording with something to find, made by the real analyzers and the real writer."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.clocks import HandClock
from tests.tui.canned import NODE, NOON_S, make_device, make_sample
from vramscope.engine.agent.analyzer_host import AnalyzerHost
from vramscope.engine.history import History
from vramscope.engine.model import Analyzer, Sample
from vramscope.engine.plugins import make_analyzers
from vramscope.engine.recording import RecordingIdentity, RecordingWriter
from vramscope.engine.replay.player import ReplayCommand, ReplayOptions, ReplayPlayer, Verb
from vramscope.engine.replay.tapes import RecordingTape, Tape

START_S = NOON_S + 1
TICKS = 300


def grow(seq: int) -> Sample:
    """Return the sample of one second: GPU 0 fills up and is emptied twice, GPU 1 idles."""
    used_gib = 40.0 + 0.3 * (seq % 130)
    return make_sample((make_device(0, min(79.3, used_gib)), make_device(1, 28.0)), seq)


def fresh_analyzers() -> Sequence[Analyzer]:
    """Return the analyzers of this installation."""
    return make_analyzers().made


def record(path: Path, samples: Sequence[Sample] | None = None) -> Path:
    """Record samples with what the analyzers say of them, as `vramscope record` does."""
    host = AnalyzerHost(fresh_analyzers())
    identity = RecordingIdentity(NODE, START_S, "test", interval_s=1.0)
    with RecordingWriter(path, identity) as writer:
        for sample in samples or [grow(seq) for seq in range(1, TICKS + 1)]:
            found = host.observe(sample)
            writer.append(sample, found, host.assess() or None)
    return path


class Played:
    """A replay without a thread, with everything worked out after each command."""

    def __init__(self, *played: Path | Tape, options: ReplayOptions | None = None) -> None:
        self.clock = HandClock()
        self.histories: dict[str, History] = {}
        self.player = ReplayPlayer(
            [RecordingTape(it) if isinstance(it, Path) else it for it in played],
            make_analyzers=fresh_analyzers,
            histories=lambda node: self.histories.setdefault(node, History()),
            clock=self.clock,
            options=options,
        )
        self._settle()

    @property
    def history(self) -> History:
        """What screens would draw of the node that is looked at."""
        return self.histories[self.player.snapshot.node]

    @property
    def seconds(self) -> float:
        """Seconds from the start of the recording to where the replay is."""
        return self.player.state.position_s - START_S

    @property
    def sample(self) -> Sample:
        """The sample that is shown, without the number that playing gives it."""
        sample = self.player.snapshot.sample
        assert sample is not None
        return msgspec.structs.replace(sample, seq=0)

    def ask(self, verb: Verb, count: float = 0, text: str = "") -> None:
        """Do something and work out what follows."""
        self.player.apply(ReplayCommand(verb, count, text))
        self._settle()

    def let_pass(self, seconds: float) -> None:
        """Let time pass, in the steps in which a thread would wake up, and play what is due."""
        until_s = self.clock.now_s + seconds
        while True:
            wait_s = min(self.player.wait_s, until_s - self.clock.now_s)
            self.clock.now_s += max(0.0, wait_s)
            self.player.advance()
            self._settle()
            if self.clock.now_s >= until_s and self.player.wait_s > 0:
                return

    def _settle(self) -> None:
        assert self.player.catch_up(lambda: False)
        while self.player.has_more_to_work_out:
            self.player.catch_up_others(lambda: False)
