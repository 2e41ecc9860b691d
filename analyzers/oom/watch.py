"""One subject under watch: its growth, what its steps take, and whether the device refused it memory."""

from ..floors.beat import Beat, read_beat
from ..floors.capacity import Usable, UsableLimit
from ..floors.episode import GrowthTrack
from ..subjects import Subject
from .amplitudes import Amplitudes
from .forecast import Forecast, Situation, make_forecast
from .hazard import Amplitude
from .pressed import Pressed

LEAST_ROUNDS = 8
"""Rounds that must have been seen before anything is said of the next."""
RANK = 2
"""Which of the largest amplitudes reserved bytes answer to; the very largest may have been odd."""
RETRY_S = 60.0
"""For how long a refusal of the device counts."""
EVERY_BEATS = {"step": 8, "sample": 8, "device": 8, "host": 8}
"""Beats between two forecasts of the same subject, unless its end is near."""
NEAR_S, NEAR_SHARE = 300.0, 0.04
"""Nearer than this, a forecast is renewed when this share of the time left has passed."""


class Watch:
    """What is known of one subject, and the newest forecast for it."""

    def __init__(self) -> None:
        self.growth = GrowthTrack(has_peaks=True)
        self.amplitudes = Amplitudes()
        self.usable = UsableLimit()
        self.forecast: Forecast | None = None
        self.reach: Usable | None = None
        """Most that live bytes can really take."""
        self.is_fresh = False
        """Whether the newest sample brought a forecast."""
        self.has_allocator = False
        self.pressed = Pressed()
        self._beats_ago = 0
        self._renewed_s = 0.0
        self._onset_s: float | None = None
        """Onset of the growth that the newest forecast rests on; None where it rests on none."""

    def observe(self, subject: Subject) -> None:
        """Take one sample."""
        self.is_fresh = False
        beat = read_beat(subject)
        if beat is None:
            return
        if self.growth.floors.is_late(beat):
            return
        self.pressed.observe(beat.time_s, subject.allocator, self.growth.floors.limit_bytes)
        self.has_allocator = beat.kind != "device"
        if not self.has_allocator:
            return
        self.growth.observe(beat, subject.limit_bytes, is_pressed=self.pressed.is_often(beat.time_s))
        if self.growth.floors.beats <= 1:
            self.amplitudes, self.usable = Amplitudes(), UsableLimit()
        self.amplitudes.add(beat)
        if beat.reserved_bytes:
            self.usable.observe(beat.time_s, beat.reserved_bytes, beat.split_bytes)
        self._beats_ago += 1
        if self._is_due(beat):
            self._beats_ago, self._renewed_s = 0, beat.time_s
            self._renew(beat)
        elif self._has_begun():
            self._renew(beat)

    @property
    def peak_bytes(self) -> int | None:
        """Most live bytes of recent steps."""
        floors = self.growth.floors
        return None if floors.floor_bytes is None else floors.floor_bytes + floors.amplitude_bytes

    @property
    def limit_bytes(self) -> int | None:
        """Most that live bytes can really take."""
        return None if self.reach is None else self.reach.limit_bytes

    def _find_usable(self, time_s: float, above: list[Amplitude]) -> Usable | None:
        """Return most that live bytes can really take, and how sure that is.

        Args:
            time_s: The present.
            above: How far recent rounds reached above their floor, falling.

        What an allocator cannot fill is pinned by the live blocks of floors that grow; what stands between
        floors and peaks is free at the end of a step, so that all of it can be given back.
        """
        limit, episode, line = self.growth.floors.limit_bytes, self.growth.episode, self.growth.line
        if limit is None:
            return None
        if episode is None or line is None:
            return Usable(limit, 0.0)
        if episode.is_peak:
            return self.usable.of_peaks(limit, episode.onset_s, line.level_at)
        usual = above[min(RANK, len(above) - 1)].bytes if above else 0.0
        uniformity = self.amplitudes.uniformity(line, usual)
        return self.usable.of(
            limit, episode.onset_s, time_s, lambda at_s: line.level_at(at_s) + usual, uniformity
        )

    def _is_due(self, beat: Beat) -> bool:
        if self.growth.ended_because is not None:
            return True
        middle_s = None if self.forecast is None else self.forecast.middle_s
        if middle_s is None or middle_s >= NEAR_S:
            return self._beats_ago >= EVERY_BEATS[beat.kind]
        return beat.time_s - self._renewed_s >= NEAR_SHARE * middle_s

    def _has_begun(self) -> bool:
        """Return whether floors or peaks grow of which the newest forecast knows nothing."""
        episode = self.growth.episode
        is_known = episode is None or self.growth.line is None or episode.onset_s == self._onset_s
        return not is_known

    def _renew(self, beat: Beat) -> None:
        floors, round_s = self.growth.floors, self.amplitudes.round_s
        floor = floors.floor_bytes
        if floor is None or round_s is None or len(self.amplitudes) < LEAST_ROUNDS:
            return
        above = self._find_amplitudes()
        self.reach = reach = self._find_usable(beat.time_s, above)
        if reach is None:
            return
        self.is_fresh, episode = True, self.growth.episode
        self._onset_s = None if episode is None else episode.onset_s
        self.growth.lost_bytes = self._find_lost(reach)
        line, steps_per_s = self.growth.line, floors.steps_per_s
        self.forecast = make_forecast(
            Situation(
                time_s=beat.time_s,
                limit_bytes=reach.limit_bytes,
                limit_doubt_bytes=reach.doubt_bytes,
                floor_bytes=float(floor) if line is None else line.level_at(beat.time_s),
                amplitudes=above,
                recent=self.amplitudes.above_floor(floor),
                round_s=round_s,
                steps_per_round=None if steps_per_s is None else steps_per_s * round_s,
                line=line,
                share=self._share(floor),
                is_pressed=self._is_pressed(beat.time_s),
                is_believed=self.growth.episode is None or self.growth.episode.is_believed,
                has_retried=self.pressed.is_met(beat.time_s, RETRY_S),
            )
        )

    def _find_lost(self, reach: Usable) -> int:
        """Return what growing peaks cannot use of the limit."""
        episode, limit = self.growth.episode, self.growth.floors.limit_bytes
        if limit is None or episode is None or not episode.is_peak:
            return 0
        return limit - reach.limit_bytes

    def _is_pressed(self, time_s: float) -> bool:
        episode = self.growth.episode
        return episode is not None and episode.is_peak and self.pressed.is_often(time_s)

    def _find_amplitudes(self) -> list[Amplitude]:
        """Return how far rounds reached above floors that grow, falling; nothing where they do not."""
        line, episode = self.growth.line, self.growth.episode
        if line is None or episode is None:
            return []
        return self.amplitudes.above_line(line, episode.onset_s)

    def _share(self, floor: int) -> float:
        episode, line, limit = self.growth.episode, self.growth.line, self.limit_bytes
        if episode is None or line is None or limit is None:
            return 0.0
        grown = line.level_at(line.at_s) - line.level_at(episode.onset_s)
        grown *= 1 if line.bend else 2
        return grown / max(1.0, limit - floor - self.growth.floors.amplitude_bytes)
