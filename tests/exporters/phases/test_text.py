"""What a training by phase prints: words and tables at several widths, ranks, runs that did not finish."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests import REPOSITORY
from vramscope.analyzers.sentence import count_cells
from vramscope.engine.model.phase_memory import MemoryLevels, PhaseDevice, PhaseMemory, PhaseRun
from vramscope.exporters.json_lines import encode_line
from vramscope.exporters.phases.report import PhaseReport, report_phases
from vramscope.exporters.phases.text import describe_phases
from vramscope.exporters.schema import build_schema, render_schema

from ...vramscope.phases.runs import MIB, SETUP, levels, make_run, take_step

TEXTS = Path(__file__).parent / "texts"
DOCS = REPOSITORY / "docs"
OUT = {
    "phases": (*SETUP, *take_step(1)[:2]),
    "losses": (),
    "state": None,
    "end": "out_of_memory",
    "failed_phase": "Backward",
    "failed_step": 1,
    "requested_bytes": 512 * MIB,
    "held": levels(500, 700),
    "error": "CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 2.00 GiB of "
    "which 200.00 MiB is free.",
}
"""A run that ends in its first backward pass, 112 MiB short: 500 and 512 asked of 700 held and 200 free."""


def make_two() -> list[PhaseRun]:
    """Return two ranks of two steps; rank 1 holds 200 MiB more in the second backward pass."""
    runs = []
    for rank in (1, 0):
        second = take_step(2, Backward=(170, 600, 650 + 200 * rank))
        runs.append(make_run(rank=rank, world_size=2, phases=(*SETUP, *take_step(1), *second)))
    return runs


@pytest.mark.parametrize(
    ("name", "runs", "width"),
    [
        ("one-80", [make_run()], 80),
        ("one-120", [make_run()], 120),
        ("ranks-80", make_two(), 80),
        ("out-of-memory-80", [make_run(**OUT)], 80),
    ],
)
def test_the_text_is_as_it_was_looked_at(name: str, runs: list[PhaseRun], width: int) -> None:
    text = describe_phases(runs, width)
    assert text == (TEXTS / f"{name}.txt").read_text("utf-8")
    assert max(map(count_cells, text.splitlines())) <= width


@pytest.mark.parametrize("width", [40, 60, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = describe_phases(make_two(), width).splitlines()
    assert max(map(count_cells, lines)) <= width


def test_the_verdict_names_the_rank_and_the_phase_that_hold_most() -> None:
    text = " ".join(describe_phases(make_two(), 80).split())
    assert text.startswith(
        "Simulated. Trained 2 steps. Peak on rank 1: 850.00 MiB allocated, in Backward of step 2"
    )
    assert "rank 1, which uses most; the last of 2 steps" in text
    assert "650.00 to 850.00" in text


def test_ranks_that_do_not_fit_beside_each_other_come_below() -> None:
    runs = [make_run(rank=rank, world_size=12) for rank in range(12)]
    text = describe_phases(runs, 80)
    heads = [line.split()[3:] for line in text.splitlines() if line.startswith("  peak allocated")]
    assert [name for head in heads for name in head if name != "rank"] == [str(rank) for rank in range(12)]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            {"end": "interrupted", "failed_phase": "Backward", "failed_step": 1, "error": "Ctrl-C"},
            "Interrupted in Backward of step 1 (Ctrl-C): this is what was measured until then. Peak of the "
            "phases that ended: 180.00 MiB",
        ),
        (
            {"end": "failed", "failed_phase": "Loss", "failed_step": 1, "error": "killed by \x1b SIGKILL"},
            "Failed in Loss of step 1: killed by � SIGKILL.",
        ),
        ({"losses": (None,)}, "loss by step: —"),
        ({"notes": ("ModuleValidator.fix replaced norm",)}, "ModuleValidator.fix replaced norm"),
    ],
)
def test_what_did_not_finish_says_so_and_keeps_what_was_measured(other: dict[str, Any], words: str) -> None:
    text = " ".join(
        describe_phases([make_run(**{"phases": (*SETUP, *take_step(1)[:2]), **other})], 200).split()
    )
    assert words in text
    assert "Forward 100.00 160.00 160.00 +60.00" in text


def test_a_fake_device_says_that_no_value_is_computed() -> None:
    device = PhaseDevice(
        kind="simulated", name="Simulated 2 GiB GPU", is_fake=True, note="no CUDA device here"
    )
    text = " ".join(describe_phases([make_run(device=device, losses=(None,))], 200).split())
    assert "all values are simulated, not measured on a GPU; without storage" in text
    assert "(no CUDA device here)" in text


def test_resident_memory_of_the_host_is_not_called_allocated() -> None:
    before, after, peak = (
        MemoryLevels(allocated_bytes=size * MIB, reserved_bytes=None) for size in (10, 20, 30)
    )
    told = PhaseMemory(phase="Model Creation", before=before, after=after, peak=peak)
    unknown = msgspec.structs.replace(
        told, phase="DP Setup", peak=MemoryLevels(allocated_bytes=None, reserved_bytes=None)
    )
    device = PhaseDevice(kind="cpu", name="CPU (resident memory)", total_bytes=1 << 34)
    text = describe_phases([make_run(device=device, phases=(told, unknown), state=None, losses=())], 80)
    assert "Peak: 30.00 MiB resident, in Model Creation." in text
    assert "  resident, MiB   before  after   peak  change" in text
    assert "DP Setup         10.00  20.00      —  +10.00" in text
    assert "reserved" not in text
    assert "No advice on the CPU" in text
    assert "Simulated" not in text


def test_nothing_measured_is_no_error() -> None:
    text = describe_phases([make_run(phases=(), state=None, losses=(), end="failed", error="gone")], 80)
    assert "Failed in an unknown phase: gone. No phase was measured." in text.replace("\n  ", " ")
    assert report_phases([make_run(phases=(), state=None)]).advice is None
    assert describe_phases([], 80) == "nothing was trained\n"


def test_the_report_has_differences_peak_and_advice_and_keeps_to_its_schema() -> None:
    import jsonschema

    line = encode_line(report_phases(make_two()))
    jsonschema.validate(msgspec.json.decode(line), build_schema("phases"))
    report = msgspec.json.decode(line, type=PhaseReport)
    assert report.is_simulated
    assert [rank.rank for rank in report.ranks] == [0, 1]
    most = report.ranks[1]
    assert (most.peak_phase, most.peak_step, most.peak.allocated_bytes) == ("Backward", 2, 850 * MIB)
    assert most.share_of_device == 900 / 2048
    assert most.differences[4].allocated_bytes == 430 * MIB
    assert report.advice is not None
    assert (report.advice.rank, report.advice.phase) == (1, "Backward")
    assert report.runs == tuple(reversed(make_two()))


def test_the_schemas_in_the_documents_are_those_of_the_program() -> None:
    for name, text in (
        ("phases", render_schema("phases")),
        ("phase-records", render_schema("phase-records")),
    ):
        page = (DOCS / f"{name}.schema.json").read_text("utf-8")
        assert page == text, "run `python docs/generate.py`"
