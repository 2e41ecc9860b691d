"""Findings in full: numbers of processes are names, and paths stand once and whole."""

from vramscope.engine.model import Evidence, Finding
from vramscope.tui.device.page import draw_findings
from vramscope.tui.draw.glyphs import UNICODE
from vramscope.tui.draw.spans import line_text

PATH = "/home/someone/.local/state/vramscope/flight/oom-20251009T085500Z-1234567-1.json.gz"


def draw(width: int, advice: str) -> list[str]:
    finding = Finding(
        "f1",
        "allocator_retries",
        "node",
        "GPU-a",
        "0",
        "critical",
        "is at its limit",
        1001.0,
        1001.0,
        evidence=(Evidence("process", 1234567), Evidence("step", 1234), Evidence("record", PATH)),
        advice=advice,
    )
    return [line_text(line).rstrip() for line in draw_findings([finding], "wall", width, UNICODE)]


def test_a_process_has_no_thousands_and_a_step_has() -> None:
    assert any("process 1234567, step 1,234" in line for line in draw(200, ""))


def test_a_path_that_the_advice_tells_stands_once() -> None:
    assert "\n".join(draw(200, f"`vramscope inspect {PATH}` shows what used the memory")).count(PATH) == 1
    assert "\n".join(draw(200, "")).count(PATH) == 1


def test_a_path_is_not_broken_where_a_line_of_its_own_holds_it() -> None:
    # Three cells before it, one behind.
    lines = draw(len(PATH) + 4, "")
    assert f"   {PATH}" in lines
