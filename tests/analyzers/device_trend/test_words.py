"""What a person reads of the trend of used memory: on a line, in the verdict, ever shorter, never an OOM."""

import msgspec
import pytest

from vramscope.analyzers.trend_words import word_trend
from vramscope.analyzers.verdict import summarize
from vramscope.engine.model import Assessment, DeviceTrend, ProcessReading, RankSample, Sample, TrendWord
from vramscope.engine.model.finding import bring_forward
from vramscope.engine.units import GIB

from ..samples import device, finding, sample

PER_MIN = GIB / 60
FILLING = DeviceTrend(
    "filling", 10.0, -230.0, 28 * GIB, 7.2 * PER_MIN, 6.9 * PER_MIN, 7.5 * PER_MIN, 150.0, 120.0, 180.0
)
WIDE = 500


def assess(index: int, trend: DeviceTrend | None) -> Assessment:
    return Assessment(
        node="node03",
        device_uuid=f"GPU-{index}",
        device=str(index),
        time_s=10.0,
        level="unknown",
        reason="no allocator data",
        memory_source="device",
        device_trend=trend,
    )


def busy(*used_gib: float) -> Sample:
    """Return devices with a process each."""
    process = (ProcessReading(pid=4711),)
    devices = [
        msgspec.structs.replace(device(gib, index=at), processes=process) for at, gib in enumerate(used_gib)
    ]
    return sample(*devices, time_s=10.0)


def test_a_fill_says_its_pace_since_when_and_when_it_is_full_if_it_goes_on_ever_shorter() -> None:
    assert word_trend(FILLING, 10.0) == (
        "filling, +7.2 GiB/min for 4 min, full in 2–3 min if that goes on (device memory only, may be cache)",
        "filling, +7.2 GiB/min, full in 2–3 min if that goes on (device memory only, may be cache)",
        "filling, +7.2 GiB/min, full in 2–3 min if that goes on",
        "filling, full in 2–3 min if that goes on",
        "filling, full in 2–3 min",
        "filling",
    )


def test_the_time_until_it_is_full_counts_down_between_two_assessments() -> None:
    assert word_trend(FILLING, 105.0)[4] == "filling, full in 25–85 s"
    assert word_trend(bring_forward(FILLING, 105.0), 105.0)[4] == "filling, full in 25–85 s"
    assert word_trend(FILLING, 900.0)[4] == "filling, full in under 1 s"


@pytest.mark.parametrize(
    ("left_s", "words"),
    [
        (40.0, "full in 32–48 s"),
        (89.0, "full in 1–2 min"),
        (2500.0, "full in 33–50 min"),
        (5000.0, "full in 1–2 h"),
        (10_000.0, "full in 2–3 h"),
        (200_000.0, "full in 2–3 d"),
    ],
)
def test_times_have_the_unit_that_suits_them(left_s: float, words: str) -> None:
    trend = msgspec.structs.replace(
        FILLING, full_in_s=left_s, full_in_low_s=0.8 * left_s, full_in_high_s=1.2 * left_s
    )
    assert word_trend(trend, 10.0)[4] == f"filling, {words}"


def test_growth_that_may_end_says_its_pace_and_no_time() -> None:
    rising = msgspec.structs.replace(
        FILLING, word="rising", rate_bytes_per_s=200 * 1024.0, full_in_s=None, full_in_low_s=None
    )
    assert word_trend(rising, 10.0) == ("rising, +12 MiB/min for 4 min", "rising, +12 MiB/min", "rising")


@pytest.mark.parametrize("word", ["steady", "rising", "filling", "full"])
def test_no_word_claims_that_memory_runs_out(word: TrendWord) -> None:
    for form in word_trend(msgspec.structs.replace(FILLING, word=word), 10.0):
        assert "oom" not in form.lower()
        assert "out of memory" not in form
        assert "error" not in form


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (
            WIDE,
            "OOM risk unknown without a probe: press a to attach · GPU 1 filling, +7.2 GiB/min for 4 min, "
            "full in 2–3 min if that goes on (device memory only, may be cache)",
        ),
        (
            118,
            "OOM risk unknown without a probe: press a to attach · "
            "GPU 1 filling, +7.2 GiB/min, full in 2–3 min if that goes on",
        ),
        (78, "OOM risk unknown: press a · GPU 1 filling, full in 2–3 min if that goes on"),
        (38, "risk unknown: press a · GPU 1 filling"),
        (26, "OOM risk ? · GPU 1 filling"),
    ],
)
def test_the_verdict_says_unknown_once_with_the_key_that_changes_it_and_what_fills(
    width: int, text: str
) -> None:
    known = (assess(0, None), assess(1, FILLING))
    verdict = summarize(busy(60, 52), (), assessments=known, remedy="key")
    assert verdict.level == "unknown"
    assert verdict.text(width) == text


