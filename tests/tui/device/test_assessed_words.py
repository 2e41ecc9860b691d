"""What the screens say of forecasts, in words: the time that is left, the leak, the figures behind them."""

import re

import msgspec
import pytest

from tests.tui.assessed_cases import CASES, make_assessment, snapshot_leaking
from tests.tui.canned import NOON_S, FakeFeed, make_app
from tests.tui.canned_ranks import history_of, make_job, make_simulated, with_ranks
from tests.tui.looks import shown_text
from vramscope.analyzers.finding_words import describe_leak
from vramscope.analyzers.findings.evidence import GROWN, ONSET_STEP, RATE, RATE_PER_STEP
from vramscope.analyzers.verdict import find_headroom
from vramscope.engine.model import Assessment, Evidence, Finding, ModelStateReading
from vramscope.engine.units import GIB, MIB
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.device.page import draw_model
from vramscope.tui.device.sections import choose_assessment, draw_forecast
from vramscope.tui.draw.glyphs import ASCII, UNICODE
from vramscope.tui.draw.spans import line_text
from vramscope.tui.live.device_picture import DevicePicture
from vramscope.tui.live.process_table import ProcessTable


def _draw(snapshot: Snapshot, width: int, height: int) -> list[str]:
    history = history_of(snapshot)
    return [line_text(line) for line in DevicePicture(UNICODE).draw(snapshot, history, width, height)]


@pytest.mark.parametrize(
    ("width", "height", "told"),
    [
        (40, 8, ("5 ", "✖ 1m16s", "rank 5")),
        (80, 16, ("✖ 1m16s", "leak +20 MiB/step")),
        (120, 16, ("✖ 1m16s", "leak +20 MiB/step since step 1,310 (10.4 GiB)")),
        (200, 32, ("✖ critical: OOM in 1 m 16 s", "(10.4 GiB)   train.py:212", "step 1,842")),
    ],
)
def test_a_device_at_risk_says_how_long_it_has_and_what_leaks(
    width: int, height: int, told: tuple[str, ...]
) -> None:
    lines = _draw(snapshot_leaking(), width, height)
    text = "\n".join(line for line in lines)
    assert all(words in text for words in told), text
    (gauge,) = [line for line in lines if re.search(r"[█▆░▁▒▃]✖", line)]
    assert text.count("✖") == 2, "the risk, and the level of the gauge"
    assert "81 %" in gauge
    assert text.count("·") >= 7


@pytest.mark.parametrize("width", range(20, 201, 7))
@pytest.mark.parametrize("height", [4, 8, 16, 24, 40])
def test_every_size_keeps_its_width_and_never_hides_the_device_at_risk(width: int, height: int) -> None:
    lines = _draw(snapshot_leaking(), width, height)
    assert len(lines) <= height
    assert {len(line) for line in lines} == {width}
    assert "✖" in "".join(lines)


def test_the_time_that_is_left_goes_down_with_the_clock() -> None:
    snapshot = snapshot_leaking()
    assert snapshot.sample is not None
    later = msgspec.structs.replace(snapshot.sample, time_s=snapshot.sample.time_s + 20)
    assert "✖ 56s" in "\n".join(_draw(msgspec.structs.replace(snapshot, sample=later), 40, 8))
    long_after = msgspec.structs.replace(snapshot.sample, time_s=snapshot.sample.time_s + 600)
    assert "✖ 0s" in "\n".join(_draw(msgspec.structs.replace(snapshot, sample=long_after), 40, 8))


def test_a_time_that_is_less_likely_than_not_is_in_a_sentence_with_may_and_counts_nothing_down() -> None:
    snapshot = snapshot_leaking()
    words = [
        msgspec.structs.replace(it, level="medium", confidence=0.34) if it.oom_in_s is not None else it
        for it in snapshot.assessments
    ]
    oom, _ = snapshot.findings
    title = (
        "GPU 5 (rank 5) may run out of memory in 1 m 16 s (65-90 s, 34 %): live tensors grow by 20 MiB a step"
    )
    doubted = msgspec.structs.replace(oom, severity="medium", title=title)
    snapshot = msgspec.structs.replace(snapshot, assessments=tuple(words), findings=(doubted,))
    text = "\n".join(_draw(snapshot, 200, 32))
    assert "▲ medium: may run out of memory in 1 m 16 s (65-90 s, 34 %)" in text
    assert "OOM in" not in text
    assert "1m16s" not in "\n".join(_draw(snapshot, 80, 16))


