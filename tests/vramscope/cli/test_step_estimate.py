"""`vramscope estimate --factory` as a person calls it."""

import json
from pathlib import Path

import jsonschema
import pytest

from tests import REPOSITORY
from tests.components import require_package
from tests.vramscope.cli.running import call
from vramscope.engine.files.memory_snapshot.reader import read_memory_snapshot
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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--factory", "a:b", "--tp", "2"], "--tp does not go with --factory"),
        (["--factory", "a:b", "--gpu", "a100"], "--gpu does not go with --factory"),
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
