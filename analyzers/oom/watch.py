"""One subject under watch: its growth, what its steps take, and whether the device refused it memory."""

from ...engine.model import AllocatorReading
from ..floors.beat import Beat, read_beat
from ..floors.episode import GrowthTrack
from ..subjects import Subject
from .amplitudes import Amplitudes
from .forecast import Forecast, Situation, make_forecast

LEAST_ROUNDS = 8
"""Rounds that must have been seen before anything is said of the next."""
RETRY_S = 60.0
"""For how long a refusal of the device counts."""
EVERY_BEATS = {"step": 4, "sample": 8, "device": 8, "host": 8}
"""Beats between two forecasts of the same subject, unless its end is near."""
NEAR_S = 300.0


class Watch:
    """What is known of one subject, and the newest forecast for it."""

    def __init__(self) -> None:
        self.growth = GrowthTrack()
        self.amplitudes = Amplitudes()
        self.forecast: Forecast | None = None
        self.is_fresh = False
        """Whether the newest sample brought a forecast."""
        self.has_allocator = False
        self._retries: int | None = None
        self._retried_s: float | None = None
        self._beats_ago = 0

    def observe(self, subject: Subject) -> None:
        """Take one sample."""
        self.is_fresh = False
        beat = read_beat(subject)
        if beat is None:
            return
        last = self.growth.floors.last
        if last is not None and beat.time_s <= last.time_s:
            return
        self._note_retries(subject.allocator, beat.time_s)
        self.has_allocator = beat.kind != "device"
        if not self.has_allocator:
            return
        self.growth.observe(beat, subject.limit_bytes)
        if self.growth.floors.beats <= 1:
            self.amplitudes = Amplitudes()
        self.amplitudes.add(beat)
        self._beats_ago += 1
        if self._is_due(beat):
            self._renew(beat)

    @property
    def peak_bytes(self) -> int | None:
        """Most live bytes of recent steps."""
        floors = self.growth.floors
        return None if floors.floor_bytes is None else floors.floor_bytes + floors.amplitude_bytes

    def _note_retries(self, allocator: AllocatorReading, time_s: float) -> None:
        retries = allocator.retries
        if retries is None:
            return
        if self._retries is not None and retries > self._retries:
            self._retried_s = time_s
        self._retries = retries

    def _is_due(self, beat: Beat) -> bool:
        if self.growth.ended_because is not None:
            return True
        middle_s = None if self.forecast is None else self.forecast.middle_s
        is_near = middle_s is not None and middle_s < NEAR_S
        return self._beats_ago >= (1 if is_near else EVERY_BEATS[beat.kind])

    def _renew(self, beat: Beat) -> None:
        floors, round_s = self.growth.floors, self.amplitudes.round_s
        floor, limit = floors.floor_bytes, floors.limit_bytes
        if floor is None or limit is None or round_s is None or len(self.amplitudes) < LEAST_ROUNDS:
            return
        self._beats_ago = 0
        self.is_fresh = True
        line, steps_per_s = self.growth.line, floors.steps_per_s
        self.forecast = make_forecast(
            Situation(
                time_s=beat.time_s,
                limit_bytes=limit,
                floor_bytes=float(floor) if line is None else line.level_at(beat.time_s),
                amplitudes=self._reach(floor),
                round_s=round_s,
                steps_per_round=None if steps_per_s is None else steps_per_s * round_s,
                line=line,
                share=self._share(floor),
                has_retried=self._retried_s is not None and beat.time_s - self._retried_s <= RETRY_S,
            )
        )

    def _reach(self, floor: int) -> list[float]:
        """Return how far recent rounds reached above their floor, falling."""
        line, episode = self.growth.line, self.growth.episode
        if line is None or episode is None:
            return self.amplitudes.above_floor(floor)
        return self.amplitudes.above_line(line, episode.onset_s)

    def _share(self, floor: int) -> float:
        episode = self.growth.episode
        if episode is None:
            return 0.0
        return (floor - episode.onset_bytes) / max(1.0, self.growth.floors.headroom_bytes)
