"""Memory before, after and at the peak of the named parts of a program's steps."""

import threading

from tests.engine.probe.hub import ListeningHub
from tests.engine.probe.stand_in import MIB
from tests.engine.probe.watched import Watched
from tests.waiting import wait_until
from vramscope.engine.probe import phases
from vramscope.engine.probe.base import current
from vramscope.engine.probe.phase_memory import FIRST_CALLS, MOST_NAMES
from vramscope.engine.ranks.messages import PhaseRow, Steps


def rows(hub: ListeningHub) -> list[PhaseRow]:
    """Return every row about a part, oldest first."""
    return [row for message in hub.of(Steps) for row in message.phases]


def newest(hub: ListeningHub) -> dict[str, PhaseRow]:
    """Return the newest row of each name."""
    return {row[0]: row for row in rows(hub)}


def use(watched: Watched, name: str, *sizes: int, seconds: float = 0.02) -> None:
    """Let a part allocate one amount after the other, or free it."""
    with phases.phase(name):
        for size in sizes:
            watched.cuda.allocate(size)
            watched.clock.advance(seconds)


def test_a_part_says_what_was_held_before_after_and_at_its_peak(watched: Watched, hub: ListeningHub) -> None:
    watched.cuda.allocate(100 * MIB)
    watched.tick()
    use(watched, "forward", 40 * MIB)
    use(watched, "backward", 60 * MIB, -90 * MIB)
    watched.tick(10)
    wait_until(lambda: len(newest(hub)) == 2)
    forward, backward = newest(hub)["forward"], newest(hub)["backward"]
    held = [100 * MIB, 140 * MIB, 200 * MIB, 110 * MIB]
    assert forward[4:] == (held[0], held[0], held[1], held[1], held[1], True, held[1], True)
    assert backward[4:] == (held[1], held[1], held[3], held[2], held[2], True, held[2], True)
    assert (forward[1], round(forward[3] or 0, 6)) == (1, 0.02)


def test_a_peak_below_an_earlier_one_is_the_most_that_was_read(watched: Watched, hub: ListeningHub) -> None:
    watched.cuda.allocate(500 * MIB)
    watched.cuda.allocate(-400 * MIB)
    watched.tick()
    with phases.phase("forward"):
        watched.cuda.allocate(50 * MIB)
        watched.tick()
        watched.cuda.allocate(-50 * MIB)
    watched.tick(10)
    wait_until(lambda: bool(rows(hub)))
    (forward,) = newest(hub).values()
    assert forward[6:] == (100 * MIB, 500 * MIB, 150 * MIB, False, 150 * MIB, False)


def test_the_most_of_all_calls_is_exact_where_it_is_the_allocators_own(
    watched: Watched, hub: ListeningHub
) -> None:
    watched.cuda.allocate(100 * MIB)
    watched.tick()
    use(watched, "backward", 60 * MIB, -60 * MIB)
    use(watched, "backward", 20 * MIB, -20 * MIB)
    watched.tick(10)
    wait_until(lambda: bool(rows(hub)))
    backward = newest(hub)["backward"]
    assert backward[1] == 2
    assert backward[8:] == (100 * MIB, False, 160 * MIB, True)
    use(watched, "other", 90 * MIB, -90 * MIB)
    use(watched, "backward", 20 * MIB, -20 * MIB)
    watched.tick(10)
    wait_until(lambda: newest(hub)["backward"][1] == 3)
    assert newest(hub)["backward"][10:] == (160 * MIB, False)


def test_a_peak_that_the_program_reset_within_a_part_is_a_lower_bound(
    watched: Watched, hub: ListeningHub
) -> None:
    watched.cuda.allocate(100 * MIB)
    watched.cuda.allocate(-50 * MIB)
    watched.tick()
    with phases.phase("forward"):
        watched.cuda.reset_peak()
        watched.tick()
        watched.cuda.allocate(90 * MIB)
        watched.cuda.allocate(-60 * MIB)
    watched.tick(10)
    wait_until(lambda: bool(rows(hub)))
    (forward,) = newest(hub).values()
    assert forward[8:] == (140 * MIB, False, 140 * MIB, False)