@pytest.mark.parametrize(("passed_s", "left"), [(0, "1 m 16 s"), (7, "1 m 09 s"), (20, "56 s")])
async def test_all_of_a_screen_names_one_time_of_the_error(passed_s: int, left: str) -> None:
    snapshot = snapshot_leaking()
    assert snapshot.sample is not None
    later = msgspec.structs.replace(snapshot.sample, time_s=snapshot.sample.time_s + passed_s)
    app = make_app(FakeFeed(msgspec.structs.replace(snapshot, sample=later)))
    async with app.run_test(size=(200, 50)) as pilot:
        for key, least in (("1", 2), ("2", 1), ("3", 3)):
            await pilot.press(key)
            await pilot.pause()
            times = re.findall(r"(?:OOM|out of memory) in ((?:\d+ m )?\d+ s)", shown_text(app))
            assert len(times) >= least, key
            assert set(times) == {left}, key


def test_a_leak_is_told_by_the_figures_that_its_finding_has() -> None:
    def leak(*evidence: Evidence) -> Finding:
        return Finding("l", "leak", "n", "GPU-0", "0", "high", "t", 1.0, 2.0, evidence=evidence)

    grown, onset = GROWN(3 * GIB), ONSET_STEP(40)
    by_step, by_time = RATE_PER_STEP(5 * MIB), RATE(MIB / 60)
    cases = {
        "leak +5 MiB/step since step 40 (3.0 GiB)": leak(by_time, by_step, grown, onset),
        "leak +1 MiB/min (3.0 GiB)": leak(by_time, RATE_PER_STEP(None), grown),
        "leak": leak(),
    }
    for text, finding in cases.items():
        found = describe_leak([finding], "GPU-0")
        assert found is not None
        assert (found.text, found.place) == (text, None)
    closed = msgspec.structs.replace(leak(grown), closed_s=3.0)
    assert describe_leak([closed], "GPU-0") is None
    assert describe_leak([leak(grown)], "GPU-1") is None


def _forecast(case: str, rank: int, width: int = 120) -> str:
    snapshot = CASES[case][0]()
    assert snapshot.sample is not None
    device, process = snapshot.sample.devices[rank], snapshot.sample.ranks[rank]
    found = choose_assessment(device, process, snapshot.assessments)
    lines = draw_forecast(found, snapshot.sample.time_s, width, UNICODE)
    assert all(len(line_text(line)) <= width for line in lines)
    return " ".join(" ".join(line_text(line).split()) for line in lines)


def test_the_page_of_a_device_gives_the_figures_behind_the_risk() -> None:
    text = _forecast("leaking", 5)
    for words in (
        "✖ OOM risk critical: floors rise by 20 MiB a step (watched for 812 steps)",
        "capacity for tensors 77.3 GiB floor at step ends 75.2 GiB peak 75.9 GiB headroom at peak 1.4 GiB",
        "growth +20 MiB/step, +1.2 GiB/min",
        "time to out of memory 1 m 16 s (1 m 05 s to 1 m 30 s)",
        "P(OOM) within 10 min 93 %",
        "P(OOM) within 200 steps 97 %",
    ):
        assert words in text


def test_the_floor_of_samples_without_steps_is_not_said_to_be_of_step_ends() -> None:
    found = Assessment(
        "n", None, "GPU-0", 1.0, "low", "steady below the limit", floor_bytes=70 * GIB, watched_s=90.0
    )
    text = " ".join(" ".join(line_text(line).split()) for line in draw_forecast(found, 1.0, 120, UNICODE))
    assert "floor 70.0 GiB" in text
    assert "step" not in text.replace("steady", "")


