"""Calibration: what it learns, what it is worth, and that it is named wherever it is used."""

import csv
import json
import random
import re
from pathlib import Path

import pytest

from vramscope.analyzers.planning.theory.calibration import Measured, fit_calibration
from vramscope.engine.errors import UsageError

from ....vramscope.cli.running import call

GIB = 1 << 30
HEADER = "case,num_layers,hidden,heads,seq,mbs,gbs,tp,pp,world_size,bf16\n"


def make_runs(count: int) -> list[Measured]:
    """Return runs that hold 300 MiB and a fifth of the activations more than predicted; each ninth is odd."""
    chance = random.Random(4)
    runs = []
    for turn in range(count):
        allocated, above = chance.randrange(GIB, 40 * GIB), chance.randrange(GIB, 20 * GIB)
        measured = allocated + 300 * 2**20
        factor = 3.0 if turn % 9 == 8 else 1.2
        runs.append(Measured(allocated, allocated + above, measured, measured + round(factor * above)))
    return runs


def test_it_learns_both_numbers_and_odd_runs_do_not_move_them() -> None:
    found = fit_calibration(make_runs(45))
    assert found.offset_bytes == 300 * 2**20
    assert found.activation_scale == pytest.approx(1.2, abs=1e-6)
    assert found.held_out_error_percent < found.plain_error_percent
    assert found.shift(GIB, 3 * GIB) == (GIB + 300 * 2**20, GIB + 300 * 2**20 + round(1.2 * 2 * GIB))


def test_too_few_runs_teach_nothing() -> None:
    with pytest.raises(UsageError, match="3 measured runs are too few"):
        fit_calibration(make_runs(3))


def test_it_is_kept_used_and_named(tmp_path: Path) -> None:
    cases, predicted = tmp_path / "cases.csv", tmp_path / "predicted.csv"
    rows = [f"c{mbs},12,512,8,1024,{mbs},{8 * mbs},1,1,8,True\n" for mbs in range(1, 7)]
    cases.write_text(HEADER + "".join(rows))
    assert call("estimate", "--batch", str(cases), "-o", str(predicted)).code == 0
    measured, kept = tmp_path / "measured.csv", tmp_path / "kept.json"
    with predicted.open() as source, measured.open("w") as target:
        writer = csv.writer(target)
        writer.writerow(
            [*HEADER.strip().split(","), "mem_allocated_last_bytes", "mem_max_allocated_peak_bytes"]
        )
        for row in csv.DictReader(source):
            allocated, peak = (int(row[f"predicted_{name}_bytes"]) for name in ("allocated", "peak"))
            figures = (allocated + 2**20, allocated + 2**20 + round(1.1 * (peak - allocated)))
            writer.writerow([row[name] for name in HEADER.strip().split(",")] + list(figures))
    outcome = call("calibrate", str(measured), "-o", str(kept))
    assert outcome.code == 0, outcome.stderr
    assert "+1.0 MiB between steps, activations x 1.100" in outcome.stderr
    assert json.loads(kept.read_text())["runs"] == 6
    plain, shifted = (
        call("estimate", "--model", "llama2-7b", "--json", *words).lines[0]
        for words in ((), ("--calibration", str(kept)))
    )
    assert plain["calibration"] is None
    assert shifted["calibration"]["source"] == "measured.csv"
    assert shifted["allocated_bytes"] == plain["allocated_bytes"] + 2**20
    assert shifted["peak_bytes"] > plain["peak_bytes"]
    assert (
        "calibrated by measured.csv"
        in call("estimate", "--model", "gpt2", "--calibration", str(kept), COLUMNS="120").stdout
    )
    refused = call("estimate", "--model", "gpt2", "--calibration", str(cases))
    assert refused.code == 2
    assert "a table of training runs (CSV), which `vramscope estimate --calibration` does not read" in (
        refused.stderr
    )
    huge = re.sub(r'("offset_bytes": ?)-?\d+', rf"\g<1>{'9' * 400}", kept.read_text())
    for text in ("{}", huge):
        (tmp_path / "other.json").write_text(text)
        refused = call("estimate", "--model", "gpt2", "--calibration", str(tmp_path / "other.json"))
        assert refused.code == 2
        assert "expected a file written by `vramscope calibrate -o`" in refused.stderr
    assert "offset_bytes is too large" in refused.stderr
