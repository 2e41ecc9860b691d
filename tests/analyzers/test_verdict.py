"""The verdict: one sentence that says the worst first and fits any width."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.analyzers.replay_capacity import CapacityAnalyzer
from vramscope.analyzers.sentence import Sentence, count_cells, cut_words
from vramscope.analyzers.verdict import summarize
from vramscope.engine.model import Finding, ProcessReading, Sample
from vramscope.engine.units import GIB

from .samples import device, finding, sample

WIDE = 500
TOTAL = round(79.6 * GIB)
NO_LIBRARY = "libnvidia-ml.so.1 was not found; install the NVIDIA driver or pass it into the container."

HEALTHY = sample(*(device(40 + index, index=index, total_bytes=TOTAL) for index in range(8)))
FULL = sample(device(60, total_bytes=TOTAL), device(78.1, index=3, total_bytes=TOTAL))
LOST = sample(device(60), device(None, index=2, state="lost", reason="fell off the bus.", age_s=41))
STALE = sample(device(60), device(70, index=7, state="stale", reason="a driver call hangs", age_s=7.2))
ALL_LOST = sample(*(device(None, index=index, state="lost") for index in range(3)))
MANY_LOST = sample(*(device(None, index=index, state="lost") for index in range(6)), device(40, index=6))
UNREADABLE = sample(device(None, state="unsupported", reason="this device does not tell its memory"))
UNIFIED = sample(device(90, kind="unified", total_bytes=120 * GIB))
MIG = sample(device(20), device(9.5, kind="mig", mig_index=1, total_bytes=10 * GIB))
TRACE = sample(
    device(66, kind="trace", total_bytes=None, allocated_gib=60),
    device(74.9, index=6, kind="trace", total_bytes=None, allocated_gib=69.6),
)
TRACE_ALLOCATED = sample(device(None, kind="trace", total_bytes=None, allocated_gib=57))
HELD = sample(
    device(60),
    device(70, index=2, state="stale", reason="a driver call has not returned for 37 s", age_s=37.4),
)
NO_LOADER = (
    "No NVIDIA driver library: libnvidia-ml.so.1 was not found by the loader (LD_LIBRARY_PATH, ld.so.cache); "
    "install the NVIDIA driver, or start the container with its GPUs (docker run --gpus all)."
)
NONE_FOUND = sample(notes=[NO_LIBRARY, "another note"])
SILENT = sample()

ENDED = sample(device(20, kind="simulated", state="ended", age_s=90.0))

CASES: dict[str, tuple[Sample | None, tuple[Finding, ...], str, str]] = {
    "before the first": (None, (), "unknown", "Waiting for the first data"),
    "healthy": (
        HEALTHY,
        (),
        "unknown",
        "OOM risk unknown: no allocator data · fullest GPU 7 47.0/79.6 GiB (59 %), 32.6 GiB free",
    ),
    "ended": (ENDED, (), "unknown", "GPU sim0 ended: no job reports"),
    "full": (
        FULL,
        (),
        "unknown",
        "OOM risk unknown: no allocator data · fullest GPU 3 78.1/79.6 GiB (98 %), 1.5 GiB free",
    ),
    "pressed": (
        FULL,
        (finding("pressure", "medium", uuid="GPU-3"),),
        "unknown",
        "OOM risk unknown: no allocator data · nearly full GPU 3 78.1/79.6 GiB (98 %), 1.5 GiB free",
    ),
    "pressed a moment ago": (
        HEALTHY,
        (finding("pressure", "medium", uuid="GPU-7"),),
        "unknown",
        "OOM risk unknown: no allocator data · fullest GPU 7 47.0/79.6 GiB (59 %), 32.6 GiB free",
    ),
    "one device": (
        sample(device(60)),
        (),
        "unknown",
        "OOM risk unknown: no allocator data · GPU 0 60.0/80.0 GiB (75 %), 20.0 GiB free",
    ),
    "lost": (
        LOST,
        (),
        "high",
        "GPU 2 lost: fell off the bus · OOM risk unknown: no allocator data · "
        "GPU 0 60.0/80.0 GiB (75 %), 20.0 GiB free",
    ),
    "stale": (
        STALE,
        (),
        "unknown",
        "GPU 7 stale 7 s: a driver call hangs · OOM risk unknown: no allocator data · "
        "GPU 0 60.0/80.0 GiB (75 %), 20.0 GiB free",
    ),
    "held": (
        HELD,
        (),
        "unknown",
        "GPU 2 stale: a driver call has not returned for 37 s · OOM risk unknown: no allocator data · "
        "GPU 0 60.0/80.0 GiB (75 %), 20.0 GiB free",
    ),
    "all lost": (ALL_LOST, (), "high", "GPUs 0, 1 and 2 lost · OOM risk unknown: no data"),
    "many lost": (
        MANY_LOST,
        (),
        "high",
        "6 GPUs lost · OOM risk unknown: no allocator data · GPU 6 40.0/80.0 GiB (50 %), 40.0 GiB free",
    ),
    "unreadable": (
        UNREADABLE,
        (),
        "unknown",
        "GPU 0 memory unreadable: this device does not tell its memory · OOM risk unknown: no data",
    ),
    "unified": (
        UNIFIED,
        (),
        "unknown",
        "OOM risk unknown: no allocator data · GPU 0 90.0/120.0 GiB (75 %), 30.0 GiB free",
    ),
    "mig": (
        MIG,
        (),
        "unknown",
        "OOM risk unknown: no allocator data · fullest MIG 0:1 9.5/10.0 GiB (95 %), 512 MiB free",
    ),
    "trace": (
        TRACE,
        (),
        "unknown",
        "OOM risk unknown: reserved bytes and capacity not recorded · "
        "fullest rank 6 74.9 GiB used, 69.6 GiB allocated",
    ),
    "trace of another GPU": (
        TRACE_ALLOCATED,
        (),
        "unknown",
        "OOM risk unknown: reserved bytes and capacity not recorded · rank 0 57.0 GiB allocated",
    ),
    "no device": (
        NONE_FOUND,
        (),
        "unknown",
        f"No GPU: {NO_LIBRARY.rstrip('.')} · vramscope doctor shows what was checked",
    ),
    "no device, no note": (
        SILENT,
        (),
        "unknown",
        "No GPU: none found on this node · vramscope doctor shows what was checked",
    ),
    "forecast": (FULL, (finding(),), "critical", finding().title),
    "forecast with a lost device": (
        LOST,
        (finding(),),
        "critical",
        f"GPU 2 lost: fell off the bus · {finding().title}",
    ),
    "low forecast": (
        sample(device(60)),
        (finding(severity="low"),),
        "low",
        "OOM risk low · GPU 0 60.0/80.0 GiB (75 %), 20.0 GiB free",
    ),
    "grave leak": (FULL, (finding("leak", "high", title="GPU 0 leaks"),), "high", "GPU 0 leaks"),
}


@pytest.mark.parametrize("case", CASES)
def test_verdict_says_what_is_known(case: str) -> None:
    facts, findings, level, text = CASES[case]
    verdict = summarize(facts, findings)
    assert (verdict.level, verdict.text(WIDE)) == (level, text)


@pytest.mark.parametrize("case", CASES)
def test_verdict_fits_every_width_and_cuts_no_word_silently(case: str) -> None:
    facts, findings, _, text = CASES[case]
    verdict = summarize(facts, findings)
    whole = {
        bare(word) for word in (*text.split(), "Waiting", "see", "vramscope", "doctor", "?", "OOM", "1m16s")
    }
    for width in range(10, 201):
        fitted = verdict.text(width)
        assert 0 < count_cells(fitted) <= width
        assert "  " not in fitted
        words = [bare(word) for word in fitted.split()]
        assert set(words) <= whole or (fitted.endswith("…") and set(words[:-1]) <= whole), (width, fitted)
        assert not fitted.removesuffix("…").endswith((" ", "·", ",", ":", "(")), (width, fitted)


def bare(word: str) -> str:
    return word.strip("(),:;…·")


def test_interval_goes_first_then_the_tail_of_the_cause_then_the_cause() -> None:
    verdict = summarize(FULL, (finding(),))
    title = finding().title
    assert verdict.text(len(title)) == title
    plain = "GPU 0 out of memory in 1 m 16 s: tensors kept by eval(), +20 MiB a step"
    assert verdict.text(len(title) - 1) == plain
    assert verdict.text(len(plain) - 1) == "GPU 0 out of memory in 1 m 16 s: tensors kept by eval()"
    assert verdict.text(50) == "GPU 0 out of memory in 1 m 16 s"
    assert verdict.text(20) == "GPU 0 OOM in 1m16s"
    assert verdict.text(15) == "GPU 0 OOM in…"


def test_share_goes_before_the_cause_and_the_cause_before_the_figure() -> None:
    verdict = summarize(FULL, ())
    assert (
        verdict.text(80) == "OOM risk unknown: no allocator data · fullest GPU 3 78.1/79.6 GiB, 1.5 GiB free"
    )
    assert verdict.text(38) == "OOM risk unknown · GPU 3 78.1/79.6 GiB"
    assert verdict.text(16) == "OOM risk unknown"
    assert verdict.text(10) == "OOM risk ?"


def test_lost_device_is_said_at_any_width_from_ten() -> None:
    verdict = summarize(LOST, (finding(),))
    assert verdict.text(40).startswith("GPU 2 lost · GPU 0 OOM in 1m16s")
    assert verdict.text(11) == "GPU 2 lost…"


def test_a_lost_device_whose_reason_is_long_is_named_by_its_place() -> None:
    reason = "the kernel driver lists this GPU at 0000:41:00.0, but NVML does not count it; see `dmesg`"
    gone = msgspec.structs.replace(
        device(None, index=2, state="lost", reason=reason), pci_address="0000:41:00.0"
    )
    verdict = summarize(sample(device(60), gone), ())
    assert verdict.text(90).startswith("GPU 2 lost at 0000:41:00.0 · ")
    assert reason in verdict.text(200)


def test_finding_of_a_device_that_is_gone_or_lost_does_not_lead() -> None:
    assert summarize(FULL, (finding(uuid="GPU-9"),)).level == "unknown"
    assert summarize(LOST, (finding(uuid="GPU-2"),)).level == "high"


def test_node_finding_leads() -> None:
    assert summarize(FULL, (finding("host", "high", uuid=None, title="host swaps"),)).text(80) == "host swaps"


def _record(*used_gib: float | None, capacity_gib: float, time_s: float = 10.5, state: str = "ok") -> Sample:
    ranks = [
        device(
            used,
            index=index,
            kind="trace",
            total_bytes=round(capacity_gib * GIB),
            allocated_gib=50,
            state="ok" if index else state,  # type: ignore[arg-type] # by name
            reason=None if index or state == "ok" else "the trace of this rank ended at 3.1 s",
            age_s=7.4,
        )
        for index, used in enumerate(used_gib)
    ]
    return msgspec.structs.replace(sample(*ranks, time_s=time_s), clock="trace")


def test_recorded_use_above_the_capacity_asked_about_leads_with_the_highest_rank() -> None:
    analyzer = CapacityAnalyzer()
    found = [*analyzer.observe(_record(66.0, 74.9, 40.0, capacity_gib=60))]
    now = _record(66.5, 20.0, 20.0, capacity_gib=60, time_s=12, state="stale")
    verdict = summarize(now, (*analyzer.observe(now), *found))
    head = "would not fit 60.0 GiB: rank 1 used 74.9 GiB at 10.5 s"
    assert verdict.level == "critical"
    assert verdict.text(WIDE) == (
        f"{head} · 2 of 3 ranks were above it · rank 0 stale 7 s: the trace of this rank ended at 3.1 s"
    )
    assert verdict.text(75) == f"{head} · rank 0 stale 7 s"
    assert verdict.text(22) == "would not fit 60.0…"


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (_record(20, 30, capacity_gib=80), "highest rank 1 74.9 GiB (94 %) at 3.2 s"),
        (_record(20, 78, capacity_gib=80), "highest rank 1 78.0 GiB (98 %) at 10.5 s"),
        (_record(20, 79.9, capacity_gib=80), "highest rank 1 79.9 GiB (over 99 %) at 10.5 s"),
        (_record(20, 80, capacity_gib=80), "highest rank 1 80.0 GiB (100 %) at 10.5 s"),
        (_record(20, capacity_gib=80), "rank 0 20.0 GiB (25 %) at 10.5 s"),
    ],
)
def test_recorded_run_below_the_capacity_says_how_close_it_came(now: Sample, text: str) -> None:
    peaks = {"GPU-1": (round(74.9 * GIB), 3.2)}
    verdict = summarize(now, (), peaks.get)
    assert (verdict.level, verdict.text(WIDE)) == ("low", f"fits 80.0 GiB so far: {text}")
    assert verdict.text(25) == "fits 80.0 GiB so far"
    ended = summarize(msgspec.structs.replace(now, is_last=True), (), peaks.get)
    assert ended.text(WIDE) == f"fits 80.0 GiB: {text}"


@pytest.mark.parametrize(
    "unanswered",
    [
        _record(20, None, capacity_gib=80),
        _record(20, 81, capacity_gib=80),
        msgspec.structs.replace(_record(20, 30, capacity_gib=80), clock="wall"),
        msgspec.structs.replace(TRACE, clock="trace"),
    ],
    ids=["device used of a rank unknown", "above, not yet found", "measured now", "no capacity"],
)
def test_fit_is_not_claimed_without_knowing(unanswered: Sample) -> None:
    verdict = summarize(unanswered, ())
    assert verdict.level == "unknown"
    assert verdict.text(WIDE).startswith("OOM risk unknown")


def test_rank_that_has_not_begun_does_not_hold_up_the_answer() -> None:
    ranks = (*_record(20, capacity_gib=80).devices, device(None, index=1, kind="trace"))
    begun = msgspec.structs.replace(_record(capacity_gib=80), devices=ranks)
    assert summarize(begun, ()).text(WIDE).startswith("fits 80.0 GiB so far")


def test_use_above_the_capacity_is_told_as_such_before_its_finding_arrives() -> None:
    text = summarize(_record(20, 74.9, capacity_gib=60), ()).text(WIDE)
    assert text.endswith("fullest rank 1 74.9/60.0 GiB (125 %), 14.9 GiB too much")


@pytest.mark.parametrize(
    ("note", "width", "text"),
    [
        (NO_LOADER, 78, "No GPU: libnvidia-ml.so.1 was not found by the loader · see vramscope doctor"),
        (NO_LOADER, 60, "No GPU: libnvidia-ml.so.1 was not found by the loader"),
        (NO_LOADER, 44, "No GPU: libnvidia-ml.so.1 was not found by…"),
        ("No NVIDIA driver is loaded here.", 50, "No NVIDIA driver is loaded here"),
        (
            "The NVIDIA driver refused this user (NVML error 4): /dev/nvidiactl must be readable; see `ls`.",
            WIDE,
            "No GPU: the NVIDIA driver refused this user (NVML error 4): /dev/nvidiactl must be "
            "readable; see `ls` · vramscope doctor shows what was checked",
        ),
        (
            "NVIDIA driver not loaded: it is installed, but does not run (NVML error 9); load it.",
            40,
            "No GPU: NVIDIA driver not loaded",
        ),
    ],
)
def test_missing_gpu_is_said_once_and_its_cause_first(note: str, width: int, text: str) -> None:
    assert summarize(sample(notes=[note]), ()).text(width) == text


def test_unmeasured_capacity_is_never_shown_as_a_share() -> None:
    assert "%" not in summarize(TRACE, ()).text(WIDE)


def test_cells_are_counted_as_terminals_count_them() -> None:
    assert count_cells("显存") == 4
    assert count_cells("e\u0301") == 1
    assert cut_words("显存显存", 5) == "显存…"


@given(
    st.lists(st.lists(st.text("ab ·,显", max_size=12), min_size=1, max_size=4), max_size=4),
    st.integers(0, 60),
)
def test_any_sentence_fits_any_width(clauses: list[list[str]], width: int) -> None:
    assert count_cells(Sentence(tuple(map(tuple, clauses))).fit(width)) <= width


def test_what_jax_has_preallocated_is_said_instead_of_full() -> None:
    full = device(78.1, total_bytes=TOTAL)

    def describe(percent: float, *findings: Finding, width: int = WIDE) -> str:
        taken = ProcessReading(41, used_bytes=78 * GIB, preallocated_percent=percent)
        filled = msgspec.structs.replace(full, processes=(taken,))
        return summarize(sample(filled), findings).text(width)

    said = describe(95.0)
    assert said.endswith("78.1/79.6 GiB (98 %), 1.5 GiB free, JAX preallocated 95 %")
    assert "nearly full" not in said
    # Others have filled what JAX left.
    said = describe(75.0, finding("pressure", "medium", uuid="GPU-0"))
    assert "nearly full GPU 0" in said
    assert said.endswith("JAX preallocated 75 %")
    # Where there is little room it is said rather than what is free.
    assert describe(95.0, width=60).endswith(" GPU 0 78.1/79.6 GiB, JAX preallocated 95 %")
