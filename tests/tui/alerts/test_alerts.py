"""The alerts screen: what it lists, and how one gets in and out."""

from collections.abc import Iterator
from typing import Literal

import msgspec
import pytest
from textual.geometry import Region

from tests.tui.alert_looks import lines, on_alerts, selected
from tests.tui.canned import FakeFeed, make_app, make_hub, make_sample, make_snapshot
from tests.tui.canned_alerts import ALERTS, FRAGMENTATION, IDLE, LEAK, OOM, PRESSURE, make_alerts
from tests.tui.device_looks import later, on_device
from tests.tui.looks import notices, shown_screen, shown_text
from vramscope.engine.alerts.state import AlertState
from vramscope.engine.model import DeviceSample, WorkerStatus
from vramscope.tui.alerts.screen import NOTHING_FOUND, AlertHeading, AlertsScreen
from vramscope.tui.app import VramscopeApp
from vramscope.tui.device.screen import DeviceScreen
from vramscope.tui.live.screen import AlertLine, LiveScreen
from vramscope.tui.screens.terminal_app import PaletteCommands
from vramscope.tui.terminal.abilities import TerminalAbilities

SIZES = [(80, 24), (120, 32), (200, 50), (40, 10)]


async def test_every_finding_is_listed_the_open_ones_first_with_its_state_in_words() -> None:
    app = make_app(FakeFeed(make_alerts()))
    async with app.run_test(size=(120, 24)) as pilot:
        await pilot.press("3")
        await pilot.pause()
        shown = [" ".join(line.lstrip("▌").split()) for line in lines(app)]
        assert shown[:5] == [
            "✖ critical 11:58:42 open 1 m GPU 5 (rank 5) out of memory in 1 m 15 s (65–90 s, 93 %)",
            "▲ medium 11:55:00 acknowledged 5 m GPU 10 has 3.2 of 79.6 GiB left (4 %)",
            "◆ high 11:51:52 open 8 m GPU 5 (rank 5) leaks 20 MiB a step since step 1,310: "
            "tensors kept by eval() …",
            "· low 07 Oct muted until 12:50 GPU 3 has held 40.0 GiB idle for 12 m",
            "▲ medium 11:20:11 closed 11:24:50 GPU 2 holds 3.1 GiB that its own requests cannot use",
        ]
        heading = app.screen.query_one(AlertHeading).text
        assert heading.startswith("Alerts  2 open  ✖ 1 critical  ◆ 1 high  1 acknowledged  1 muted  1 closed")
        assert heading.endswith("by time")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_ascii", [False, True])
async def test_at_every_size_list_whole_and_dialog_are_drawn(size: tuple[int, int], is_ascii: bool) -> None:
    abilities = TerminalAbilities(is_ascii=True, color_depth="16") if is_ascii else TerminalAbilities()
    app = make_app(FakeFeed(make_alerts()), abilities=abilities)
    async with app.run_test(size=size) as pilot:
        for keys in (("3",), ("j", "enter"), ("escape", "m"), ("escape", "s"), ("escape", "slash", "x")):
            await pilot.press(*keys)
            await pilot.pause()
            strips = app.screen._compositor.render_strips()
            assert [strip.cell_length for strip in strips] == [size[0]] * size[1]
            if is_ascii:
                assert all(strip.text.isascii() for strip in strips)


async def test_a_sliver_still_tells_severity_state_device_and_kind() -> None:
    app = make_app(FakeFeed(make_alerts()))
    async with app.run_test(size=(40, 10)) as pilot:
        await pilot.press("3", "down", "down")
        await pilot.pause()
        assert "▌◆ high     11:51  open   GPU 5 leak" in [line.strip() for line in lines(app)]
        assert "▲ medium   11:55  seen   GPU 10 pressure"[:38] in lines(app)[1]


async def test_enter_shows_the_whole_of_a_finding_and_escape_leads_out_step_by_step() -> None:
    app = make_app(FakeFeed(make_alerts()))
    async with app.run_test(size=(100, 40)) as pilot:
        await pilot.press("3", "j", "j", "enter")
        await pilot.pause()
        assert not on_alerts(app).list.display
        text = shown_text(app)
        for told in (
            "◆ GPU 5 (rank 5) leaks 20 MiB a step since step 1,310: tensors kept by eval() at train.py:212",
            "high · leak · GPU 5 · node03 · opened 11:51:52, open for 8 m 09 s",
            "What to do Detach what `losses.append(loss)` keeps",
            "Evidence 9 values: e shows them Step floors that rise",
            "What happened 11:51:52 opened, medium: GPU 5 (rank 5) leaks 18 MiB a step 11:58:00 raised to",
        ):
            assert told in text, told
        assert "growth rate" not in text
        await pilot.press("right")
        await pilot.pause()
        assert "muted on this device until 12:50:00 (u undoes this)" in shown_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert on_alerts(app).list.display
        assert selected(app) == "idle_held"
        await pilot.press("escape")
        await pilot.pause()
        assert shown_screen(app) is LiveScreen


