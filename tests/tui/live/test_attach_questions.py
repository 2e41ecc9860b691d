"""What the questions before attaching show of processes."""

import pytest

from vramscope.tui.live.attach_questions import ask_to_attach, choose_process
from vramscope.tui.live.dialogs import describe_process
from vramscope.tui.live.process_rows import ProcessRow, shorten_command

from ..canned import make_device, make_process

FOLDER = "/opt/environments/a-very-long-name-of-an-environment/of-a-job"
LONG = f"{FOLDER}/bin/python -u {FOLDER}/train.py --config {FOLDER}/c.yaml {'--option value ' * 40}--seed 7"


def test_a_long_command_is_listed_by_what_it_runs_not_by_where_its_interpreter_is() -> None:
    folder = "/opt/environments/a-very-long-name-of-an-environment/of-a-job/bin"
    jobs = [make_process(pid, 9, command=f"{folder}/python train_{pid}.py") for pid in (1, 2)]
    listed = choose_process(jobs, "")._choices
    assert [listed[str(pid)].split(maxsplit=1)[1] for pid in (1, 2)] == [
        "python train_1.py",
        "python train_2.py",
    ]


@pytest.mark.parametrize("cells", [40, 60, 120])
def test_a_long_command_keeps_its_program_its_script_and_its_end(cells: int) -> None:
    shown = shorten_command(LONG, cells)
    assert len(shown) <= cells
    assert shown.startswith("python -u …/train.py ")
    assert " … " in shown
    assert shown.endswith(" --seed 7")
    assert shorten_command("python train.py  --lr 1", cells) == "python train.py --lr 1", (
        "one that fits is whole"
    )
    assert shorten_command(None) == "—"


def test_every_question_about_a_process_shortens_its_command() -> None:
    process = make_process(4711, 9, command=LONG)
    asked = (ask_to_attach(process, "")._facts, describe_process(ProcessRow(make_device(0), process)))
    for facts in asked:
        (line,) = (it for it in facts.splitlines() if it.startswith("command"))
        assert len(line) <= 130, "two lines of a dialog"
        assert "train.py" in line
