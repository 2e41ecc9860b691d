"""Frames on one line: below the current folder by their path from there, long ones cut in their middle."""

from pathlib import Path

import pytest

from vramscope.analyzers.sentence import count_cells
from vramscope.engine.model.memory_snapshot import Frame
from vramscope.exporters.stack_text import show_frame
from vramscope.exporters.text import wrap

LONG = "/shared/projects/somewhere/" + "deep/" * 20 + "model.py"


def test_a_file_below_the_current_folder_is_named_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert show_frame(Frame(f"{tmp_path}/job/model.py", 12, "forward"), 200) == "forward  job/model.py:12"
    beside = f"{tmp_path}-2/model.py"
    assert show_frame(Frame(beside, 12, "forward"), 200) == f"forward  {beside}:12"


@pytest.mark.parametrize("width", [24, 40, 60, 80])
def test_a_long_path_keeps_its_beginning_its_name_and_its_line(width: int) -> None:
    text = show_frame(Frame(LONG, 1234, "block"), width)
    assert count_cells(text) == width
    assert text.startswith("block  /")
    assert text.endswith("model.py:1234")
    assert text.count("…") == 1


def test_a_word_for_which_there_is_no_room_is_broken_into_characters() -> None:
    assert [line.strip() for line in wrap("ab", 0, "  ")] == ["a", "b"]


def test_a_word_has_a_line_of_its_own_before_it_is_broken() -> None:
    word = "x" * 38
    assert wrap(f"at {word} and on", 40, "  ") == ["  at", f"  {word}", "    and on"]
    assert wrap(f"at {word}y", 40, "  ") == ["  at", f"  {word}", "    y"]
