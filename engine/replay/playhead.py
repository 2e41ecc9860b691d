"""When the next sample of a replay is due: speed, pauses and gaps; knows no file."""

from ..sampling.trace_player import IDLE_S

SPEEDS = tuple(2.0**power for power in range(-2, 7))
"""What `+` and `-` go through: 0.25 to 64 times as fast as recorded."""
LONGEST_WAIT_S = 2.0
"""A stretch without samples takes no longer than this, whatever the speed."""
MOST_LATE_S = 1.0
"""A replay that cannot keep up by more than this goes on from where it is."""


class Playhead:
    """Keeps the pace.

    Args:
        speed: Seconds of the recording per second of the clock.
    """

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self.is_paused = False
        self._shown_s: float | None = None

    def note_shown(self, now_s: float, *, is_jump: bool = False) -> None:
        """Take note that a sample is shown; one that was due a moment ago keeps the next one punctual.

        Args:
            now_s: Monotonic seconds.
            is_jump: Whether it was jumped to, so that it was never due.
        """
        due_s = self._due_s
        is_punctual = due_s is not None and not is_jump and now_s - due_s < MOST_LATE_S
        self._shown_s = due_s if is_punctual else now_s
        self._due_s = None

    def wait_s(self, now_s: float, gap_s: float) -> float:
        """Return the seconds until the sample is due that comes `gap_s` after the one that is shown."""
        if self.is_paused or self._shown_s is None:
            return IDLE_S
        self._due_s = self._shown_s + min(gap_s / self.speed, LONGEST_WAIT_S)
        return max(0.0, self._due_s - now_s)

    def toggle_pause(self, now_s: float) -> None:
        """Stop, or go on from here."""
        self.is_paused = not self.is_paused
        self.note_shown(now_s, is_jump=True)

    def shift_speed(self, places: int, now_s: float) -> None:
        """Take the speed that many places further in `SPEEDS`; from any other, the next one on that side."""
        beyond = [it for it in SPEEDS if (it > self.speed if places > 0 else it < self.speed)]
        if beyond:
            ordered = beyond if places > 0 else beyond[::-1]
            self.speed = ordered[min(abs(places), len(ordered)) - 1]
        self.note_shown(now_s, is_jump=True)

    _due_s: float | None = None
