"""One session on a stand-in for a GPU, its clock wound by the test."""

from pathlib import Path
from typing import Any

from tests.engine.probe.clocks import WoundClock
from tests.engine.probe.stand_in import StandInCuda, StandInOptimizer, make_torch
from vramscope.engine.probe import session as hooks
from vramscope.engine.probe.session import Session


class Watched:
    """A process on a stand-in, and the session in it."""

    def __init__(self, folder: Path) -> None:
        self.clock = WoundClock()
        self.cuda: Any = StandInCuda()
        self.torch = make_torch(self.cuda)
        self.optimizer = StandInOptimizer()
        self.session = Session(self.torch, str(folder), "job-1", is_explicit=False, clock=self.clock)

    def tick(self, times: int = 1) -> float | None:
        """Let the session's thread have its turns."""
        pause_s: float | None = None
        for _ in range(times):
            pause_s = self.session._tick()
            self.clock.advance(pause_s or 0.0)
        return pause_s

    def step(self) -> None:
        """Let an optimizer step."""
        hooks._notify_session(self.optimizer)
