"""`oom`, `leak`, `profile` and the live view say the same of a file: rate, level, time and findings."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from vramscope.analyzers.growth_renewal import renew_findings
from vramscope.analyzers.risk import Risk, assess_risks, doubt_silent
from vramscope.analyzers.verdict import summarize
from vramscope.engine.model import Assessment, Finding, Sample
from vramscope.engine.plugins import make_analyzers
from vramscope.engine.replay.node_player import FoundVerdicts
from vramscope.engine.units import MIB, format_age, format_bytes
from vramscope.memory.streams import FileStream
from vramscope.tui.device.sections import draw_forecast
from vramscope.tui.draw.glyphs import UNICODE

from ..running import GIB, call
from .running import HEADER, TOTAL, run_input

SECONDS = 480
chance = random.Random(4)


def _saw(t: int) -> int:
    return (t % 10) * 300_000_000


def _allocator(level: Callable[[int], float]) -> Callable[[int], str]:
    """Return the row of a moment of a job whose live bytes are given, in steps of ten seconds."""

    def row(t: int) -> str:
        allocated = round(level(t))
        return f"{t},0,{allocated},{allocated + GIB},{allocated + 3 * GIB // 2},{TOTAL},{t // 10}\n"

    return row


KINDS: dict[str, tuple[str, Callable[[int], str], int]] = {
    "leak": (HEADER, _allocator(lambda t: 20 * GIB + 80e6 * t + _saw(t)), SECONDS),
    "leak of 40 seconds": (HEADER, _allocator(lambda t: 20 * GIB + 80e6 * t + _saw(t)), 40),
    "slow leak": (HEADER, _allocator(lambda t: 20 * GIB + 8e6 * t + _saw(t)), SECONDS),
    "leak below steps that differ": (
        HEADER,
        _allocator(lambda t: 20 * GIB + 60e6 * t + chance.random() * 8 * GIB),
        SECONDS,
    ),
    "leak that ended": (HEADER, _allocator(lambda t: 20 * GIB + 80e6 * min(t, 240) + _saw(t)), SECONDS),
    "flat sawtooth": (HEADER, _allocator(lambda t: 20 * GIB + _saw(t)), SECONDS),
    "longer and longer steps": (
        HEADER,
        _allocator(lambda t: 20 * GIB + chance.random() * (10 * GIB + 70e6 * t)),
        SECONDS,
    ),
    "longer and longer steps near the end": (
        HEADER,
        _allocator(lambda t: 20 * GIB + chance.random() * (10 * GIB + 60e6 * t)),
        600,
    ),
    "cache that fills": (
        HEADER,
        lambda t: (
            f"{t},0,{20 * GIB + _saw(t)},{40 * GIB + 60_000_000 * t},{41 * GIB + 60_000_000 * t},{TOTAL},\n"
        ),
        SECONDS,
    ),
    "driver only, climb": (
        "time_s,device,used_bytes,total_bytes\n",
        lambda t: f"{t},0,{20 * GIB + 90_000_000 * t},{TOTAL}\n",
        SECONDS,
    ),
    "driver only, flat": (
        "time_s,device,used_bytes,total_bytes\n",
        lambda t: f"{t},0,{30 * GIB + _saw(t)},{TOTAL}\n",
        SECONDS,
    ),
}


class _Live(NamedTuple):
    """What the live view of a file shows at its end."""

    sample: Sample
    findings: tuple[Finding, ...]
    assessment: Assessment | None
    risk: Risk
    verdict: str
    lines: str


def _play(path: Path) -> _Live:
    stream = FileStream(path)
    verdicts = FoundVerdicts(list(make_analyzers().made))
    sample = None
    while not stream.is_ended:
        for sample in stream.take(0.0):
            verdicts.observe(sample)
    assert sample is not None
    assessments = verdicts.assessments()
    findings = tuple(renew_findings(verdicts.findings(), assessments, sample.time_s))
    known = doubt_silent(sample, assessments)
    risk = assess_risks(sample.devices, findings, known, sample.ranks)[sample.devices[0].uuid]
    word = next(iter(known), None)
    drawn = draw_forecast(word, sample.time_s, 200, UNICODE)
    lines = "\n".join("".join(span.text for span in line) for line in drawn)
    verdict = summarize(sample, findings, assessments=assessments).text(400)
    return _Live(sample, findings, word, risk, verdict, lines)


def _rates(oom: dict[str, Any], leak: dict[str, Any]) -> list[float | None]:
    """Return every rate of what stays between steps, in MiB a second, as two reports print them."""
    device = oom["devices"]["0"]
    per_min = leak["devices"]["0"]["gpu_memory"]["growth_rate_mb_per_min"]
    return [
        device["risk_assessment"]["growth_rate_mb_per_sec"],
        device["memory_trends"]["growth_rate_mb_per_sec"],
        None if per_min is None else per_min / 60,
    ]


@pytest.fixture(scope="module", params=KINDS)
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    head, row, seconds = KINDS[request.param]
    path = tmp_path_factory.mktemp("agreement") / "series.csv"
    path.write_text(head + "".join(row(t) for t in range(seconds)), encoding="utf-8")
    return path


def test_the_same_file_has_the_same_rate_level_and_time_everywhere(file: Path) -> None:
    oom, leak, profile = (run_input(verb, file) for verb in ("oom", "leak", "profile"))
    live = _play(file)
    risk = oom["devices"]["0"]["risk_assessment"]

    first, *others = _rates(oom, leak)
    assert others == [None if first is None else pytest.approx(first)] * len(others)
    assert oom["devices"]["0"]["device_trend"] == leak["devices"]["0"]["device_trend"]
    assert oom["devices"]["0"]["device_trend"] == profile["devices"]["0"]["device_trend"]

    assert risk["forecast"] == live.risk.level
    assert live.risk.reason in (risk["reason"], *(it.title for it in live.findings))
    text = call("oom", "--input", str(file), "--format", "text").stdout
    row = next(line.split() for line in text.splitlines() if line.split()[:1] == ["0"])
    assert row[2] == live.risk.level

    word = live.assessment
    if word is not None and word.memory_source == "allocator" and word.growth_bytes_per_s is not None:
        _compare_growth(risk, live, word)
    if word is not None and word.oom_in_s is not None:
        left_s = word.time_s + word.oom_in_s - live.sample.time_s
        is_believed = any(it.kind == "oom" and it.is_open for it in live.findings)
        assert risk["predicted_oom_time_seconds"] == pytest.approx(left_s)
        assert format_age(round(left_s)) in live.lines
        assert (format_age(round(left_s)) in live.verdict) == is_believed
        assert ("if it goes on" in live.lines, "if it goes on" in text) == (not is_believed,) * 2
        assert risk["time_to_full_seconds"] is None
    else:
        assert risk["predicted_oom_time_seconds"] is None
        assert "out of memory in" not in live.verdict

    told = {it["title"]: it for report in (oom, leak) for it in report["findings"]}
    assert {it.title for it in live.findings if it.kind in ("oom", "leak")} <= told.keys()
    assert {it["title"] for it in profile["findings"]} >= told.keys()
    _compare_findings(list(told.values()), leak, risk)


def _compare_growth(risk: dict[str, Any], live: _Live, word: Assessment) -> None:
    assert word.growth_bytes_per_s is not None
    key = "peak_growth_rate_mb_per_sec" if word.is_growth_of_peaks else "growth_rate_mb_per_sec"
    assert risk[key] == pytest.approx(word.growth_bytes_per_s / MIB)
    shown = format_bytes(round(word.growth_bytes_per_s * 60))
    assert (f"+{shown}/min" if word.growth_bytes_per_s else "growth none") in live.lines
    assert ("of peaks" in live.lines) == word.is_growth_of_peaks
    if "out of memory in" in live.verdict and word.growth_bytes_per_step is not None:
        assert f"grow by {format_bytes(round(word.growth_bytes_per_step))} a step" in live.verdict


def _compare_findings(findings: list[dict[str, Any]], leak: dict[str, Any], risk: dict[str, Any]) -> None:
    """Open findings on growth have the rate and the time of the forecast, and so have the leak's events."""
    for finding in (it for it in findings if it["closed_s"] is None and it["kind"] in ("oom", "leak")):
        evidence = finding["evidence"]
        key = "peak_growth_rate_mb_per_sec" if "peaks grow" in finding["title"] else "growth_rate_mb_per_sec"
        assert evidence["growth a second"]["value"] / MIB == pytest.approx(risk[key])
        left_s = evidence["time to out of memory"]["value"]
        assert left_s == pytest.approx(risk["predicted_oom_time_seconds"])
    if leak["devices"]["0"]["open_leaks"]:
        (event,) = leak["leak_events"]
        assert event["leak_rate_mb_per_min"] / 60 == pytest.approx(risk["growth_rate_mb_per_sec"])
