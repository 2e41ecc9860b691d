"""Hysteresis in the samples' own time: a state changes only when every sample of a dwell asks for it."""

DWELL_S = 10.0
"""Seconds that samples must agree before a crossing begins or ends."""
DWELL_SAMPLES = 3
"""Samples that must agree, however far apart they are."""


class Crossing:
    """Whether a figure stands beyond a threshold; one odd sample neither begins nor ends it."""

    def __init__(self, *, is_active: bool = False) -> None:
        self.is_active = is_active
        self.asked_since_s = 0.0
        self._asked_count = 0
        self._asked_last_s = 0.0

    @property
    def is_asked(self) -> bool:
        """Whether the newest sample asked for the other state."""
        return self._asked_count > 0

    @property
    def is_due(self) -> bool:
        """Whether the samples of a whole dwell asked for the other state."""
        return self._asked_count >= DWELL_SAMPLES and self._asked_last_s - self.asked_since_s >= DWELL_S

    def observe(self, time_s: float, *, is_beyond: bool, is_back: bool) -> None:
        """Count one sample.

        Args:
            time_s: Time of the sample; later than that of the one before.
            is_beyond: The figure is past the threshold that begins the crossing.
            is_back: The figure is past the threshold that ends it; between the two neither holds.
        """
        if not (is_back if self.is_active else is_beyond):
            self.restart()
            return
        if not self._asked_count:
            self.asked_since_s = time_s
        self._asked_count += 1
        self._asked_last_s = time_s

    def flip(self) -> None:
        """Take the other state."""
        self.is_active = not self.is_active
        self.restart()

    def restart(self) -> None:
        """Forget the samples that asked so far: nobody knows what happened since."""
        self._asked_count = 0