def test_floor_and_headroom_on_the_page_are_those_of_the_last_step() -> None:
    snapshot = snapshot_leaking()
    assert snapshot.sample is not None
    device, process = snapshot.sample.devices[5], snapshot.sample.ranks[5]
    found = choose_assessment(device, process, snapshot.assessments)
    assert found is not None
    assert found.capacity_bytes is not None
    higher = msgspec.structs.replace(
        process, peak_max_bytes=found.capacity_bytes - GIB, floor_min_bytes=76 * GIB
    )
    lines = draw_forecast(found, snapshot.sample.time_s, 120, UNICODE, higher)
    text = " ".join(" ".join(line_text(line).split()) for line in lines)
    assert "floor at step ends 76.0 GiB" in text
    assert "headroom at peak 1.0 GiB" in text
    assert find_headroom(device, snapshot.assessments, [higher]) == GIB


def test_what_is_calm_is_said_to_be_and_what_is_unknown_stays_a_dash() -> None:
    calm = _forecast("calm", 0)
    assert "growth none time to out of memory not expected P(OOM) within 10 min below 1 %" in calm
    doubtful = _forecast("doubtful", 0)
    assert "capacity for tensors — floor at step ends — peak — headroom at peak — growth —" in doubtful
    assert "time to out of memory — P(OOM) —" in doubtful
    assert "0" not in doubtful


def test_one_probability_is_said_where_an_error_is_forecast() -> None:
    (rank,) = make_job(1)[1]

    def draw(**changes: object) -> str:
        lines = draw_forecast(make_assessment(rank, **changes), NOON_S + 1, 120, UNICODE)
        return " ".join(line_text(line) for line in lines)

    assert "97 % sure" in draw()
    forecast = draw(oom_in_s=33.0, oom_in_low_s=20.0, oom_in_high_s=50.0, confidence=0.75, probability=0.25)
    assert "25 %" in forecast
    assert "sure" not in forecast


@pytest.mark.parametrize("width", [20, 38, 60, 78])
def test_narrow_pages_break_between_figures(width: int) -> None:
    snapshot = snapshot_leaking()
    lines = draw_forecast(snapshot.assessments[5], NOON_S + 1, width, ASCII)
    text = " ".join(" ".join(line_text(line).split()) for line in lines)
    assert "capacity for tensors 77.3 GiB" in text
    assert "P(OOM) within 200 steps 97 %" in text


def test_another_process_is_not_spoken_of() -> None:
    devices, ranks = make_job(2)
    known = [make_assessment(ranks[0])]
    assert choose_assessment(devices[0], ranks[0], known) is known[0]
    assert choose_assessment(devices[1], ranks[1], known) is None
    assert draw_forecast(None, NOON_S, 80, UNICODE) == []


def test_what_is_kept_from_step_to_step_is_no_activation() -> None:
    _, ranks = make_job(1)
    step = ranks[0].step
    assert step is not None
    leaking = msgspec.structs.replace(
        ranks[0],
        step=msgspec.structs.replace(step, floor_bytes=42 * GIB, peak_bytes=50 * GIB),
        model_state=ModelStateReading(12 * GIB, 6 * GIB, 18 * GIB),
    )
    text = line_text(draw_model(leaking, 200, UNICODE)[0])
    assert "kept from step to step 6.0" in text
    assert "activations 8.0" in text
    assert "kept" not in line_text(draw_model(ranks[0], 200, UNICODE)[0])


@pytest.mark.parametrize(
    ("ranks", "gpus", "told"), [(1, 1, None), (1, 2, "next device"), (2, 1, "next rank")]
)
async def test_the_key_line_says_where_tab_leads(ranks: int, gpus: int, told: str | None) -> None:
    devices, processes = make_job(2)
    if ranks == 2:
        processes[1] = msgspec.structs.replace(processes[1], device_uuid=devices[0].uuid)
    snapshot = with_ranks(devices[:gpus], processes[:ranks])
    app = make_app(FakeFeed(snapshot))
    async with app.run_test(size=(160, 40)) as pilot:
        await pilot.press("2")
        await pilot.pause()
        await pilot.pause()
        keys = app.screen.query_one("KeyLine").text  # type: ignore[attr-defined] # a KeyLine
        assert ("Tab" in keys) == (told is not None)
        assert told is None or f"Tab {told}" in keys


def test_no_driver_is_called_upon_where_there_is_none() -> None:
    devices, _ = make_simulated(1)
    real, _ = make_job(1)
    table = ProcessTable()
    told = []
    for device in (devices[0], real[0]):
        table.show([msgspec.structs.replace(device, processes=())])
        told.append("driver" in table._explain_absence())
    assert told == [False, True]
