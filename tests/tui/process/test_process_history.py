"""What a viewer remembers of each process: bounded, and of that very process."""

from itertools import pairwise

from msgspec.structs import replace

from tests.tui.canned import make_device, make_sample
from vramscope.engine.model import ProcessReading, Sample
from vramscope.tui.process.history import (
    INTERVAL_S,
    MOST_PROCESSES,
    MOST_READINGS,
    ProcessHistories,
    ProcessPoint,
)

UUID = "GPU-0000"


def sample_at(time_s: float, *processes: ProcessReading) -> Sample:
    return replace(make_sample((replace(make_device(0), processes=processes),)), time_s=time_s)


def reading(pid: int = 7, used_bytes: int | None = 100, started_s: float = 1.0) -> ProcessReading:
    return ProcessReading(pid, used_bytes=used_bytes, started_s=started_s, sm_percent=50.0, cpu_percent=None)


def test_readings_are_kept_oldest_first_and_what_is_unknown_stays_unknown() -> None:
    histories = ProcessHistories()
    for at in range(3):
        histories.add(sample_at(2.0 * at, reading(used_bytes=at)))
    assert histories.of((UUID, 7, 1.0)) == tuple(
        ProcessPoint(2.0 * at, float(at), 50.0, None, None) for at in range(3)
    )
    assert histories.of((UUID, 8, 1.0)) == ()


def test_another_process_of_that_number_begins_anew() -> None:
    histories = ProcessHistories()
    histories.add(sample_at(0.0, reading(started_s=1.0)))
    histories.add(sample_at(2.0, reading(started_s=2.0)))
    assert [len(histories.of((UUID, 7, started_s))) for started_s in (1.0, 2.0)] == [1, 1]


def test_it_holds_no_more_than_twenty_minutes_and_no_sample_twice() -> None:
    histories = ProcessHistories()
    for at in range(MOST_READINGS + 50):
        for part in (0.0, 1.0):
            histories.add(sample_at(2.0 * at + part, reading(used_bytes=at)))
    points = histories.of((UUID, 7, 1.0))
    assert len(points) == MOST_READINGS
    assert [point.used_bytes for point in points] == [float(at) for at in range(50, MOST_READINGS + 50)]
    assert min(b.time_s - a.time_s for a, b in pairwise(points)) >= INTERVAL_S


def test_processes_that_are_gone_make_room_for_new_ones_and_never_the_other_way_round() -> None:
    histories = ProcessHistories()
    histories.add(sample_at(0.0, *(reading(pid) for pid in range(MOST_PROCESSES))))
    histories.add(sample_at(2.0, *(reading(pid) for pid in range(1, MOST_PROCESSES + 1))))
    assert histories.of((UUID, 0, 1.0)) == ()
    assert len(histories.of((UUID, MOST_PROCESSES, 1.0))) == 1
    assert len(histories.of((UUID, 1, 1.0))) == 2
    histories.add(sample_at(4.0, *(reading(pid) for pid in range(1, MOST_PROCESSES + 9))))
    assert len(histories.of((UUID, 1, 1.0))) == 3
    assert histories.of((UUID, MOST_PROCESSES + 8, 1.0)) == ()


def test_a_replay_that_goes_back_begins_anew() -> None:
    histories = ProcessHistories()
    for time_s in (100.0, 102.0, 50.0):
        histories.add(sample_at(time_s, reading()))
    assert [point.time_s for point in histories.of((UUID, 7, 1.0))] == [50.0]
