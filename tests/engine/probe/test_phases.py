"""The part of a step that is told is the training's own."""

import threading
from collections.abc import Callable

import pytest

from tests.engine.probe.hub import ListeningHub
from tests.engine.probe.stand_in import MIB
from tests.engine.probe.watched import Watched
from tests.waiting import wait_until
from vramscope.engine.probe import phases
from vramscope.engine.ranks.messages import Readings


def test_the_innermost_phase_is_told(watched: Watched, hub: ListeningHub) -> None:
    watched.cuda.allocate(MIB)

    @phases.phase("inner")
    def work() -> None:
        watched.tick()

    with phases.phase("outer"):
        work()
        watched.tick(8)
    watched.tick(8)
    wait_until(lambda: len(hub.of(Readings)) >= 3)
    assert [message.phase for message in hub.of(Readings)[:3]] == ["inner", "outer", None]


def test_a_phase_of_a_thread_that_loads_data_is_not_the_trainings(
    watched: Watched, hub: ListeningHub
) -> None:
    watched.cuda.allocate(MIB)
    loading = phases.phase("loading")
    has_begun, may_end = threading.Event(), threading.Event()

    def load() -> None:
        loading.__enter__()
        has_begun.set()
        may_end.wait(30.0)

    def run(target: Callable[[], object]) -> None:
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()

    def train_elsewhere() -> None:
        with phases.phase("elsewhere"):
            watched.step()
            watched.tick(8)

    loader = threading.Thread(target=load)
    loader.start()
    assert has_begun.wait(30.0)
    watched.tick()
    with phases.phase("forward"):
        watched.tick(8)
        run(train_elsewhere)
        watched.tick(8)
    loading.__exit__(None, None, None)
    may_end.set()
    loader.join()
    watched.tick(8)
    wait_until(lambda: len(hub.of(Readings)) >= 5)
    assert [it.phase for it in hub.of(Readings)] == [None, "forward", "elsewhere", "forward", None]
    assert not any(phases._open.values())


def test_phases_that_end_out_of_turn_leave_none_behind() -> None:
    outer, inner = phases.phase("outer"), phases.phase("inner")
    with outer:
        inner.__enter__()
    assert phases.innermost() == "inner"
    inner.__exit__(None, None, None)
    inner.__exit__(None, None, None)
    assert phases.innermost() is None


def test_a_part_that_a_thread_left_open_is_not_that_of_a_later_thread_with_its_number(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(target: Callable[[], object]) -> None:
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()

    monkeypatch.setattr(phases, "get_ident", lambda: 4242)
    left = phases.phase("left open")
    run(left.__enter__)
    run(watched.step)
    assert phases.innermost() is None
    left.__exit__(None, None, None)
    assert not any(phases._open.values())
