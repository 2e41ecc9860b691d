"""When a hub that was started for somebody has nobody left to serve."""

from vramscope.engine.agent.supervisor import Attendance


def test_nobody_comes() -> None:
    attendance = Attendance(first_within_s=15.0, linger_s=0.0, now_s=100.0)
    assert not attendance.is_over(114.0, has_ranks=False)
    assert attendance.is_over(115.0, has_ranks=False)


def test_it_is_over_with_the_last_viewer_and_the_last_process() -> None:
    attendance = Attendance(first_within_s=15.0, linger_s=0.0, now_s=100.0)
    attendance.note_viewer(has_come=True)
    assert not attendance.is_over(200.0, has_ranks=False)
    attendance.note_viewer(has_come=False)
    assert not attendance.is_over(201.0, has_ranks=True)
    assert attendance.is_over(202.0, has_ranks=False)


def test_it_lingers_for_the_next_process_of_a_job() -> None:
    attendance = Attendance(first_within_s=600.0, linger_s=30.0, now_s=0.0)
    assert not attendance.is_over(599.0, has_ranks=False)
    assert not attendance.is_over(599.5, has_ranks=True)
    assert not attendance.is_over(629.0, has_ranks=False)
    assert not attendance.is_over(629.4, has_ranks=True)
    assert not attendance.is_over(659.0, has_ranks=False)
    assert attendance.is_over(659.5, has_ranks=False)
