"""`vramscope estimate --factory` as a person calls it."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests import REPOSITORY
from tests.components import require_package
from tests.vramscope.cli.running import call
from vramscope.engine.files.memory_snapshot.reader import read_memory_snapshot
from vramscope.engine.units import MIB
from vramscope.estimates import find_gpu
from vramscope.exporters.schema import build_schema, render_schema

from ...analyzers.planning.steps.tracing import HERE, warm  # noqa: F401 - a fixture

require_package("torch")
DOCS = REPOSITORY / "docs"


def test_the_object_is_of_its_schema_and_the_snapshot_holds_the_peak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HERE)  # a module is looked for in the working folder
    path = tmp_path / "peak.pickle"
    outcome = call("estimate", "--factory", "trainings:plain", "--json", "--snapshot", str(path))
    assert outcome.code == 0, outcome.stderr
    found = json.loads(outcome.stdout)
    jsonschema.validate(found, build_schema("factory-estimate"))
    assert (DOCS / "factory-estimate.schema.json").read_text() == render_schema("factory-estimate")
    snapshot = read_memory_snapshot(path)
    assert snapshot.simulated is not None
    requested = [size for size in snapshot.blocks.requested_bytes if size > 0]
    assert sum(-(-size // 512) * 512 for size in requested) == found["live_peak_bytes"]
    assert len(snapshot.stacks) > 1


def test_the_text_says_that_it_is_an_estimate_and_where_the_card_is_too_small(
    warm: list[str],  # noqa: F811 - the fixture
) -> None:
    outcome = call(
        "estimate",
        "--factory",
        "trainings:checkpointed",
        "--batch-size",
        "64",
        "--capacity",
        "524MiB",
        "--context",
        "512MiB",
    )
    assert outcome.code == 0, outcome.stderr
    told = " ".join(outcome.stdout.split())
    assert "estimated, no GPU was used" in told
    assert "does not fit into 524 MiB, 512 MiB of it for what no tensor holds: out of memory in the" in told
    assert "as used, most likely" in told
    assert "trainings.py:" in told
    assert all(len(line) <= 80 for line in outcome.stdout.splitlines())


def test_a_kind_of_gpu_is_the_capacity_and_narrows_the_context(
    warm: list[str],  # noqa: F811 - the fixture
) -> None:
    def estimate(*words: str) -> dict[str, Any]:
        outcome = call("estimate", "--factory", "trainings:plain", *words, "--json")
        assert outcome.code == 0, outcome.stderr
        found: dict[str, Any] = json.loads(outcome.stdout)
        return found

    wide = estimate("--capacity", "24GiB")["outside"][0]
    on_ada = estimate("--gpu", "RTX 4090")
    narrow = on_ada["outside"][0]
    assert (on_ada["gpu"], on_ada["capacity"]["capacity_bytes"]) == ("RTX 4090", 24564 * MIB)
    assert wide["least_bytes"] < narrow["least_bytes"] < narrow["most_bytes"] < wide["most_bytes"]
    assert narrow["least_bytes"] == pytest.approx(386 * MIB, rel=0.01), "what an RTX 4090 was seen with"
    assert estimate("--gpu", "h100", "--capacity", "8GiB")["capacity"]["capacity_bytes"] == 8 << 30
    assert find_gpu("a100")[1] is None, "it has two sizes"

    told = " ".join(call("estimate", "--factory", "trainings:plain", "--gpu", "t4").stdout.split())
    assert "A card of the kind T4 with room would show" in told
    assert "no context was measured on a GPU of compute capability 7.5" in told


def test_a_script_finds_the_gpu_that_was_asked_for(
    warm: list[str],  # noqa: F811 - the fixture
) -> None:
    call("estimate", "--factory", "trainings:naming", "--gpu", "h200")
    assert warm[-1] == "capability 9.0 of 132\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--factory", "a:b", "--tp", "2"], "--tp does not go with --factory"),
        (["--factory", "a:b", "--gpu", "h10"], "device 'h10' is unknown: did you mean h100"),
        (["--factory", "a:b", "--gpu", "mi300x"], "is not a GPU of CUDA"),
        (["--model", "llama2-7b", "--layers", "3"], "--layers needs --factory"),
        (["--model", "llama2-7b", "--context", "1GiB"], "--context needs --factory"),
        (["--factory", "a:b", "--full"], "--full needs --layers"),
        (["--factory", "a:b", "--layers", "3", "--snapshot", "x"], "--snapshot with --layers needs --full"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(words: list[str], said: str) -> None:
    outcome = call("estimate", *words)
    assert outcome.code == 2
    assert said in outcome.stderr
