"""Open findings on growth have the times, rates and sizes of the newest assessment."""

from typing import Any

import msgspec
import pytest

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


def test_a_finding_of_another_kind_stays_as_it_is() -> None:
    findings = (finding("pressure", title="GPU 0 leaks 20 MiB a step"),)
    assert renew_findings(findings, (_word(),), 200.0) is findings


@pytest.mark.parametrize(
    ("kind", "title", "past"),
    [
        (
            "leak",
            "GPU 0 (rank 0) leaks 20 MiB a step since step 4 (2.0 GiB), kept by leaks() at leaks.py:3",
            "GPU 0 (rank 0) leaked 20 MiB a step since step 4 (2.0 GiB), kept by leaks() at leaks.py:3",
        ),
        (
            "oom",
            "GPU 0 out of memory in 28 s (15-45 s, 96 %): live tensors grow by 5.0 GiB a minute",
            "GPU 0 was running out of memory: live tensors grew by 5.0 GiB a minute",
        ),
        (
            "oom",
            "rank 3 may run out of memory in 21 m 55 s (16 m 01 s to 27 m 48 s, 41 %): peaks grow by 2 MiB",
            "rank 3 might have run out of memory: peaks grew by 2 MiB",
        ),
        (
            "oom",
            "GPU 0 may run out of memory (30 % within 10 m 00 s): the largest steps may not fit",
            "GPU 0 might have run out of memory: the largest steps might not have fitted",
        ),
    ],
)
def test_what_has_ended_is_in_the_past_and_forecasts_nothing(kind: str, title: str, past: str) -> None:
    closed = msgspec.structs.replace(finding(kind, title=title), closed_s=150.0)
    (found,) = renew_findings((closed,), (_word(),), 200.0)
    assert (found.title, found.closed_s, found.evidence) == (past, 150.0, closed.evidence)
    assert renew_finding(found, (), 300.0) == found
