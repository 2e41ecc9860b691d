"""The title: the gravest first, at every width."""

import msgspec
import pytest
from textual.app import App, ComposeResult

from tests.tui.canned import make_device, make_devices, make_hub, make_sample, make_snapshot
from tests.tui.canned_ranks import make_job, make_on_processors, make_rank, make_simulated, with_ranks
from vramscope.engine.model import DeviceHardware, WorkerStatus
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.draw.glyphs import UNICODE
from vramscope.tui.frame.theme import default_variables
from vramscope.tui.widgets.title_line import TitleLine
from vramscope.tui.widgets.title_words import Fact


class TitleApp(App[None]):
    """Nothing but a title."""

    glyphs = UNICODE

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return default_variables()

    def compose(self) -> ComposeResult:
        yield TitleLine()


async def title_of(snapshot: Snapshot, width: int = 200, skipped: int = 0) -> str:
    app = TitleApp()
    async with app.run_test(size=(width, 3)) as pilot:
        title = app.query_one(TitleLine)
        title.show(snapshot, frames_skipped=skipped, paused_since_s=None)
        await pilot.pause()
        return title.text


def troubled(**changes: object) -> WorkerStatus:
    return msgspec.structs.replace(make_hub().workers[0], **changes)


def snapshot_with(*workers: WorkerStatus, samples_dropped: int = 0) -> Snapshot:
    return make_snapshot(8, hub=make_hub(workers=workers), samples_dropped=samples_dropped)


async def test_devices_that_have_ended_count_by_themselves() -> None:
    devices, ranks = make_simulated()
    over = [msgspec.structs.replace(device, state="ended") for device in devices[:1]]
    title = await title_of(with_ranks([*over, *devices[1:]], ranks))
    left = len(devices) - 1
    assert f" {left} simulated GPU{'s' * (left > 1)}, 1 ended " in title


async def test_trouble_comes_before_cost_and_cost_before_skipped_updates() -> None:
    failed = troubled(name="plugins", state="failed")
    restarted = troubled(restarts=2, samples_dropped=1)
    title = await title_of(snapshot_with(restarted, failed, samples_dropped=1234), 300, skipped=12)
    facts = title.removesuffix("12:00:01").strip().split(" · ")
    assert facts == [
        "vramscope  node03",
        "8 GPUs",
        "worker plugins failed",
        "worker analyzers restarted 2×",
        "worker analyzers missed 1 sample",
        "1,234 samples dropped",
        "agent up 12 h 00 m, 0.2 % CPU",
        "screen behind: 12 updates skipped",
    ]


async def test_eighty_columns_keep_the_trouble() -> None:
    title = await title_of(snapshot_with(troubled(restarts=2), samples_dropped=1234), 80, skipped=12)
    assert "restarted 2×" in title
    assert "1,234 samples dropped" in title
    assert "skipped" not in title


@pytest.mark.parametrize("state", ["failed", "restarting"])
async def test_a_worker_in_trouble_is_told_at_eighty_columns(state: str) -> None:
    title = await title_of(snapshot_with(troubled(state=state)), 80)
    assert f"worker {state}" in title
    assert "0.2 % CPU" in title


async def test_a_worker_that_missed_nothing_is_not_mentioned() -> None:
    assert "missed" not in await title_of(snapshot_with(troubled()))
    assert "worker analyzers missed 5 samples" in await title_of(snapshot_with(troubled(samples_dropped=5)))


@pytest.mark.parametrize(("dropped", "words"), [(1, "1 sample dropped"), (2, "2 samples dropped")])
async def test_dropped_samples_are_counted(dropped: int, words: str) -> None:
    assert words in await title_of(make_snapshot(8, samples_dropped=dropped))


async def test_a_few_skipped_updates_are_nobody_s_trouble() -> None:
    assert "behind" not in await title_of(make_snapshot(8), skipped=4)
    assert "screen behind: 5 updates skipped" in await title_of(make_snapshot(8), skipped=5)


