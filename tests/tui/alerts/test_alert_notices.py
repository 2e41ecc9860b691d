"""Notices and the bell: once per crossing, never for what is old news, muted or acknowledged."""

import msgspec
import pytest

from tests.tui.canned import NOON_S, FakeFeed, make_app, make_snapshot
from tests.tui.canned_alerts import FRAGMENTATION, IDLE, LEAK, OOM, PRESSURE
from tests.tui.device_looks import later
from tests.tui.looks import notices
from vramscope.engine.alerts.state import Acknowledgement, AlertState, Mute
from vramscope.engine.model import Finding, Severity
from vramscope.engine.settings import AlertSettings, Settings
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.controls.alert_notices import AlertNotices, News
from vramscope.tui.draw.glyphs import ASCII, UNICODE
from vramscope.tui.terminal.abilities import TerminalAbilities

ROOMY, SMALL = (120, 32), (40, 10)
EMPTY = make_snapshot()


def with_findings(*findings: Finding, state: AlertState | None = None) -> Snapshot:
    return msgspec.structs.replace(EMPTY, findings=findings, alerts=state or AlertState())


def raise_to(finding: Finding, severity: Severity) -> Finding:
    return msgspec.structs.replace(finding, severity=severity, updated_s=finding.updated_s + 1)


def follow(
    *snapshots: Snapshot, settings: AlertSettings | None = None, size: tuple[int, int] = ROOMY
) -> list[News]:
    notices = AlertNotices(settings or AlertSettings(), UNICODE)
    return [notices.take(snapshot, size) for snapshot in snapshots]


def texts(found: News) -> list[str]:
    return [notice.text for notice in found.notices]


def test_a_finding_that_opens_is_told_once_with_its_sentence_and_rings_the_bell() -> None:
    _, first, again, changed = follow(
        EMPTY,
        with_findings(LEAK),
        with_findings(LEAK),
        with_findings(msgspec.structs.replace(LEAK, title="GPU 5 leaks 21 MiB a step")),
    )
    assert texts(first) == [f"◆ high: {LEAK.title}  (3 shows it)"]
    assert first.notices[0].severity == "error"
    assert first.rings_bell
    assert (again, changed) == (News(), News())


def test_a_severity_that_rises_is_told_once_and_one_that_falls_is_not() -> None:
    medium = raise_to(LEAK, "medium")
    found = follow(
        EMPTY,
        with_findings(medium),
        with_findings(raise_to(LEAK, "high")),
        with_findings(raise_to(LEAK, "medium")),
        with_findings(raise_to(LEAK, "high")),
        with_findings(raise_to(LEAK, "critical")),
    )
    assert [texts(one)[:1] for one in found[1:]] == [
        [f"▲ medium: {LEAK.title}  (3 shows it)"],
        [f"◆ now high: {LEAK.title}  (3 shows it)"],
        [],
        [],
        [f"✖ now critical: {LEAK.title}  (3 shows it)"],
    ]
    assert [one.rings_bell for one in found[1:]] == [False, True, False, False, True]


def test_what_was_open_before_is_one_number_without_a_bell() -> None:
    first, second = follow(with_findings(OOM, LEAK, PRESSURE, FRAGMENTATION), with_findings(OOM, LEAK))
    assert texts(first) == ["✖ 3 open alerts: 1 critical, 1 high, 1 medium  (3 shows them)"]
    assert not first.rings_bell
    assert second == News()
    assert texts(follow(with_findings(LEAK))[0]) == ["◆ 1 open alert: 1 high  (3 shows it)"]
    assert follow(with_findings(FRAGMENTATION, IDLE)) == [News()], "closed, and below the level"


def test_nothing_is_old_news_before_the_first_sample() -> None:
    joining = Snapshot(findings=(LEAK,))
    first, second, third = follow(joining, with_findings(LEAK), with_findings(LEAK, OOM))
    assert first == News()
    assert texts(second) == ["◆ 1 open alert: 1 high  (3 shows it)"]
    assert texts(third) == [f"✖ critical: {OOM.title}  (3 shows it)"]


