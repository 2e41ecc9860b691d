"""A crossing is met once, however often a finding is reported."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.alerts.findings import NOON_S, make_finding
from vramscope.engine.alerts import state as crossings
from vramscope.engine.alerts.state import Crossing, CrossingLog, is_wanted
from vramscope.engine.model import SEVERITIES, Finding, Severity
from vramscope.engine.settings import AlertSettings

HISTORIES = st.lists(
    st.tuples(st.sampled_from(SEVERITIES), st.integers(0, 2)), min_size=1, max_size=12
)  # severity, and which of three findings


def events(log: CrossingLog, *findings: Finding) -> list[str]:
    return [crossing.event for crossing in log.note(findings)]


def test_a_finding_opens_rises_and_closes_each_once() -> None:
    log = CrossingLog()
    assert events(log, make_finding(severity="medium")) == ["opened"]
    assert events(log, make_finding(severity="medium", updated_s=NOON_S + 1)) == []
    assert events(log, make_finding(severity="critical", updated_s=NOON_S + 2)) == ["raised"]
    assert events(log, make_finding(severity="medium", updated_s=NOON_S + 3)) == []
    assert events(log, make_finding(severity="critical", updated_s=NOON_S + 4)) == [], "it was so before"
    assert events(log, make_finding(severity="critical", closed_s=NOON_S + 5)) == ["closed"]


def test_a_restarted_worker_that_goes_through_the_past_again_adds_nothing() -> None:
    log = CrossingLog()
    past = [make_finding(severity="low"), make_finding(severity="high"), make_finding(closed_s=NOON_S + 9)]
    assert events(log, *past) == ["opened", "raised", "closed"]
    assert events(log, *past, *past) == []


def test_a_finding_that_was_over_before_anybody_heard_of_it_is_told_whole() -> None:
    assert events(CrossingLog(), make_finding(closed_s=NOON_S + 9)) == ["opened", "closed"]


@given(HISTORIES)
def test_no_history_tells_the_same_twice(history: list[tuple[Severity, int]]) -> None:
    log = CrossingLog()
    reports = [make_finding(severity=severity, opened_s=NOON_S + n) for severity, n in history]
    first = log.note(reports)
    found = [(crossing.event, crossing.finding.id, crossing.highest) for crossing in first]
    assert len(found) == len(set(found))
    assert log.note(reports) == []
    for finding_id in {finding.id for finding in reports}:
        mine = [crossing for crossing in first if crossing.finding.id == finding_id]
        assert mine[0].event == "opened"
        assert mine[-1].highest == max(
            (f.severity for f in reports if f.id == finding_id), key=SEVERITIES.index
        )


def test_what_is_long_closed_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crossings, "MAX_REMEMBERED", 3)
    log = CrossingLog()
    closed = [make_finding(opened_s=NOON_S + n, closed_s=NOON_S + 50) for n in range(5)]
    log.note([*closed, make_finding(opened_s=NOON_S + 60)])
    assert [finding.id in log for finding in closed] == [False, False, True, True, True]
    assert events(log, make_finding(opened_s=NOON_S + 60)) == [], "an open one never is"


@pytest.mark.parametrize(
    ("highest", "kind", "is_sent"),
    [("medium", "leak", True), ("low", "leak", False), ("critical", "idle_held", False)],
)
def test_settings_choose_by_level_and_kind(highest: Severity, kind: str, is_sent: bool) -> None:
    settings = AlertSettings(level="medium", kinds=("leak", "oom"))
    assert is_wanted(Crossing("closed", make_finding(kind, "low"), highest), settings) is is_sent
