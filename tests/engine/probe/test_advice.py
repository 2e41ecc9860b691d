"""Advice to a process on a stand-in for a GPU: done at the end of a step, and answered."""

from collections.abc import Callable, Iterator

import pytest

from tests.engine.probe.hub import ListeningHub
from tests.engine.probe.stand_in import MIB
from tests.engine.probe.watched import Watched
from tests.waiting import wait_until
from vramscope.engine.probe.base import current
from vramscope.engine.ranks.messages import AdviceTaken, DemandRefused, Hello

WHY = "node03 runs out of memory in about 4 min"


@pytest.fixture(autouse=True)
def no_callback() -> Iterator[None]:
    yield
    current.on_advice = None


def advise(watched: Watched, hub: ListeningHub, action: str, request: int = 7) -> None:
    """Advise a process that trains and holds 8 MiB that it does not use, and let it hear of that."""
    watched.cuda.allocate(8 * MIB)
    watched.step()
    watched.tick()
    hub.wait_for(Hello)
    watched.cuda.allocate(-8 * MIB)
    hub.ask_for("advise", request=request, action=action, reason=WHY, seconds=60)
    watched.tick(20)


def test_the_cache_is_emptied_at_the_end_of_the_next_step_and_not_before(
    watched: Watched, hub: ListeningHub
) -> None:
    advise(watched, hub, "empty_cache")
    assert (watched.cuda.emptied, hub.of(AdviceTaken)) == (0, [])
    watched.cuda.is_capturing = True  # the step is recorded as a CUDA graph
    watched.step()
    watched.cuda.is_capturing = False
    assert watched.cuda.emptied == 0
    watched.step()
    watched.step()
    watched.tick()
    assert watched.cuda.emptied == 1
    (taken,) = hub.wait_for(AdviceTaken)
    sentence = "emptied its cache; 8.0 MiB freed"
    assert taken == AdviceTaken(1, 7, is_obeyed=True, outcome=sentence, freed_bytes=8 * MIB)
    hub.ask_for("advise", request=8, action="empty_cache")
    watched.tick(8)
    watched.step()
    assert watched.cuda.emptied == 1  # who asks often does not slow the training
    watched.tick(2)
    watched.step()
    assert watched.cuda.emptied == 2


@pytest.mark.parametrize(
    ("answer", "is_obeyed", "outcome"),
    [
        (lambda: True, True, "did it with its callback"),
        (lambda: "skips batches above 4,096", True, "did it with its callback: skips batches above 4,096"),
        (lambda: False, False, "declined: its callback returned False"),
        (lambda: None, False, "has a callback that did nothing about skip_long_batch"),
        (lambda: 1 // 0, False, "failed: ZeroDivisionError: integer division or modulo by zero"),
        (list, False, "has a callback that returned list; expected True, False, None or a sentence"),
    ],
)
def test_a_callback_of_the_program_answers_for_it(
    watched: Watched, hub: ListeningHub, answer: Callable[[], object], is_obeyed: bool, outcome: str
) -> None:
    told: list[tuple[str, str]] = []

    def obey(action: str, reason: str) -> object:
        told.append((action, reason))
        return answer()

    current.on_advice = obey
    advise(watched, hub, "skip_long_batch")
    assert told == []
    watched.step()
    watched.tick()
    assert told == [("skip_long_batch", WHY)]
    (taken,) = hub.wait_for(AdviceTaken)
    assert (taken.is_obeyed, taken.outcome, taken.freed_bytes) == (is_obeyed, outcome, 0)
    assert current.failures == []


@pytest.mark.parametrize(("answer", "emptied"), [(None, 1), (False, 0), (True, 0)])
def test_a_callback_may_take_over_the_emptying_of_the_cache(
    watched: Watched, hub: ListeningHub, answer: bool | None, emptied: int
) -> None:
    current.on_advice = lambda _action, _reason: answer
    advise(watched, hub, "empty_cache")
    watched.step()
    watched.tick()
    (taken,) = hub.wait_for(AdviceTaken)
    assert (watched.cuda.emptied, taken.is_obeyed) == (emptied, answer is not False)


def test_without_a_callback_or_a_step_nothing_is_done_and_that_is_said(
    watched: Watched, hub: ListeningHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    advise(watched, hub, "checkpoint")
    watched.step()
    watched.tick()
    (taken,) = hub.wait_for(AdviceTaken)
    assert (taken.is_obeyed, taken.outcome) == (False, "has no callback for checkpoint")
    hub.ask_for("advise", request=8, action="empty_cache", seconds=5)
    watched.tick(70)
    (refused,) = hub.wait_for(DemandRefused)
    assert refused == DemandRefused(1, 8, "has not ended a step within 5 s")
    monkeypatch.setenv("VRAMSCOPE_ADVICE", "off")
    hub.ask_for("advise", request=9, action="empty_cache", seconds=5)
    wait_until(lambda: watched.tick() and len(hub.of(DemandRefused)) == 2, what="a refusal")
    reason = "accepts no advice: it was started with VRAMSCOPE_ADVICE=off"
    assert hub.of(DemandRefused)[1] == DemandRefused(1, 9, reason)
    watched.step()
    assert watched.cuda.emptied == 0
