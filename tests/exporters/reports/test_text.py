"""Reports as text: the table, what to do, what it rests on, in any width."""

import pytest

from vramscope.analyzers.sentence import count_cells
from vramscope.exporters.reports.fragment import build_fragment
from vramscope.exporters.reports.leak import LeakRule, Tracking, build_leak
from vramscope.exporters.reports.log import RunLog
from vramscope.exporters.reports.oom import Thresholds, build_oom
from vramscope.exporters.reports.profile import build_profile
from vramscope.exporters.reports.text import describe_report

from .logs import DRIVER, GIB, INPUT, make_device, make_finding, make_log, make_sample


@pytest.fixture
def log() -> RunLog:
    made = make_log(make_sample(t, make_device(76 * GIB), make_device(GIB, index=1)) for t in range(60))
    made.take([make_finding("pressure", "medium"), make_finding("leak", opened_s=9.0, closed_s=20.0)])
    return made


def test_a_profile_shows_each_device_and_what_was_found(log: RunLog) -> None:
    lines = describe_report(build_profile(log, DRIVER), 100).splitlines()
    assert lines[0] == "60 samples over 59 s from the driver, device memory alone"
    assert any(line.split()[:3] == ["0", "76.0", "GiB"] for line in lines)
    assert any("2 findings" in line for line in lines)
    assert any("medium pressure: pressure of device 0" in line for line in lines)
    assert any("act on pressure" in line for line in lines)
    assert any("high leak, closed" in line for line in lines)
    assert not any("act on leak" in line for line in lines)


@pytest.mark.parametrize(
    ("fields", "peak", "average"),
    [
        ({"used": 60 * GIB, "allocated": 20 * GIB}, "20.0 GiB allocated", "75.0 % used"),
        ({"used": 60 * GIB}, "60.0 GiB used", "75.0 % used"),
        ({"allocated": 20 * GIB, "reserved": 40 * GIB}, "20.0 GiB allocated", "50.0 % reserved"),
    ],
)
def test_a_profile_names_what_its_peak_and_its_average_are_of(
    fields: dict[str, int], peak: str, average: str
) -> None:
    device = make_device(
        fields.get("used"), allocated=fields.get("allocated"), reserved=fields.get("reserved")
    )
    log = make_log(make_sample(t, device) for t in range(5))
    (row,) = (
        line for line in describe_report(build_profile(log, DRIVER), 120).splitlines() if line[:3] == "  0"
    )
    assert f"  {peak}  " in row
    assert f"  {average}  " in row


def test_a_risk_says_why_it_is_what_it_is(log: RunLog) -> None:
    text = describe_report(build_oom(log, DRIVER, Thresholds()), 100)
    assert "0: device memory alone gives no forecast; critical by usage alone" in text
    # As in the live view: device memory alone is no forecast, however full the device is.
    assert "✖ critical" not in text
    given = describe_report(build_oom(log, DRIVER, Thresholds(is_given=True)), 100)
    assert "✖ critical" in given


def test_what_was_not_measured_is_a_dash_and_said(log: RunLog) -> None:
    text = describe_report(build_fragment(log, INPUT, []), 100)
    assert "from series.csv (series CSV)" in text
    assert "not measured" in text
    assert "no allocator data of this device" in text


def test_tracking_that_could_not_be_says_why(log: RunLog) -> None:
    tracking = Tracking(requested=True, reason="no job under the probe was seen")
    assert "tracking: no job" in describe_report(build_leak(log, DRIVER, LeakRule(), tracking), 100)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_asked(log: RunLog, width: int) -> None:
    for report in (
        build_profile(log, DRIVER),
        build_oom(log, DRIVER, Thresholds()),
        build_leak(log, DRIVER, LeakRule()),
        build_fragment(log, DRIVER, []),
    ):
        assert max(map(count_cells, describe_report(report, width).splitlines())) <= width


def test_nothing_seen_is_said() -> None:
    assert "no device found" in describe_report(build_profile(make_log([]), DRIVER), 80)


def test_numbers_of_a_thousand_and_more_have_separators_in_every_column() -> None:
    log = make_log(make_sample(t, make_device((t + 20) * 2 * GIB)) for t in range(10))
    leak = describe_report(build_leak(log, INPUT, LeakRule()), 140)
    oom = describe_report(build_oom(log, INPUT, Thresholds()), 140)
    assert "40,960.0 MiB" in leak
    assert "+122,880.00 MiB/min" in leak
    assert "+2,048.00 MiB/s" in oom


def test_two_samples_tell_no_rate_and_three_do() -> None:
    for seconds in (2, 3):
        log = make_log(make_sample(t, make_device((t + 1) * GIB)) for t in range(seconds))
        oom, leak = build_oom(log, INPUT, Thresholds()), build_leak(log, INPUT, LeakRule())
        growth = oom.devices["0"].risk_assessment.growth_rate_mb_per_sec
        assert growth == (None if seconds == 2 else pytest.approx(1024.0))
        for report in (oom, leak):
            assert ("2 samples: no rate" in describe_report(report, 100)) == (seconds == 2)
