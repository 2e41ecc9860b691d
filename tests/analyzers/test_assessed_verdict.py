"""The verdict and the risk where processes are assessed: a low risk is an answer, and says by how much."""

import math

import msgspec
import pytest

from vramscope.analyzers.risk import Risk, assess_risk
from vramscope.analyzers.verdict import Verdict, summarize
from vramscope.engine.model import Assessment, RankSample, RiskLevel, Sample
from vramscope.engine.units import GIB

from .samples import assessment, device, finding, sample

TOTAL = round(79.6 * GIB)
NODE = sample(*(device(used, index=n, total_bytes=TOTAL) for n, used in enumerate((50.0, 40.0, 45.0, 61.2))))
CALM = tuple(assessment(uuid=f"GPU-{index}", pid=index) for index in range(4))


def _summarize(sample: Sample, *assessments: Assessment) -> Verdict:
    return summarize(sample, (), assessments=assessments)


def test_all_low_is_an_answer_with_the_headroom_of_the_fullest_device() -> None:
    verdict = _summarize(NODE, *CALM)
    assert verdict.level == "low"
    texts = [
        "OOM risk low: fullest GPU 3 61.2/79.6 GiB, 17.2 GiB headroom at peak",
        "OOM risk low: GPU 3 61.2/79.6 GiB, 17.2 GiB headroom",
        "OOM risk low: 17.2 GiB headroom at peak",
        "OOM risk low: 17.2 GiB headroom",
        "OOM risk low",
        "OOM risk…",
    ]
    widths = [200, *(len(text) - 1 for text in texts[:-1])]
    assert [verdict.text(width) for width in widths] == texts


def test_of_several_processes_on_a_device_the_least_headroom_is_told() -> None:
    two = (assessment(pid=7), assessment(pid=8, peak_gib=70.3))
    text = _summarize(sample(device(60, total_bytes=TOTAL)), *two).text(100)
    assert text == "OOM risk low: GPU 0 60.0/79.6 GiB, 7.0 GiB headroom at peak"


def test_a_low_risk_of_unknown_headroom_invents_none() -> None:
    text = _summarize(sample(device(60)), assessment(capacity_gib=None)).text(100)
    assert text == "OOM risk low · GPU 0 60.0/80.0 GiB (75 %), 20.0 GiB free"


def test_one_device_of_which_nobody_knows_is_named() -> None:
    verdict = _summarize(NODE, *CALM[:2], CALM[3])
    assert verdict.level == "unknown"
    head = "OOM risk unknown on GPU 2: no allocator data"
    assert verdict.text(200).startswith(f"{head} · fullest GPU 3")


def test_a_grave_word_without_a_finding_leads_with_its_reason() -> None:
    rare = assessment("high", uuid="GPU-1", pid=1, reason="1 in 4 within 200 steps")
    verdict = _summarize(NODE, CALM[0], rare, *CALM[2:])
    assert verdict.level == "high"
    assert verdict.text(200).startswith("OOM risk high on GPU 1: 1 in 4 within 200 steps · fullest GPU 3")
    assert verdict.text(24) == "OOM risk high on GPU 1"


@pytest.mark.parametrize("width", range(8, 120))
def test_every_width_is_kept(width: int) -> None:
    for verdict in (_summarize(NODE, *CALM), _summarize(NODE, *CALM[:2])):
        assert 0 < len(verdict.text(width)) <= width


@pytest.mark.parametrize(
    ("levels", "gravest"),
    [
        (("low", "low"), "low"),
        (("low", "unknown"), "unknown"),
        (("unknown", "medium"), "medium"),
        (("critical", "low"), "critical"),
    ],
)
def test_the_gravest_of_several_processes_counts(levels: tuple[RiskLevel, ...], gravest: RiskLevel) -> None:
    words = [assessment(level, pid=pid, reason=f"reason {level}") for pid, level in enumerate(levels)]
    for order in (words, words[::-1]):
        assert assess_risk(device(), (), order) == Risk(gravest, f"reason {gravest}")


def test_the_gravest_of_finding_and_assessment_counts_and_the_soonest_end() -> None:
    soon, late = assessment("high", pid=1, oom_in_s=60, time_s=10), assessment("high", pid=2, oom_in_s=600)
    assert assess_risk(device(), (), (late, soon)) == Risk("high", "floors do not rise", 70)
    assert assess_risk(device(), (finding(),), (late, soon)) == Risk("critical", finding().title, 70)
    mild = finding("retries", "medium", title="retried")
    assert assess_risk(device(), (mild,), (late,)).reason == "floors do not rise"


def test_others_are_not_judged_by_a_device() -> None:
    assert assess_risk(device(index=1), (), CALM[:1]).level == "unknown"


def test_a_calm_word_is_doubted_where_figures_are_old_and_a_grave_one_stands() -> None:
    stale = device(state="stale", age_s=7.4)
    assert assess_risk(stale, (), [assessment()]) == Risk("unknown", "stale 7 s")
    assert assess_risk(stale, (), [assessment("critical")]).level == "critical"
    assert assess_risk(device(state="lost"), (), [assessment("critical")]).level == "unknown"
    assert assess_risk(device(state="ended"), (), [assessment("critical")]).level == "unknown"


def test_a_process_that_does_not_report_is_not_calm() -> None:
    silent = RankSample(pid=3, device_uuid="GPU-3", state="stale")
    verdict = _summarize(msgspec.structs.replace(NODE, ranks=(silent,)), *CALM)
    assert verdict.level == "unknown"
    assert verdict.text(200).startswith("OOM risk unknown on GPU 3: its process does not report")


def test_an_end_that_nobody_foresees_is_not_the_soonest() -> None:
    words = (assessment("high", pid=1), assessment("high", pid=2, oom_in_s=600))
    assert assess_risk(device(), (), words).oom_s == 600
    assert math.isclose(assess_risk(device(), (), words[::-1]).oom_s or 0, 600)


def test_a_sliver_names_the_place_in_the_program() -> None:
    title = (
        "GPU 5 (rank 5) out of memory in 1 m 16 s (65–90 s, 93 %): "
        "tensors kept by eval() at train.py:212, +20 MiB a step"
    )
    verdict = summarize(NODE, (finding(title=title),))
    assert verdict.text(120) == title
    plain = "GPU 5 (rank 5) out of memory in 1 m 16 s: tensors kept by eval() at train.py:212"
    assert verdict.text(80) == plain
    assert verdict.text(38) == "GPU 5 OOM in 1m16s: train.py:212"
    assert verdict.text(31) == "GPU 5 OOM in 1m16s"


def test_running_out_leads_before_its_cause_however_grave() -> None:
    leak = finding("leak", "critical", title="rank 0 leaks 20 MiB a step")
    verdict = summarize(NODE, (leak, finding(severity="high")))
    assert (verdict.level, verdict.text(200)) == ("high", finding().title)
