"""Open findings on growth have the times, rates and sizes of the newest assessment."""

from typing import Any

import msgspec

from vramscope.analyzers.findings.evidence import FLOOR_AT_ONSET, GROWN, PROCESS, RATE, TIME_LEFT
from vramscope.analyzers.growth_renewal import renew_finding, renew_findings
from vramscope.engine.model import Assessment, Finding
from vramscope.engine.units import GIB, MIB

from .samples import assessment, finding

LEAK = msgspec.structs.replace(
    finding(
        "leak", title="GPU 0 (rank 0) leaks 20 MiB a step since step 4 (2.0 GiB), kept by f() at train.py:3"
    ),
    updated_s=100.0,
    evidence=(PROCESS(7), RATE(10.0 * MIB), GROWN(2 * GIB), FLOOR_AT_ONSET(10 * GIB), TIME_LEFT(900.0)),
)


def _word(**fields: Any) -> Assessment:
    known = {
        "growth_bytes_per_s": 12.0 * MIB,
        "growth_bytes_per_step": 24.0 * MIB,
        "floor_bytes": 13 * GIB,
        "oom_in_low_s": 400.0,
        "oom_in_high_s": 600.0,
        **fields,
    }
    return msgspec.structs.replace(assessment("high", pid=7, oom_in_s=500.0, time_s=190.0), **known)


def _numbers(found: Finding) -> tuple[float | None, ...]:
    return RATE.read_number(found), GROWN.read_number(found), TIME_LEFT.read_number(found)


def test_a_leak_has_the_pace_and_the_time_of_the_newest_forecast_of_its_process() -> None:
    found = renew_finding(LEAK, (_word(pid=8), _word()), 200.0)
    assert (
        found.title == "GPU 0 (rank 0) leaks 24 MiB a step since step 4 (3.0 GiB), kept by f() at train.py:3"
    )
    assert _numbers(found) == (12.0 * MIB, 3 * GIB, 490.0)
    assert renew_finding(found, (_word(),), 200.0) == found


def test_growth_of_peaks_and_no_growth_say_nothing_of_a_leak() -> None:
    for word in (_word(is_growth_of_peaks=True), _word(growth_bytes_per_s=0.0), _word(pid=8)):
        found = renew_finding(LEAK, (word,), 200.0)
        assert (found.title, _numbers(found)) == (LEAK.title, _numbers(LEAK))


def test_a_closed_finding_and_one_of_another_kind_stay_as_they_are() -> None:
    closed = msgspec.structs.replace(LEAK, closed_s=150.0)
    other = finding("pressure", title="GPU 0 leaks 20 MiB a step")
    findings = (closed, other)
    assert renew_findings(findings, (_word(),), 200.0) is findings