def test_the_device_that_is_full_first_is_named_and_the_others_are_counted() -> None:
    later = msgspec.structs.replace(FILLING, full_in_s=900.0, full_in_low_s=800.0, full_in_high_s=1000.0)
    known = (assess(0, later), assess(1, FILLING), assess(2, later))
    text = summarize(busy(60, 52, 40), (), assessments=known, remedy="command").text(WIDE)
    assert text.startswith("OOM risk unknown without a probe: vramscope attach PID adds it · GPU 1 filling, ")
    assert text.endswith(" · 2 more filling")


def test_a_full_device_goes_first_and_the_key_after_it() -> None:
    full = finding("pressure", "high", uuid="GPU-0")
    known = (assess(0, None), assess(1, None))
    verdict = summarize(busy(79, 52), (full,), assessments=known, remedy="key")
    assert verdict.text(WIDE).endswith(" · OOM risk unknown without a probe: press a to attach")
    assert verdict.text(WIDE).count("unknown") == 1
    assert "unknown" not in summarize(busy(79, 52), (full,), assessments=known).text(WIDE)
    reported = msgspec.structs.replace(busy(79, 52), ranks=(RankSample(4711, 1.0, device_uuid="GPU-0"),))
    assert "unknown" not in summarize(reported, (full,), assessments=known, remedy="key").text(WIDE)


@pytest.mark.parametrize("kind", ["oom", "leak", "idle_held"])
def test_what_is_found_about_a_process_is_not_called_unknown_again(kind: str) -> None:
    found = finding(kind, "high", uuid="GPU-0")
    text = summarize(busy(60), (found,), assessments=(assess(0, None),), remedy="key").text(WIDE)
    assert "unknown" not in text


@pytest.mark.parametrize("trend", [DeviceTrend("steady", 10.0, 0.0), FILLING])
@pytest.mark.parametrize(("width", "least"), [(100, "GPU 0 "), (80, "GPU 0 "), (60, "GPU 0 ")])
def test_words_on_the_device_are_dropped_before_the_command_that_adds_a_probe(
    trend: DeviceTrend, width: int, least: str
) -> None:
    verdict = summarize(busy(60), (), assessments=(assess(0, trend),), remedy="command")
    text = verdict.text(width)
    assert "unknown: vramscope attach PID" in text
    assert least in text
    assert len(text) <= width


def test_without_a_process_there_is_nothing_to_attach_to() -> None:
    text = summarize(sample(device(1)), (), assessments=(assess(0, None),), remedy="key").text(WIDE)
    assert text.startswith("OOM risk unknown without a probe: start jobs with vramscope run · GPU 0 1.0/80.0")


def test_a_process_that_reports_no_allocator_needs_no_probe() -> None:
    reported = msgspec.structs.replace(busy(60), ranks=(RankSample(4711, 1.0, device_uuid="GPU-0"),))
    text = summarize(reported, (), assessments=(assess(0, None),), remedy="key").text(WIDE)
    assert text.startswith("OOM risk unknown: no allocator data · GPU 0 ")


def test_a_recorded_run_offers_nothing() -> None:
    text = summarize(busy(60), (), assessments=(assess(0, None),)).text(WIDE)
    assert text == "OOM risk unknown: no allocator data · GPU 0 60.0/80.0 GiB (75 %), 20.0 GiB free"


def test_a_device_that_does_not_fill_says_how_it_goes_after_how_full_it_is() -> None:
    steady = DeviceTrend("steady", 10.0, 0.0)
    text = summarize(busy(60), (), assessments=(assess(0, steady),)).text(WIDE)
    assert text.endswith("GPU 0 60.0/80.0 GiB (75 %), 20.0 GiB free, steady")
