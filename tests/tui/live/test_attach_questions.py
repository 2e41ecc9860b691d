"""What the questions before attaching show of processes."""

from vramscope.tui.live.attach_questions import choose_process

from ..canned import make_process


def test_a_long_command_is_listed_by_what_it_runs_not_by_where_its_interpreter_is() -> None:
    folder = "/opt/environments/a-very-long-name-of-an-environment/of-a-job/bin"
    jobs = [make_process(pid, 9, command=f"{folder}/python train_{pid}.py") for pid in (1, 2)]
    listed = choose_process(jobs, "")._choices
    assert [listed[str(pid)].split(maxsplit=1)[1] for pid in (1, 2)] == [
        "python train_1.py",
        "python train_2.py",
    ]
