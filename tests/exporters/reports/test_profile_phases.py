"""Named parts of a followed job, in the report of `vramscope profile` and in its text."""

from typing import Any

import msgspec
import pytest

from vramscope.analyzers.sentence import count_cells
from vramscope.engine.model import PhaseReading, RankCoordinates, RankSample
from vramscope.exporters.json_lines import encode_report
from vramscope.exporters.reports.log import RunLog
from vramscope.exporters.reports.profile import build_profile
from vramscope.exporters.reports.text import describe_report

from .logs import DRIVER, GIB, MIB, make_device, make_log, make_sample

FORWARD = PhaseReading(
    "forward", 12, 2.0, 0.25, GIB, 2 * GIB, 5 * GIB, 6 * GIB, 5 * GIB, False, 6 * GIB, False
)
BACKWARD = PhaseReading(
    "backward\x1b[2J", 12, 2.0, 0.5, 5 * GIB, 6 * GIB, 2 * GIB, 8 * GIB, 7 * GIB, True, 7 * GIB, True
)


def make_phased(*phases: PhaseReading, pid: int = 7, **fields: Any) -> RankSample:
    return RankSample(pid=pid, device_uuid="GPU-0", phases=phases, **fields)


@pytest.fixture
def log() -> RunLog:
    early = msgspec.structs.replace(FORWARD, calls=1)
    rank = RankCoordinates(3, 4)
    return make_log(
        [
            make_sample(0, make_device(30 * GIB), ranks=(make_phased(early, coordinates=rank),)),
            make_sample(1, make_device(30 * GIB), ranks=(make_phased(FORWARD, BACKWARD, coordinates=rank),)),
            make_sample(2, make_device(30 * GIB), ranks=(make_phased(FORWARD, pid=8),)),
        ]
    )


def test_the_newest_of_every_process_is_in_the_report_and_the_peak_is_of_all_calls(log: RunLog) -> None:
    told = msgspec.json.decode(encode_report(build_profile(log, DRIVER)))["phases"]
    assert [(it["phase"], it["pid"], it["rank"], it["calls"]) for it in told] == [
        ("forward", 7, 3, 12),
        ("backward\x1b[2J", 7, 3, 12),
        ("forward", 8, None, 12),
    ]
    assert told[0] == {
        **{"phase": "forward", "device_id": 0, "pid": 7, "rank": 3, "calls": 12, "seconds": 0.25},
        **{"before_allocated": GIB, "after_allocated": 5 * GIB, "difference_allocated": 4 * GIB},
        **{"before_reserved": 2 * GIB, "after_reserved": 6 * GIB, "difference_reserved": 4 * GIB},
        **{"peak_allocated": 6 * GIB, "is_peak_exact": False},
    }


def test_a_process_that_has_ended_keeps_its_phases(log: RunLog) -> None:
    ended = make_phased(FORWARD, BACKWARD, state="ended", reason="the process has ended")
    log.observe(make_sample(3, make_device(30 * GIB), ranks=(ended,)))
    log.observe(make_sample(4, make_device(30 * GIB)))
    assert len(build_profile(log, DRIVER).phases) == 3


def test_the_text_has_a_row_for_each_and_marks_what_is_a_lower_bound(log: RunLog) -> None:
    lines = describe_report(build_profile(log, DRIVER), 100).splitlines()
    (heading,) = [place for place, line in enumerate(lines) if line.lstrip().startswith("phase ")]
    forward, backward = (line.split() for line in lines[heading + 1 : heading + 3])
    assert " ".join(forward) == "forward rank 3 ≥ 6.0 GiB 1.0 GiB 5.0 GiB +4.0 GiB 12"
    assert " ".join(backward).endswith("rank 3 7.0 GiB 5.0 GiB 2.0 GiB -3.0 GiB 12")
    assert "\x1b" not in "\n".join(lines)


def test_a_change_of_less_and_a_figure_that_is_unknown() -> None:
    unknown = PhaseReading("load", 1, 1.0, most_bytes=3 * MIB, is_most_exact=True)
    report = build_profile(
        make_log([make_sample(0, make_device(GIB), ranks=(make_phased(unknown),))]), DRIVER
    )
    (phase,) = report.phases
    assert (phase.before_allocated, phase.difference_allocated) == (None, None)
    assert describe_report(report, 100).count("—") >= 3


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_asked(log: RunLog, width: int) -> None:
    long = msgspec.structs.replace(FORWARD, name="前向" * 20)
    log.observe(make_sample(3, make_device(GIB), ranks=(make_phased(long, pid=9),)))
    assert max(map(count_cells, describe_report(build_profile(log, DRIVER), width).splitlines())) <= width
