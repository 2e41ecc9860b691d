"""Alerts in a real tmux over a real agent: the bell of the pane, two viewers, a decision that both see."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.pretend_nvml.driver import PretendDriver
from tests.waiting import wait_until

from ..panes import PROGRAM, Pane, pane

pytestmark = pytest.mark.waits

LOUD = {"VRAMSCOPE_ALERTS_LEVEL": "low", "VRAMSCOPE_ALERTS_BELL_LEVEL": "low"}


def has_rung(opened: Pane) -> bool:
    return opened._run("display-message", "-p", "#{window_bell_flag}").strip() == "1"


def test_a_finding_that_opens_is_told_over_the_screen_and_by_the_bell_where_it_is_wanted(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    device = pretend_driver.add_device(used_bytes=10 << 30)
    loud, still = ({**pretend_environment, **LOUD, "VRAMSCOPE_ALERTS_BELL": it} for it in ("True", "False"))
    with pane(f"{PROGRAM} --interval 0.2", loud) as ringing, pane(PROGRAM, still) as silent:
        for opened in (ringing, silent):
            opened.wait_for("1 GPU", "Alerts  none")
        assert not has_rung(ringing)
        device.set_memory(used_bytes=79 << 30)
        with ThreadPoolExecutor() as watching:  # what is told over a screen is gone after a few seconds
            over = ("nearly full: 79.0 of 80.0 GiB", "(3 shows it)")
            list(watching.map(lambda opened: opened.wait_for(*over), (ringing, silent)))
        for opened in (ringing, silent):
            opened.wait_for("pressure GPU 0")
        wait_until(lambda: has_rung(ringing), 60.0, "the bell")
        assert not has_rung(silent)
        for opened in (silent, ringing):
            opened.press("q")
            opened.wait_for("exit code 0")


def test_what_one_viewer_mutes_another_sees_muted(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device(used_bytes=79 << 30)
    variables = {**pretend_environment, **LOUD}
    with pane(f"{PROGRAM} --interval 0.2", variables) as one:
        one.wait_for("pressure GPU 0")
        with pane(PROGRAM, variables, width=80, height=24) as other:
            other.wait_for("pressure GPU 0")
            assert not has_rung(other), "it was open before this viewer came"
            other.press("3")
            other.wait_for("Alerts  1 open")
            one.press("3")
            one.wait_for("Alerts  1 open", "Evidence")
            one.press("m")
            one.wait_for("Mute pressure on GPU 0", "for an hour")
            one.press("Enter")
            one.wait_for("0 open", "1 muted", "muted until")
            other.wait_for("0 open", "1 muted", "muted until")
            other.press("Enter")
            other.wait_for("pressure is muted on this device until", "What happened", "muted for an hour")
            other.press("u")
            one.wait_for("Alerts  1 open")
            one.press("1")
            one.wait_for("pressure GPU 0")