async def test_e_unfolds_the_evidence_below_the_sentence_that_it_comes_to() -> None:
    app = make_app(FakeFeed(make_alerts()))
    async with app.run_test(size=(100, 40)) as pilot:
        await pilot.press("3", "j", "j", "enter", "e")
        await pilot.pause()
        text = shown_text(app)
        for told in (
            "e hides them Step floors that rise",
            "growth rate 18 MiB/s",
            "grown 10.4 GiB",
            "since step 1,310",
            "onset 11:50:00",
            "watched for 1 h 02 m",
            "time left —",
        ):
            assert told in text, told
        assert text.index("Step floors") < text.index("growth rate")
        await pilot.press("escape", "e")
        await pilot.pause()
        assert "growth rate" not in shown_text(app)


async def test_a_high_screen_shows_the_selected_finding_below_the_list() -> None:
    app = make_app(FakeFeed(make_alerts()))
    async with app.run_test(size=(120, 50)) as pilot:
        await pilot.press("3", "down", "down", "e")
        await pilot.pause()
        assert on_alerts(app).list.display
        assert "growth rate 18 MiB/s" in shown_text(app)
        await pilot.press("tab")
        await pilot.pause()
        assert "growth rate" not in shown_text(app)
        await pilot.press("shift+tab")
        await pilot.pause()
        assert "growth rate" in shown_text(app)


async def test_the_selection_stays_with_the_finding_while_others_come() -> None:
    feed = FakeFeed(make_alerts(findings=(LEAK, IDLE)))
    app = make_app(feed)
    async with app.run_test(size=(120, 24)) as pilot:
        await pilot.press("3", "down", "up")
        await pilot.pause()
        assert selected(app) == "leak"
        feed.hand_over(later(make_alerts(findings=(OOM, PRESSURE, LEAK, IDLE)), 2))
        await pilot.pause()
        assert selected(app) == "leak"


async def test_a_tick_repaints_only_the_rows_that_change() -> None:
    feed = FakeFeed(make_alerts())
    app = make_app(feed)
    async with app.run_test(size=(120, 24)) as pilot:
        await pilot.press("3")
        await pilot.pause()
        painted: list[Region] = []
        listed = on_alerts(app).list
        listed.repaint = lambda *regions: painted.extend(regions)  # type: ignore[method-assign]
        feed.hand_over(later(make_alerts(), 2))
        await pilot.pause()
        # The time that is left counts down, as in the verdict.
        assert [(region.y, region.height) for region in painted] == [(0, 1)]
        painted.clear()
        changed = msgspec.structs.replace(LEAK, title="GPU 5 leaks 30 MiB a step")
        feed.hand_over(later(make_alerts(findings=(OOM, PRESSURE, changed, IDLE, FRAGMENTATION)), 3))
        await pilot.pause()
        assert sorted({(region.y, region.height) for region in painted}) == [(0, 1), (2, 1)]


async def test_nothing_found_says_what_would_stand_here() -> None:
    worker = WorkerStatus("analyzers", 7, "running", analyzers=("leak", "oom_met"))
    app = make_app(FakeFeed(make_snapshot(hub=make_hub(workers=(worker,)))))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("3")
        await pilot.pause()
        assert NOTHING_FOUND in shown_text(app)
        assert "Analyzers running: leak, oom met." in shown_text(app)
        await pilot.press("enter", "a", "m", "j")
        assert shown_screen(app) is AlertsScreen
        assert notices(app)[-1] == "No alert is selected."


async def test_without_analyzers_the_reason_is_told() -> None:
    worker = WorkerStatus("analyzers", None, "failed", reason="no module named leak")
    app = make_app(FakeFeed(make_snapshot(hub=make_hub(workers=(worker,)))))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("3")
        await pilot.pause()
        assert "No analyzer is running: no module named leak." in shown_text(app)


