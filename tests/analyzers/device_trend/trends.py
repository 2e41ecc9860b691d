"""What the analyzers say of a device of which only used memory is known."""

from collections.abc import Iterable

from vramscope.analyzers.oom import OomAnalyzer
from vramscope.engine.model import DeviceTrend, Sample

from ..samples import series


def watch(samples: Iterable[Sample]) -> list[tuple[float, DeviceTrend]]:
    """Return each trend that was published, with the time of its sample."""
    analyzer = OomAnalyzer()
    found = []
    for sample in samples:
        assert not analyzer.observe(sample)
        for assessment in analyzer.assess():
            assert assessment.level == "unknown"
            if assessment.device_trend is not None:
                found.append((sample.time_s, assessment.device_trend))
    return found


def read_words(figures: Iterable[float | None], step_s: float = 1.0) -> list[str]:
    """Return the words about a card of 80 GiB, without repetitions, for so many GiB used each tick."""
    words: list[str] = []
    for _, trend in watch(series(figures, step_s=step_s)):
        if words[-1:] != [trend.word]:
            words.append(trend.word)
    return words


def climb(low_gib: float, high_gib: float, ticks: int) -> list[float]:
    """Return an even rise over so many ticks."""
    return [low_gib + (high_gib - low_gib) * tick / ticks for tick in range(ticks)]
