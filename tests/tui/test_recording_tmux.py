"""`R` in the real program: the title says that it records, and quitting says that it goes on."""

from pathlib import Path

import pytest

from vramscope.engine.recording import Recording

from ..pretend_nvml.driver import PretendDriver
from ..waiting import wait_until
from .panes import PROGRAM, pane
from .test_tmux import quit_of

pytestmark = pytest.mark.waits


def test_a_recording_is_begun_left_found_again_and_ended(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str], tmp_path: Path
) -> None:
    pretend_driver.add_device(used_bytes=30 << 30)
    variables = {**pretend_environment, "VRAMSCOPE_RECORD_FOLDER": str(tmp_path / "runs")}
    with pane(f"{PROGRAM} --read-only", variables) as opened:
        opened.wait_for("1 GPU", "30.0")
        opened.press("R")
        opened.wait_for("Started with --read-only: recording is not possible")
        quit_of(opened)
    with pane(PROGRAM, variables, width=200) as opened:
        opened.wait_for("1 GPU", "30.0")
        opened.press("C-p")
        opened.wait_for("Search for commands")
        opened.press("r", "e", "c", "o", "r", "d")
        opened.wait_for("app: record", "Start or stop recording this node")
        opened.leave("app: record")
        opened.press("R")
        opened.wait_for("● REC", "KiB", "Recording into")
        left = quit_of(opened)
        assert "end it with R in vramscope, or kill" in left
    (path,) = (it for it in (tmp_path / "runs").iterdir() if it.suffix == ".vscope")
    with pane(PROGRAM, {**variables, "LC_ALL": "C", "LANG": "C"}, width=200) as opened:
        opened.wait_for("1 GPU", "* REC")
        opened.press("R")
        opened.wait_for("Recorded ")
        wait_until(lambda: "REC" not in opened.look().splitlines()[0], what="the sign to go")
        assert "goes on" not in quit_of(opened)
    with Recording(path) as recording:
        assert not recording.is_unfinished
