"""`vramscope inspect` in a real tmux: driven by keys, resized, and what is told where it cannot draw."""

from pathlib import Path

from ...waiting import wait_until
from ..inspect_files import rich_snapshot, save
from ..panes import PROGRAM, pane


def test_a_snapshot_is_opened_and_driven_by_keys(tmp_path: Path) -> None:
    path = save(tmp_path, rich_snapshot())
    with pane(f"{PROGRAM} inspect {path}") as opened:
        shown = opened.wait_for("a request of 512 MiB failed", "388 MiB   34.8 %", "q quit")
        assert "Traceback" not in shown
        opened.press("j", "Enter")
        opened.wait_for("376 MiB in 49 blocks", "/job/model.py:12")
        opened.leave("in 49 blocks")
        opened.press("i")
        opened.wait_for("live blocks by stack")
        opened.leave("live blocks by stack")
        opened.press("d")
        opened.wait_for("device 1  524 MiB reserved")
        opened.press("j", "Enter")
        opened.wait_for("device 1, 2 of 2")
        opened.resize(40, 10)
        wait_until(lambda: "reserved 524 MiB" in opened.look())
        opened.resize(200, 50)
        opened.wait_for("device 1, 2 of 2", "q quit")
        opened.press("q")
        opened.wait_for("exit code 0")


def test_a_file_that_is_none_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "half.pickle"
    path.write_bytes(b"\x80\x04half")
    with pane(f"{PROGRAM} inspect {path}") as opened:
        shown = opened.wait_for("exit code 2")
        assert f"vramscope: {path}" in shown.replace("\n", "")
        assert "Traceback" not in shown


def test_a_dumb_terminal_gets_the_text(tmp_path: Path) -> None:
    path = save(tmp_path, rich_snapshot())
    with pane(f"{PROGRAM} inspect {path} | head -20; {PROGRAM} inspect {path}", {"TERM": "dumb"}) as opened:
        shown = opened.wait_for("exit code 0")
        assert "settings: " in shown
