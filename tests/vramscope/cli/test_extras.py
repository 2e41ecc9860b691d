"""Without the packages of an extra: verbs that need one name the extra, and the extra exists."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests.structure.tree import ROOT
from vramscope.engine.extras import EXTRAS, find_missing_package
from vramscope.engine.recording import Recording

from ...engine.files.snapshots import small_snapshot, write_snapshot
from ...engine.recording.samples import make_sample, write
from .running import call


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the packages of the extra as if they were not installed."""
    for name, extra in EXTRAS.items():
        if extra == "figures":
            monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("without")
def test_a_verb_names_the_extra_that_brings_what_it_needs(tmp_path: Path) -> None:
    snapshot = write_snapshot(tmp_path, small_snapshot())
    for arguments, package in (
        (("inspect", str(snapshot)), "numpy"),
        (("plan", "--model", "gpt2", "--stages", "2"), "networkx"),
    ):
        outcome = call(*arguments)
        assert (outcome.code, outcome.stdout) == (4, "")
        assert outcome.stderr == (f"vramscope: this needs {package}: pip install 'vramscope[figures]'\n")


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        (("export", "run.vscope", "--parquet", "-o", "run.pq"), "pyarrow", "parquet"),
        (("exporter",), "prometheus_client", "prometheus"),
        (("exporter", "--web-config", "web.yml"), "bcrypt", "prometheus"),
        (("exporter", "--otlp"), "opentelemetry", "otel"),
        (("estimate", "--factory", "steps:make"), "torch", "train"),
        (("plan", "--factory", "steps:make", "--input", "4x8", "--stages", "2"), "torch", "train"),
        (("estimate", "--model", "gpt2", "--figure", "e.png"), "matplotlib", "figures"),
        (("modules", "no.pickle", "--figure", "m.png"), "matplotlib", "figures"),
        (("seqlen", "--seq-lengths", "8", "--figure", "s.png"), "matplotlib", "figures"),
        (("diff", "run.vscope", "run.vscope", "--figure", "d.png"), "matplotlib", "figures"),
    ],
    ids=lambda it: " ".join(it) if isinstance(it, tuple) else it,
)
def test_every_verb_ends_with_the_same_code_before_it_prints_or_writes(
    words: tuple[str, ...], package: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "run.vscope", [make_sample(tick) for tick in range(3)])
    (tmp_path / "web.yml").write_text("basic_auth_users:\n  alice: hash\n")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    hidden = [package, *([] if package != "torch" else ["jax"])]
    loaded = [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]
    for name in {*hidden, *(loaded if "opentelemetry" in hidden else [])}:
        monkeypatch.setitem(sys.modules, name, None)
    outcome = call(*words)
    assert (outcome.code, outcome.stdout) == (4, ""), outcome.stderr
    assert f"pip install 'vramscope[{extra}]'" in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "verb",
    [
        *("agent", "diff", "estimate", "export", "exporter", "fragment", "heatmap", "import", "inspect"),
        *("leak", "modules", "oom", "phases", "plan", "profile", "replay", "seqlen", "sweep"),
    ],
)
def test_the_help_of_each_verb_that_may_need_an_extra_has_that_exit_code(verb: str) -> None:
    codes = call(verb, "--help").stdout.partition("exit codes:")[2]
    assert re.search(r"\b4  .*of an extra is not\s+installed", codes, re.DOTALL), codes


@pytest.mark.parametrize("rows", [(), ("--ranks",), ("--serving",)], ids=str)
def test_parquet_is_refused_before_the_recording_is_read(
    rows: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording of a week is read for minutes before the first row group is written."""

    def read(*_: object) -> object:
        raise AssertionError("the recording was opened")

    monkeypatch.setattr(Recording, "__init__", read)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    output = tmp_path / "run.pq"
    outcome = call("export", "run.vscope", "--parquet", *rows, "-o", str(output))
    assert (outcome.code, outcome.stdout) == (4, "")
    assert outcome.stderr == ("vramscope: this needs pyarrow: pip install 'vramscope[parquet]'\n")
    assert not output.exists()


def test_mcp_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    # The part too, which a test before may have loaded.
    for name in ("mcp", "mcp.server", "anyio"):
        monkeypatch.setitem(sys.modules, name, None)
    outcome = call("mcp")
    assert (outcome.code, outcome.stdout) == (4, "")
    assert "pip install 'vramscope[mcp]'" in outcome.stderr


def test_an_import_of_ours_that_fails_is_no_missing_extra() -> None:
    assert find_missing_package(ModuleNotFoundError("no", name="vramscope.engine.nothing")) is None
    assert find_missing_package(ImportError("no", name="numpy")) is None


def test_extras_bring_what_they_are_named_for_and_the_program_needs_no_package_of_theirs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert {name_of(it) for it in project["dependencies"]}.isdisjoint(EXTRAS)
    for package, extra in EXTRAS.items():
        assert package in {name_of(it) for it in extras[extra]}
    (everything,) = extras["all"]
    assert set(re.findall(r"\w+", everything.partition("[")[2])) == {
        "amd",
        "figures",
        "kubernetes",
        "mcp",
        "otel",
        "parquet",
        "prometheus",
        "settings",
        "train",
    }


def name_of(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement)[0]