async def test_two_leads_to_the_device_of_the_finding_and_three_back() -> None:
    app = make_app(FakeFeed(make_alerts()))
    async with app.run_test(size=(120, 44)) as pilot:
        await pilot.press("3", "home", "2")
        await pilot.pause()
        assert on_device(app).uuid == "GPU-0005"
        await pilot.press("3", "escape")
        await pilot.pause()
        assert shown_screen(app) is DeviceScreen, "it goes back to where it came from"
        await pilot.press("3", "1")
        await pilot.pause()
        assert shown_screen(app) is LiveScreen
        await pilot.press("3", "question_mark", "1", "2")
        await pilot.pause()
        assert shown_screen(app) is DeviceScreen


async def test_the_live_view_below_is_of_now_when_one_comes_back() -> None:
    feed = FakeFeed(make_alerts())
    app = make_app(feed)
    async with app.run_test(size=(120, 44)) as pilot:
        await pilot.press("3")
        feed.hand_over(later(make_alerts(), 9))
        await pilot.pause()
        await pilot.press("escape")
        await pilot.pause()
        assert app.live.snapshot.sample is not None
        assert app.live.snapshot.sample.seq == 9


async def test_pausing_freezes_the_alerts_too() -> None:
    feed = FakeFeed(make_alerts(findings=(LEAK,)))
    app = make_app(feed)
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.press("3", "space")
        feed.hand_over(later(make_alerts(), 2))
        await pilot.pause()
        assert len(on_alerts(app).list._rows) == 1
        app.clear_notifications()  # they have the title
        await pilot.pause()
        assert "paused since" in shown_text(app)
        await pilot.press("space")
        await pilot.pause()
        assert len(on_alerts(app).list._rows) == 5


async def test_the_palette_and_the_help_have_the_alerts() -> None:
    app = make_app(FakeFeed(make_alerts()))
    async with app.run_test(size=(120, 60)) as pilot:
        assert "view: alerts" in set(_names(app))
        await pilot.press("3")
        await pilot.pause()
        names = set(_names(app))
        assert {"alerts: acknowledge", "alerts: mute", "alerts: undo", "alerts: filter"} <= names
        assert {"sort: severity", "sort: device"} <= names
        await pilot.press("question_mark")
        await pilot.pause()
        assert "Mute this kind of alert on this device" in shown_text(app)


def _names(app: VramscopeApp) -> Iterator[str]:
    for entry in PaletteCommands(app.screen)._entries():
        yield entry.name


async def test_the_line_of_the_live_view_leaves_out_what_is_muted_and_says_how_much() -> None:
    app = make_app(FakeFeed(make_alerts()))
    async with app.run_test(size=(200, 40)):
        text = app.live.query_one(AlertLine).text
        assert text.startswith("Alerts  1 muted   11:58:42 ✖ out of memory ahead GPU 5, critical")
        assert "pressure GPU 10, medium, acknowledged" in text
        assert "idle" not in text


async def test_when_all_are_muted_the_line_says_so() -> None:
    mutes = AlertState(mutes=(msgspec.structs.replace(ALERTS.mutes[0], until_s=None),))
    app = make_app(FakeFeed(make_alerts(findings=(IDLE,), alerts=mutes)))
    async with app.run_test(size=(120, 40)):
        assert app.live.query_one(AlertLine).text == "Alerts  1 muted   none"


async def test_trouble_with_hooks_is_told_where_there_is_room() -> None:
    app = make_app(FakeFeed(make_alerts()))
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.press("3")
        await pilot.pause()
        assert "answered 500 Internal Server Error, twice (1 delivered, 2 failed" in shown_text(app)
        await pilot.resize_terminal(40, 10)
        await pilot.pause()
        assert "webhook" not in shown_text(app)


@pytest.mark.parametrize(("kind", "name"), [("trace", "rank 3"), ("gpu", "GPU 3")])
async def test_findings_of_a_recording_name_its_ranks_or_gpus_and_seconds(
    kind: Literal["trace", "gpu"], name: str
) -> None:
    finding = msgspec.structs.replace(
        LEAK, opened_s=12.5, updated_s=14.0, device="3", device_uuid="3", evidence=()
    )
    device = DeviceSample("3", 3, kind=kind)
    sample = msgspec.structs.replace(make_sample((device,), 1), time_s=20.0, clock="trace")
    app = make_app(FakeFeed(make_snapshot(sample=sample, findings=(finding,))))
    async with app.run_test(size=(80, 24)) as pilot:
        assert f"leak {name}, " in app.live.query_one(AlertLine).text
        await pilot.press("3", "enter")
        await pilot.pause()
        assert f"leak · {name} · node03" in shown_text(app)
        assert "opened t 12.5 s, open for 7 s" in shown_text(app)
