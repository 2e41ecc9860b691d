"""The command lines of the tool that the suite stems from, as written, with `vramscope` in front.

Their durations of minutes are replaced by a second, nothing else.
"""

import itertools
from pathlib import Path

import pytest

from ....pretend_nvml.driver import PretendDriver
from ..running import GIB, run
from .running import read_report, report_of

pytestmark = pytest.mark.waits

LINES = (
    "profile --duration 60 --output profile.json --plot",
    "profile --devices 0 1 --duration 120",
    "oom --threshold 80 --duration 300 --output oom_report.json",
    "leak --threshold 10 --enable-tracking --duration 600",
    "leak --output leak_report.json --duration 300",
    "fragment --duration 120 --plot --output fragment.json",
    "fragment --duration 300 --interval 5.0",
    "profile --duration 60 --plot",
    "leak --enable-tracking --duration 600",
    "fragment --duration 180 --plot",
    "fragment --duration 600 --interval 10",
)
"""`oom … --monitor` and `interactive` never end by themselves: they have tests of their own."""


def shorten(line: str) -> list[str]:
    """Return the words of a line that watches for a second."""
    words = line.split()
    words[words.index("--duration") + 1] = "1"
    return words


@pytest.mark.parametrize("line", LINES)
def test_a_line_does_what_it_did(
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pretend_driver: PretendDriver,
    pretend_environment: dict[str, str],
) -> None:
    for number in range(2):
        pretend_driver.add_device(used_bytes=(10 + number) * GIB)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    words = shorten(line)
    outcome = run(*words)
    assert outcome.code == 0, outcome.stderr
    named = dict(itertools.pairwise(words)).get("--output")
    if named is None:
        report = report_of(outcome, words[0])
    else:
        assert outcome.stdout == ""
        report = read_report(folder / named, words[0])
    assert set(report["devices"]) == {"0", "1"}
    drawn = {path.name for path in folder.iterdir() if path.name != named}
    assert drawn == (expected_plots() if "--plot" in words else set())


def expected_plots() -> set[str]:
    """Return the names of the plots of two devices without an allocator: of fragmentation there is none."""
    stems = [f"gpu_{index}_memory_usage" for index in (0, 1)]
    return {f"{stem}.{kind}" for stem in (*stems, "memory_heatmap") for kind in ("png", "pdf")}


def test_the_figures_are_those_of_the_driver(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device(used_bytes=12 * GIB)
    pretend_driver.add_device(used_bytes=78 * GIB)
    profile = report_of(run("profile", "--duration", "1"), "profile")
    memory = profile["devices"]["0"]["current_memory"]
    assert (memory["allocated"], memory["total"], memory["utilization"]) == (12 * GIB, 80 * GIB, 15.0)
    assert profile["devices"]["0"]["memory_source"] == "device"
    risks = report_of(run("oom", "--duration", "1"), "oom")["devices"]
    assert [risks[key]["risk_assessment"]["risk_level"] for key in "01"] == ["low", "critical"]
    assert risks["1"]["risk_assessment"]["forecast"] == "unknown"
    fragment = report_of(run("fragment", "--duration", "1"), "fragment")
    assert fragment["devices"]["0"]["current_metrics"]["fragmentation_ratio"] is None