def test_what_is_muted_or_acknowledged_is_silent() -> None:
    mute = Mute(LEAK.kind, LEAK.node, LEAK.device_uuid, NOON_S)
    seen = Acknowledgement(OOM.id, OOM.kind, OOM.node, OOM.device_uuid, NOON_S)
    state = AlertState((seen,), (mute,))
    _, opened, raised = follow(
        EMPTY,
        with_findings(raise_to(OOM, "high"), LEAK, state=state),
        with_findings(OOM, raise_to(LEAK, "critical"), state=state),
    )
    assert (opened, raised) == (News(), News())
    assert follow(with_findings(OOM, LEAK, state=state)) == [News()]


def test_what_closes_is_not_told() -> None:
    closed = msgspec.structs.replace(LEAK, closed_s=NOON_S)
    assert follow(EMPTY, with_findings(LEAK), with_findings(closed))[2] == News()
    assert follow(EMPTY, with_findings(closed))[1] == News(), "over before anybody saw it"


def test_many_at_once_are_one_notice_and_one_bell() -> None:
    found = follow(EMPTY, with_findings(OOM, LEAK, PRESSURE))[1]
    assert texts(found) == ["✖ 3 new alerts: 1 critical, 1 high, 1 medium  (3 shows them)"]
    assert found.rings_bell


@pytest.mark.parametrize(
    ("settings", "count", "rings"),
    [
        (AlertSettings(toast=False), 0, True),
        (AlertSettings(bell=False), 1, False),
        (AlertSettings(bell_level="critical"), 1, False),
        (AlertSettings(level="critical"), 0, False),
        (AlertSettings(kinds=("oom",)), 0, False),
        (AlertSettings(kinds=("leak",), level="low"), 1, True),
    ],
)
def test_settings_choose_what_is_told_and_how(settings: AlertSettings, count: int, rings: bool) -> None:
    found = follow(EMPTY, with_findings(LEAK), settings=settings)[1]
    assert (len(found.notices), found.rings_bell) == (count, rings)


def test_in_a_small_pane_a_notice_is_short() -> None:
    assert texts(follow(EMPTY, with_findings(LEAK), size=SMALL)[1]) == ["◆ leak GPU 5, high"]
    assert texts(follow(with_findings(LEAK, OOM), size=SMALL)[0]) == ["✖ 2 open alerts"]


def test_in_ascii_the_mark_is_ascii() -> None:
    notices = AlertNotices(AlertSettings(), ASCII)
    notices.take(EMPTY, ROOMY)
    assert texts(notices.take(with_findings(LEAK), ROOMY))[0].startswith("* high: ")


@pytest.mark.parametrize(
    "abilities",
    [
        TerminalAbilities(),
        TerminalAbilities(is_ascii=True, color_depth="16"),
        TerminalAbilities(color_depth="none"),
    ],
    ids=["color", "ascii", "mono"],
)
async def test_the_application_says_it_over_the_screen_and_rings_also_while_paused(
    abilities: TerminalAbilities,
) -> None:
    feed = FakeFeed(EMPTY)
    app = make_app(feed, abilities=abilities)
    rung: list[str] = []
    app.bell = lambda: rung.append("bell")  # type: ignore[method-assign]
    async with app.run_test(size=ROOMY) as pilot:
        await pilot.press("space")
        feed.hand_over(later(with_findings(LEAK), 2))
        await pilot.pause()
        feed.hand_over(later(with_findings(LEAK), 3))
        await pilot.pause()
        assert sum("leaks 20 MiB a step" in text for text in notices(app)) == 1
        assert rung == ["bell"]
        shown = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert "high: GPU 5 (rank 5)" in shown
        if abilities.is_ascii:
            assert shown.isascii()


async def test_settings_silence_the_application() -> None:
    feed = FakeFeed(EMPTY)
    app = make_app(feed, settings=Settings(alerts=AlertSettings(toast=False, bell=False)))
    rung: list[str] = []
    app.bell = lambda: rung.append("bell")  # type: ignore[method-assign]
    async with app.run_test(size=ROOMY) as pilot:
        feed.hand_over(later(with_findings(LEAK, OOM), 2))
        await pilot.pause()
        assert notices(app) == []
    assert rung == []
