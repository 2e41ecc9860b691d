"""At an out-of-memory error the forecast of it ends at once, however slow the steps and whatever is freed."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pytest

from tests.analyzers.leak.courses import steps
from vramscope.analyzers.oom import OomAnalyzer
from vramscope.analyzers.out_of_memory import OutOfMemoryAnalyzer
from vramscope.analyzers.verdict import summarize
from vramscope.engine.model import Assessment, Finding, Sample
from vramscope.engine.units import GIB, MIB

STEP_S = 2.2
LEAK = [20 * GIB + 60 * MIB * step for step in range(850)]
TOP = LEAK[-1]


def play(before: Sequence[float], after: Sequence[float], *, by_count: bool = True) -> Iterator[Sample]:
    """Yield slow steps, an error in a step that does not end within its tick, and the steps that follow."""
    for at, found in enumerate(steps([*before, *after])):
        sample = msgspec.structs.replace(found, time_s=STEP_S * at, interval_s=1.0)
        if at < len(before):
            yield _with_errors(sample, 0, None)
            continue
        error_s = STEP_S * len(before) - 1.0
        if at == len(before):
            rank = msgspec.structs.replace(
                sample.ranks[0], steps_within=0, floor_min_bytes=None, peak_max_bytes=None
            )
            failed = msgspec.structs.replace(sample, time_s=error_s, ranks=(rank,))
            yield _with_errors(failed, int(by_count), None if by_count else error_s)
        yield _with_errors(sample, int(by_count), None if by_count else error_s)


def _with_errors(sample: Sample, count: int, raised_s: float | None) -> Sample:
    (rank,) = sample.ranks
    assert rank.allocator is not None
    allocator = msgspec.structs.replace(rank.allocator, ooms=count)
    return msgspec.structs.replace(
        sample, ranks=(msgspec.structs.replace(rank, allocator=allocator, oom_s=raised_s),)
    )


def observe(samples: Iterable[Sample]) -> tuple[list[Finding], list[Assessment]]:
    analyzer = OomAnalyzer()
    found: list[Finding] = []
    known: list[Assessment] = []
    for sample in samples:
        found += analyzer.observe(sample)
        known += analyzer.assess()
    return found, known


ERROR_S = STEP_S * len(LEAK) - 1.0


@pytest.mark.parametrize("by_count", [True, False])
@pytest.mark.parametrize("held", [20 * GIB, TOP - GIB, TOP])
def test_the_forecast_ends_with_the_error_whatever_the_process_lets_go(held: float, by_count: bool) -> None:
    found, known = observe(play(LEAK, [float(held)] * 60, by_count=by_count))
    before = [it for it in found if it.updated_s < ERROR_S]
    assert before
    assert before[-1].severity == "critical"
    (closed,) = (it for it in found if it.updated_s >= ERROR_S)
    assert (closed.id, closed.closed_s) == (before[-1].id, ERROR_S)
    since = [it for it in known if it.time_s >= ERROR_S]
    assert (since[0].time_s, since[0].level, since[0].oom_in_s) == (ERROR_S, "unknown", None)
    assert len(since) > 1, "what follows is assessed again"
    assert all(it.oom_in_s is None for it in since)


def test_growth_after_the_error_is_foreseen_with_a_finding_of_its_own() -> None:
    found, _ = observe(play(LEAK, LEAK[:300]))
    ids = list(dict.fromkeys(it.id for it in found))
    assert len(ids) == 2
    assert found[-1].is_open
    assert next(it for it in found if it.id == ids[1]).opened_s > ERROR_S + 30


def test_the_forecast_ends_with_the_growth_too_where_all_was_freed_without_an_error() -> None:
    slow = steps([*LEAK, *[20.0 * GIB] * 60], lambda step: 10.0 * GIB if step < len(LEAK) else GIB)
    samples = [msgspec.structs.replace(it, time_s=STEP_S * at) for at, it in enumerate(slow)]
    found, known = observe(samples)
    assert found[-1].closed_s is not None
    assert found[-1].closed_s <= STEP_S * (len(LEAK) + 4)
    assert all(it.oom_in_s is None for it in known if it.time_s > found[-1].closed_s)


def test_the_verdict_goes_from_the_countdown_to_the_error() -> None:
    forecasts, errors = OomAnalyzer(), OutOfMemoryAnalyzer()
    known: dict[str, Finding] = {}
    words: list[tuple[float, str]] = []
    assessments: tuple[Assessment, ...] = ()
    for sample in play(LEAK, [20.0 * GIB] * 20):
        known |= {it.id: it for it in [*forecasts.observe(sample), *errors.observe(sample)]}
        assessments = tuple(forecasts.assess()) or assessments
        if sample.time_s > ERROR_S - 10:
            text = summarize(sample, tuple(known.values()), assessments=assessments).text(200)
            words.append((sample.time_s, text))
    assert all("out of memory in" in text for time_s, text in words if time_s < ERROR_S)
    since = [text for time_s, text in words if time_s >= ERROR_S]
    assert since
    assert all("ran out of memory" in text and "out of memory in" not in text for text in since)
