"""Timers that fire once fire in any case.

Textual 8.2.8 skips a tick that is already late when its timer starts. One that fires once is then never
fired: where a process was paused for 8 ms just there, on a loaded machine, Textual waited for ever to resize
the screen, and no later size of the terminal was drawn.
"""

from textual.timer import Timer


def fire_late_timers() -> None:
    """Have timers without repetition fire late rather than never."""
    start = Timer._start

    def start_for_certain(self: Timer) -> None:
        if self._repeat == 0:
            self._skip = False
        start(self)

    Timer._start = start_for_certain  # type: ignore[method-assign]
