"""The verdict counts the time down between two statements of a forecast."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.analyzers.growth_renewal import renew_finding
from vramscope.analyzers.verdict import summarize
from vramscope.engine.model import Evidence, Finding

from .samples import assessment, device, finding, sample

CAUSE = "live tensors grow by 20 MiB a step"
TITLE = f"GPU 0 (rank 0) out of memory in 1 m 16 s (65-90 s, 93 %): {CAUSE}"
LONG = f"GPU 0 out of memory in 2 h 05 m (1 h 40 m to 3 h 00 m, 85 %): {CAUSE}"


def _forecast(title: str = TITLE, pid: int | None = None) -> Finding:
    stated = msgspec.structs.replace(finding(title=title), updated_s=100.0)
    return msgspec.structs.replace(stated, evidence=() if pid is None else (Evidence("process", pid),))


@pytest.mark.parametrize(
    ("title", "now_s", "told"),
    [
        (TITLE, 100, TITLE),
        (TITLE, 110, f"GPU 0 (rank 0) out of memory in 1 m 06 s (55-80 s, 93 %): {CAUSE}"),
        (TITLE, 500, f"GPU 0 (rank 0) out of memory in 0 s (0-0 s, 93 %): {CAUSE}"),
        (LONG, 3700, f"GPU 0 out of memory in 1 h 05 m (40 m 00 s to 2 h 00 m, 85 %): {CAUSE}"),
        ("GPU 0 out of memory in 45 s", 115, "GPU 0 out of memory in 30 s"),
        (
            "rank 0 may run out of memory (12 % within 1 h)",
            900,
            "rank 0 may run out of memory (12 % within 1 h)",
        ),
    ],
)
def test_without_a_newer_word_the_title_itself_is_counted_down(title: str, now_s: float, told: str) -> None:
    assert renew_finding(_forecast(title), (), now_s).title == told


def test_the_newest_assessment_of_its_process_counts() -> None:
    newer = msgspec.structs.replace(
        assessment("critical", pid=7, oom_in_s=50.0, time_s=120.0), oom_in_low_s=40.0, oom_in_high_s=70.0
    )
    other = assessment("critical", pid=8, oom_in_s=5.0, time_s=120.0)
    told = renew_finding(_forecast(pid=7), (other, newer), 125.0).title
    assert told == f"GPU 0 (rank 0) out of memory in 45 s (35-65 s, 93 %): {CAUSE}"


def test_the_verdict_and_the_panel_say_the_same_time() -> None:
    word = assessment("critical", oom_in_s=50.0, time_s=120.0)
    verdict = summarize(sample(device(60), time_s=130.0), (_forecast(),), assessments=(word,))
    assert verdict.text(60).startswith("GPU 0 (rank 0) out of memory in 40 s")
    assert verdict.text(20) == "GPU 0 OOM in 40s"


def test_the_line_that_keeps_memory_outlasts_how_fast_it_grows() -> None:
    title = f"{TITLE}, kept by evaluate() at train.py:74"
    verdict = summarize(sample(device(60), time_s=100.0), (_forecast(title),))
    assert verdict.text(100) == "GPU 0 (rank 0) out of memory in 1 m 16 s: kept by evaluate() at train.py:74"
    assert verdict.text(34) == "GPU 0 OOM in 1m16s: train.py:74"


@given(st.text(max_size=60), st.floats(-1e6, 1e6))
def test_any_title_comes_through(title: str, now_s: float) -> None:
    assert isinstance(renew_finding(_forecast(title), (), now_s).title, str)