async def test_a_lost_hub_comes_before_everything_and_its_old_figures_go() -> None:
    title = await title_of(make_snapshot(8, connection="lost", silent_s=7.0))
    assert title.startswith("vramscope  node03 · agent lost · 8 GPUs")
    assert "CPU" not in title


async def test_an_ended_recording_says_so_beside_its_time() -> None:
    sample = msgspec.structs.replace(make_sample(make_devices(2)), clock="trace", time_s=15.9, is_last=True)
    for width in (40, 80, 200):
        assert (await title_of(make_snapshot(sample=sample), width)).endswith("t 15.9 s · ended")
    going_on = msgspec.structs.replace(sample, is_last=False)
    assert "ended" not in await title_of(make_snapshot(sample=going_on))


@pytest.mark.parametrize("width", [1, 2, 10, 20, 30, 40, 60])
async def test_the_node_s_name_outlives_everything_else(width: int) -> None:
    title = await title_of(snapshot_with(troubled(restarts=2), samples_dropped=3), width)
    assert "node03"[: max(0, width - 12)] in title


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (with_ranks(*make_job(8)), "8 GPUs · job gpt-30b (8 ranks, tp2 pp4) · agent"),
        (with_ranks(make_job(8)[0], make_job(8)[1][:4]), "job gpt-30b (4 of 8 ranks) · agent"),
        (with_ranks(*make_simulated()), "2 simulated GPUs · job tiny (2 ranks, dp2) · agent"),
        (with_ranks(*make_on_processors()), "CPU · 1 rank · agent"),
        (with_ranks(make_job(2)[0], [make_rank(0), make_rank(1, job="other")]), "2 jobs (2 of 8 ranks)"),
        (with_ranks(make_job(1)[0], [make_rank(0, state="ended")]), "job gpt-30b ended · agent"),
    ],
)
async def test_the_job_is_named_with_its_ranks(snapshot: Snapshot, words: str) -> None:
    assert words in await title_of(snapshot)


async def test_a_narrow_title_keeps_the_job_without_its_degrees() -> None:
    assert "job gpt-30b (8 ranks) " in await title_of(with_ranks(*make_job(8)), 64)


@pytest.mark.parametrize(
    ("width", "beginning"),
    [
        (200, "vramscope  node03 · ● REC 1 h 05 m 12.0 MiB · 8 GPUs · "),
        (48, "vramscope  node03 · ● REC · 8 GPUs  "),
        (40, "vramscope  node03 · ● REC  "),
        (28, "vramscope  node03"),
    ],
)
async def test_a_recording_is_told_right_after_the_node(width: int, beginning: str) -> None:
    app = TitleApp()
    async with app.run_test(size=(width, 3)) as pilot:
        title = app.query_one(TitleLine)
        title.show(make_snapshot(8), frames_skipped=0, paused_since_s=None)
        title.show_recording(Fact("● REC 1 h 05 m 12.0 MiB", "● REC", "high"))
        await pilot.pause()
        assert title.text.startswith(beginning)
        assert title.text.endswith("12:00:01")
        title.show_recording(None)
        await pilot.pause()
        assert "REC" not in title.text


async def test_the_versions_of_driver_and_cuda_are_last_where_there_is_room_and_all_have_the_same() -> None:
    hardware = [DeviceHardware(driver_version="580.95.05", cuda_version="13.0")] * 2
    devices = [msgspec.structs.replace(make_device(n), hardware=it) for n, it in enumerate(hardware)]
    title = await title_of(make_snapshot(sample=make_sample(tuple(devices))), 140)
    assert " · driver 580.95.05, CUDA 13.0 " in title
    assert "driver" not in await title_of(make_snapshot(sample=make_sample(tuple(devices))), 99)
    devices[1] = msgspec.structs.replace(devices[1], hardware=DeviceHardware(driver_version="570.1"))
    assert "driver" not in await title_of(make_snapshot(sample=make_sample(tuple(devices))), 140)
