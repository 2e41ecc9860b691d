"""Where steps end, how long they last, and which figures of them are exact."""

from types import SimpleNamespace

from tests.probe.clocks import WoundClock
from vramscope.engine.probe.backends import NOTHING, Reading
from vramscope.engine.probe.steps import StepWatch


def at(allocated: int, peak: int) -> Reading:
    return Reading(allocated_bytes=allocated, peak_bytes=peak)


def test_one_optimizer_ends_a_step_each_time() -> None:
    watch, optimizer = StepWatch(WoundClock()), SimpleNamespace()
    assert [watch.ends_with(optimizer) for _ in range(3)] == [True, True, True]


def test_of_several_optimizers_the_first_ends_the_step_however_often_others_step() -> None:
    watch, first, second, third = StepWatch(WoundClock()), *(SimpleNamespace() for _ in range(3))
    ends = [watch.ends_with(each) for each in (first, second, third, first, third, second, first)]
    assert ends == [True, False, False, True, False, False, True]


def test_where_the_first_optimizer_is_used_no_more_another_takes_over() -> None:
    watch, first, second = StepWatch(WoundClock()), SimpleNamespace(), SimpleNamespace()
    ends = [watch.ends_with(each) for each in (first, second, second, second)]
    assert ends == [True, False, True, True]


def test_durations_are_monotonic_and_ends_are_wall_time() -> None:
    clock = WoundClock()
    watch = StepWatch(clock)
    first = watch.end(NOTHING)
    clock.advance(0.25)
    clock.wall_offset_s -= 3600
    second = watch.end(NOTHING)
    assert first[2] is None
    assert second[2] == 0.25
    assert second[1] == first[1] + 0.25 - 3600


def test_a_peak_that_rose_within_the_step_is_exact_whatever_was_sampled() -> None:
    watch = StepWatch(WoundClock())
    watch.end(at(100, 100))
    watch.note_sample(at(300, 400))
    assert watch.end(at(120, 900))[3:] == (100, 900, True)


def test_a_peak_that_did_not_rise_is_the_most_that_was_sampled() -> None:
    watch = StepWatch(WoundClock())
    watch.end(at(100, 900))
    watch.note_sample(at(300, 900))
    watch.note_sample(at(200, 900))
    assert watch.end(at(120, 900))[3:] == (100, 300, False)
    assert watch.end(at(110, 900))[3:] == (110, 120, False)


def test_a_peak_that_the_program_reset_within_the_step_is_not_called_exact() -> None:
    watch = StepWatch(WoundClock())
    watch.end(at(100, 500))
    watch.note_sample(at(450, 500))
    watch.note_sample(at(100, 100))
    assert watch.end(at(120, 700))[3:] == (100, 450, False)


def test_the_first_step_has_no_beginning_and_no_exact_peak() -> None:
    assert StepWatch(WoundClock()).end(at(100, 900))[2:] == (None, 100, 100, False)


def test_a_step_without_a_reading_is_told_by_the_samples_alone() -> None:
    watch = StepWatch(WoundClock())
    assert watch.end(NOTHING)[2:] == (None, None, None, False)
    watch.note_sample(at(70, 80))
    assert watch.end(NOTHING)[3:] == (None, 70, False)
    watch.end(at(50, 80))
    assert watch.end(NOTHING)[3:] == (50, 50, False)
