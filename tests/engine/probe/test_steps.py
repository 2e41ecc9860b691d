"""Where steps end, how long they last, and which figures of them are exact."""

from vramscope.engine.probe.backends import NOTHING, Reading
from vramscope.engine.probe.sampler import Digest
from vramscope.engine.probe.steps import StepBoundaries, StepEnd, StepWatch
from vramscope.engine.probe.transport import Outbox
from vramscope.engine.probe.wire import StepRow


def at(allocated: int, peak: int) -> Reading:
    return Reading(allocated_bytes=allocated, peak_bytes=peak)


def end(watch: StepWatch, reading: Reading, monotonic_s: float = 5.0, wall_s: float = 7.0) -> StepRow:
    return watch.end(StepEnd(monotonic_s, wall_s, reading))


def test_one_optimizer_ends_a_step_each_time() -> None:
    boundaries = StepBoundaries()
    assert [boundaries.ends_with(1) for _ in range(3)] == [True, True, True]


def test_of_several_optimizers_the_first_ends_the_step_however_often_others_step() -> None:
    boundaries = StepBoundaries()
    ends = [boundaries.ends_with(each) for each in (1, 2, 3, 1, 3, 2, 1)]
    assert ends == [True, False, False, True, False, False, True]


def test_where_the_first_optimizer_is_used_no_more_another_takes_over() -> None:
    boundaries = StepBoundaries()
    assert [boundaries.ends_with(each) for each in (1, 2, 2, 2)] == [True, False, True, True]


def test_durations_are_monotonic_and_ends_are_wall_time() -> None:
    watch = StepWatch()
    assert end(watch, NOTHING, 10.0, 5000.0)[:3] == (1, 5000.0, None)
    assert end(watch, NOTHING, 10.25, 1400.25)[:3] == (2, 1400.25, 0.25)


def test_samples_and_ends_are_taken_in_the_order_of_time() -> None:
    outbox = Outbox()
    digest = Digest(outbox)
    digest.note_end((1.0, 101.0, at(100, 900), None, False))
    digest.note_end((3.0, 103.0, at(120, 900), None, False))
    digest.note_sample((2.0, 102.0, at(400, 900)))
    digest.note_sample((3.5, 103.5, at(800, 900)))
    digest.work((None, None), None)
    assert [(step[0], step[4]) for step in digest.recent.steps] == [(1, 100), (2, 400)]
    assert [(row[0], row[1], row[-1]) for row in digest.recent.rows()] == [(102.0, 400, 1), (103.5, 800, 2)]


def test_a_peak_that_rose_within_the_step_is_exact_whatever_was_sampled() -> None:
    watch = StepWatch()
    end(watch, at(100, 100))
    watch.note_sample(at(300, 400))
    assert end(watch, at(120, 900))[3:] == (100, 900, True)


def test_a_peak_that_did_not_rise_is_the_most_that_was_sampled() -> None:
    watch = StepWatch()
    end(watch, at(100, 900))
    watch.note_sample(at(300, 900))
    watch.note_sample(at(200, 900))
    assert end(watch, at(120, 900))[3:] == (100, 300, False)
    assert end(watch, at(110, 900))[3:] == (110, 120, False)


def test_a_peak_that_the_program_reset_within_the_step_is_not_called_exact() -> None:
    watch = StepWatch()
    end(watch, at(100, 500))
    watch.note_sample(at(450, 500))
    watch.note_sample(at(100, 100))
    assert end(watch, at(120, 700))[3:] == (100, 450, False)


def test_a_peak_that_rose_after_a_reading_of_the_step_is_exact_though_its_beginning_was_not_read() -> None:
    watch = StepWatch()
    end(watch, at(100, 100))
    end(watch, NOTHING)
    watch.note_sample(at(150, 400))
    assert end(watch, at(120, 900))[3:] == (120, 900, True)


def test_a_peak_between_two_readings_with_an_unread_end_between_is_told_once_as_a_bound() -> None:
    watch = StepWatch()
    end(watch, at(100, 500))
    assert end(watch, NOTHING)[3:] == (100, 100, False)
    assert end(watch, at(120, 900))[3:] == (120, 900, False)
    assert end(watch, at(120, 900))[3:] == (120, 120, False)


def test_the_course_tells_ends_that_were_read_and_peaks_that_rose_within_steps() -> None:
    digest = Digest(Outbox())
    digest.note_sample((0.5, 100.5, at(300, 300)))
    digest.note_sample((0.6, 100.6, at(400, 400)))
    digest.note_end((1.0, 101.0, at(100, 400), None, False))
    digest.note_end((2.0, 102.0, NOTHING, None, False))
    digest.work((None, None), None)
    assert digest.take_course() == (1, False)
    digest.note_end((3.0, 103.0, at(100, 900), None, False))
    digest.work((None, None), None)
    assert digest.take_course() == (1, True)
    assert digest.take_course() == (0, False)


def test_the_first_step_has_no_beginning_and_no_exact_peak() -> None:
    assert end(StepWatch(), at(100, 900))[2:] == (None, 100, 100, False)


def test_a_step_without_a_reading_is_told_by_the_samples_alone() -> None:
    watch = StepWatch()
    assert end(watch, NOTHING)[2:] == (None, None, None, False)
    watch.note_sample(at(70, 80))
    assert end(watch, NOTHING)[3:] == (None, 70, False)
    end(watch, at(50, 80))
    assert end(watch, NOTHING)[3:] == (50, 50, False)