def test_what_began_before_the_runtime_began_with_nothing(watched: Watched, hub: ListeningHub) -> None:
    watched.cuda.is_ready = False
    with phases.phase("create the model"):
        watched.cuda.is_ready = True
        watched.cuda.allocate(30 * MIB)
    watched.tick(10)
    wait_until(lambda: bool(rows(hub)))
    (created,) = newest(hub).values()
    assert created[4:] == (0, 0, 30 * MIB, 30 * MIB, 30 * MIB, True, 30 * MIB, True)


def test_a_quick_loop_is_counted_and_seldom_read(watched: Watched, hub: ListeningHub) -> None:
    watched.cuda.allocate(MIB)
    watched.tick()
    watched.step()
    read = watched.session._device.read
    readings = 0

    def count() -> object:
        nonlocal readings
        readings += 1
        return read()

    watched.session._device.read = count  # type: ignore[assignment]
    digests = 10
    for _ in range(digests):
        for _ in range(100):
            for name in ("forward", "backward"):
                use(watched, name, 0)
        watched.session._sampler.work_now()
    watched.session._device.read = read
    assert readings <= 2 * (2 * FIRST_CALLS + digests)
    watched.tick(10)
    wait_until(lambda: len(newest(hub)) == 2)
    assert all(row[1] > 100 * (digests - 2) for row in newest(hub).values())


def test_names_without_end_are_bounded_and_that_is_said(watched: Watched, hub: ListeningHub) -> None:
    watched.cuda.allocate(MIB)
    watched.tick()
    for index in range(3 * MOST_NAMES):
        use(watched, f"batch {index}", 0)
    watched.tick(150)
    wait_until(lambda: len(newest(hub)) == MOST_NAMES)
    wait_until(lambda: any("phases" in note for note in hub.hello().notes))


def test_parts_of_other_threads_and_parts_within_themselves(watched: Watched, hub: ListeningHub) -> None:
    watched.cuda.allocate(10 * MIB)
    watched.tick()
    watched.step()
    loader = threading.Thread(target=use, args=(watched, "loading", 5 * MIB))
    loader.start()
    loader.join()
    both = phases.phase("both")
    with both:
        watched.cuda.allocate(MIB)
        with both:
            watched.cuda.allocate(MIB)
    watched.tick(10)
    wait_until(lambda: bool(rows(hub)))
    assert set(newest(hub)) == {"both"}
    assert newest(hub)["both"][4:8:2] == (15 * MIB, 17 * MIB)
    assert not phases.read


def test_a_part_that_ends_on_another_device_says_nothing(watched: Watched, hub: ListeningHub) -> None:
    watched.cuda.allocate(10 * MIB)
    watched.tick()
    with phases.phase("moves"):
        watched.session._device.index = 1
        watched.cuda.devices.append(dict(watched.cuda.devices[0]))
    watched.session._device.index = 0
    use(watched, "stays", 0)
    watched.tick(10)
    wait_until(lambda: bool(rows(hub)))
    assert set(newest(hub)) == {"stays"}


def test_on_the_host_nothing_is_told_and_nothing_is_read_twice(watched: Watched, hub: ListeningHub) -> None:
    watched.cuda.is_ready = False
    watched.optimizer.param_groups[0]["params"][0].device.type = "cpu"
    watched.step()
    use(watched, "forward")
    watched.tick(10)
    watched.step()
    wait_until(lambda: bool(hub.steps()))
    assert rows(hub) == []
    assert current.failures == []


def test_a_hub_that_comes_later_hears_of_every_part(watched: Watched, hub: ListeningHub) -> None:
    watched.cuda.allocate(MIB)
    watched.tick()
    use(watched, "create the model", MIB)
    watched.tick(10)
    wait_until(lambda: bool(rows(hub)))
    watched.session._sampler.connection.close()
    watched.tick(100)
    wait_until(lambda: len(hub.connections) == 2 and len(rows(hub)) == 2)
