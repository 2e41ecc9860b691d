"""Memory by length as people and programs get it: text, the original's table, CSV, JSON."""

import csv
import io

import jsonschema
import msgspec
import pytest

from tests.structure.tree import ROOT
from tests.vramscope.phases.studies import MIB, make_study
from vramscope.engine.model.phase_memory import FitSearch, FitTrial, LengthPoint, LengthStudy
from vramscope.exporters.json_lines import encode_line
from vramscope.exporters.schema import build_schema, render_schema
from vramscope.exporters.seqlen.figure import describe_study_as_original
from vramscope.exporters.seqlen.text import (
    LengthReport,
    describe_fits,
    describe_study,
    encode_study,
    report_study,
)

ORIGINAL = """
================================================================================
MEMORY USAGE SUMMARY TABLE
================================================================================
Stage                       64      1024      2048
--------------------------------------------------------------------------------
Model Creation           100.0     100.0     100.0
DP Setup                   0.0       0.0       0.0
Forward Pass               2.5      54.9     203.8
Backward Pass            197.5     145.1       N/A
Optimizer Step             0.0       0.0       N/A
Zero Gradients          -200.0    -200.0       N/A
================================================================================
单位: MB (内存差异)
simulated
"""


def test_the_text_tells_phases_laws_peaks_and_where_memory_ran_out() -> None:
    text = describe_study(make_study(out_of_memory={2048: "Backward"}), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("Memory by sequence length (simulated): LLaMA tiny, batch of 1, Opacus hooks,")
    lines = {line.split("  ")[1].strip(): line for line in text.splitlines() if line.startswith("  ")}
    assert lines["tokens"].split()[1:] == ["64", "128", "256", "512", "1,024", "2,048"]
    assert lines["ended"].split()[1:] == ["ok"] * 5 + ["OOM"]
    assert "  Forward         2 MiB + 1000 B/token + 48 B/token^2      residual 0 B\n" in text
    assert "  Backward         197.5   196.6   193.8   183.6   145.1       —\n" in text
    assert "2,048 tokens: out of memory in Backward, 512 MiB requested; its laws predict a" in text


def test_lengths_that_do_not_stand_side_by_side_go_below() -> None:
    text = describe_study(make_study(), 40)
    assert max(map(len, text.splitlines())) <= 40
    assert [line.split()[1:] for line in text.splitlines() if line.startswith("  tokens")] == [
        ["64", "128", "256"],
        ["512", "1,024", "2,048"],
    ]
    assert "residual 0 B" in text


def test_algorithms_stand_side_by_side_with_what_each_costs_more_than_none() -> None:
    text = describe_study(make_study(("none", "hooks", "ghost"), (64, 128, 256)), 80)
    table = text[text.index("peak of allocated memory by algorithm") :].splitlines()
    assert table[1:5] == [
        "  tokens     64    128    256",
        "  none    201.0  201.0  201.0",
        "  hooks   301.0  301.0  301.0",
        "  ghost   211.0  211.0  211.0",
    ]
    assert table[6:] == [
        "more than without privacy, MiB",
        "  tokens     64    128    256",
        "  hooks   100.0  100.0  100.0",
        "  ghost    10.0   10.0   10.0",
    ]


def test_a_length_that_could_not_be_started_says_why_and_the_rest_is_told() -> None:
    study = make_study(lengths=(64, 128))
    refused = LengthPoint(privacy="hooks", seq_length=256, refusal="no room on this host")
    study = msgspec.structs.replace(
        study, lengths=(64, 128, 256, 512), points=(*study.points, refused), is_interrupted=True
    )
    text = describe_study(study, 80)
    assert "256 tokens: no room on this host" in text
    ended = next(line for line in text.splitlines() if line.startswith("  ended"))
    assert ended.split()[1:] == ["ok", "ok", "not", "run", "—"]
    assert "2 points, no law" in text
    assert "Interrupted" in text


def test_the_table_of_the_original_is_printed_to_the_letter() -> None:
    study = make_study(lengths=(64, 1024, 2048), out_of_memory={2048: "Backward"})
    assert describe_study_as_original(study) == ORIGINAL
    two = describe_study_as_original(make_study(("none", "ghost"), (64,)))
    assert two.count("MEMORY USAGE SUMMARY TABLE") == 2
    assert "dp-mode: none" in two
    assert two.count("DP Setup") == 1, "plain training has no such phase"


def test_the_csv_has_a_row_a_phase_and_one_for_what_never_began() -> None:
    study = make_study(lengths=(64, 128), out_of_memory={128: "Model Creation"})
    rows = list(csv.DictReader(io.StringIO(encode_study(study).decode())))
    assert [(row["seq_length"], row["phase"], row["end"]) for row in rows[-2:]] == [
        ("64", "Zero Gradients", "finished"),
        ("128", "", "out_of_memory"),
    ]
    forward = rows[2]
    assert forward["phase"] == "Forward"
    assert int(forward["allocated_difference_bytes"]) == 2 * MIB + 64_000 + 48 * 64 * 64
    assert forward["is_simulated"] == "true"
    assert rows[-1]["peak_allocated_bytes"] == ""


def test_what_fits_is_told_with_the_next_that_did_not_and_all_that_was_tried() -> None:
    interrupted = _search(varied="sequence length", step=64, trials=(), refusal="interrupted")
    text = describe_fits([_search(), interrupted], 60)
    assert text.splitlines()[:5] == [
        "What fits 1.0 GiB (simulated): the largest that ran, and the",
        "  next one",
        "",
        "batch size, of 128 tokens each",
        "  dp-mode      largest  peak reserved  next",
    ]
    assert "  ghost    4 sequences        512 MiB     5\n" in text
    assert "  ghost, 5: out of memory in Backward\n" in text
    assert "sequence length, in a batch of 128, multiples of 64\n" in text
    assert "  ghost       none              —     —\n  ghost, undecided: interrupted\n" in text
    assert "2 runs; ! did not fit\n  ghost, batch size: 4, 5!\n" in text
    assert "Modelled: Simulated 1 GiB GPU" in text


def _search(**changes: object) -> FitSearch:
    search = FitSearch(
        privacy="ghost",
        varied="batch size",
        fixed=128,
        step=1,
        capacity_bytes=1 << 30,
        context_bytes=512 * MIB,
        device="Simulated 1 GiB GPU",
        is_simulated=True,
        trials=(
            FitTrial(size=4, has_fitted=True, peak_reserved_bytes=512 * MIB),
            FitTrial(size=5, has_fitted=False, reason="out of memory in Backward"),
        ),
    )
    return msgspec.structs.replace(search, **changes)


@pytest.fixture
def study() -> LengthStudy:
    return make_study(("none", "ghost"), out_of_memory={2048: "Backward"})


def test_the_object_has_runs_laws_predictions_and_what_fits(study: LengthStudy) -> None:
    line = encode_line(report_study(study, [_search()]))
    jsonschema.validate(msgspec.json.decode(line), build_schema("seqlen"))
    report = msgspec.json.decode(line, type=LengthReport)
    assert report.schema == "vramscope.seqlen/1"
    assert report.is_simulated
    none, ghost = report.algorithms
    assert (none.more_than_none, ghost.dp_mode) == (None, "ghost")
    assert ghost.more_than_none is not None
    assert ghost.more_than_none.values_bytes[:2] == (10 * MIB, 10 * MIB)
    forward = ghost.differences[2]
    assert forward.law is not None
    assert forward.law.bytes_per_token_squared == 48
    assert [each.seq_length for each in ghost.peaks[0].predicted] == [2048]
    assert ghost.points[-1].failure == "out of memory in Backward, 512 MiB requested"
    (fit,) = report.fits
    assert fit.largest is not None
    assert (fit.largest.size, fit.is_settled) == (4, True)


def test_the_schema_in_the_documentation_is_that_of_the_program() -> None:
    written = (ROOT / "docs" / "seqlen.schema.json").read_text(encoding="utf-8")
    assert written == render_schema("seqlen"), "run `python docs/generate.py`"
