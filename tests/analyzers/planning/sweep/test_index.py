"""`vramscope sweep`: what is found and what belongs together, filter, order, table, JSON, figure."""

import json
import shutil
import time
from pathlib import Path

import msgspec
import pytest

from tests import REPOSITORY
from vramscope.analyzers.planning.sweep.index import INDEX_COLUMNS, SweepIndex, filter_sweeps, sort_sweeps
from vramscope.cli.application import run
from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.files.sweep import read_sweep
from vramscope.exporters.schema import build_schema, render_schema
from vramscope.exporters.sweep.figure import draw_multiples, name_panels
from vramscope.exporters.sweep.text import describe_index
from vramscope.sweeps import index_sweeps, name_folders

from .original import LOG_NAME, name_trace, trace_text, write_original
from .trees import SMALL, SMALL_LOG, name_small, write_tree


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("sweeps"))


@pytest.fixture(scope="module")
def index(tree: Path) -> SweepIndex:
    return index_sweeps([tree], 80.0)


def test_a_tree_is_told_apart_into_sweeps_that_say_how_they_were_paired(index: SweepIndex) -> None:
    small, large = index.sweeps
    assert (small.name, small.model, small.grid.world_size) == (SMALL, "175B", 1024)
    assert small.reason == "paired by model and world size"
    assert (large.model, large.grid.world_size, large.tried) == ("485B", 8192, 24)
    assert (
        "the layouts with a trace are those listed as successful, though named 485B and 540" in large.reason
    )
    assert [large.count(state) for state in ("ok", "oom", "failed")] == [6, 6, 12]
    assert large.best is not None
    assert large.best.place == (8, 64)
    assert large.errors is not None
    assert [round(value) for value in large.errors[:3]] == [11, 80, 139]
    assert index.notes == ()


def test_traces_and_logs_that_contradict_each_other_stay_apart(tmp_path: Path) -> None:
    write_tree(tmp_path)
    shutil.rmtree(tmp_path / "memory_traces_scaling" / SMALL)
    (tmp_path / "log" / LOG_NAME / "successful_configs.log").unlink()
    found = {sweep.name: sweep for sweep in index_sweeps([tmp_path], 80.0).sweeps}
    assert len(found) == 3
    assert found[SMALL_LOG].reason == "logs only: no traces belong to them"
    assert (found[SMALL_LOG].model, found[SMALL_LOG].memory_dir) == ("175", None)
    assert found["485B_8192gpus_tplimit8"].reason == "traces only: no logs belong to them"
    assert found["485B_8192gpus_tplimit8"].tried == 6


def test_what_failed_and_left_the_beginning_of_a_trace_parts_no_sweep(tmp_path: Path) -> None:
    memory_dir, _ = write_original(tmp_path)
    (memory_dir / name_trace(8, 8)).write_text('{"0": ')
    (sweep,) = index_sweeps([tmp_path], 80.0).sweeps
    assert "those listed as successful and 1 listed otherwise, though named 485B and 540" in sweep.reason
    assert [sweep.count(state) for state in ("ok", "oom", "failed")] == [6, 6, 12]


def test_folders_of_one_configuration_each_are_one_sweep(tmp_path: Path) -> None:
    for tp, pp in ((2, 4), (2, 8), (4, 4)):
        (tmp_path / f"30b_pp{pp}_tp{tp}").mkdir()
        (tmp_path / f"30b_pp{pp}_tp{tp}" / name_small(tp, pp)).write_text(trace_text(1000.0 * tp))
    (tmp_path / "7b_pp4_tp2").mkdir()
    (tmp_path / "7b_pp4_tp2" / name_small(2, 4)).write_text(trace_text(10.0))
    found = index_sweeps([tmp_path], 80.0).sweeps
    assert sorted((sweep.model, sweep.tried) for sweep in found) == [("30b", 3), ("7b", 1)]


def test_an_iteration_without_a_peak_is_passed_and_a_note_says_so(tmp_path: Path) -> None:
    blank = {"samples": [], "peak_allocated_MB": -1}
    told = {"samples": [], "peak_allocated_MB": 512.0, "theoretical_memory_MB": 600.0}
    (tmp_path / name_trace(2, 4)).write_text(json.dumps({"0": blank, "1": told, "2": told}))
    sweep = read_sweep(tmp_path)
    trace = sweep.configurations[0].trace
    assert trace is not None
    assert (trace.iteration, trace.peak_allocated_bytes) == (1, 512 << 20)
    assert sweep.notes == (
        "layouts whose peak comes after iteration 0: 1 of 1; the peak is the highest of all iterations",
    )


def test_filter_and_order(index: SweepIndex) -> None:
    def names(text: str) -> list[str]:
        return [sweep.name.partition("_")[0] for sweep in filter_sweeps(index.sweeps, text)]

    assert names("model=485") == names("gpus>1024 STATE=failed") == names("tplimit8") == ["485B"]
    assert names("gpus=1,024") == ["175B"]
    assert names("") == names("state=oom") == ["175B", "485B"]
    for wrong in ("gpus=many", "state=gone", "size=3", "model>4"):
        with pytest.raises(UsageError, match="expected"):
            filter_sweeps(index.sweeps, wrong)
    for column in INDEX_COLUMNS:
        ordered = sort_sweeps(index.sweeps, column)
        assert sorted(it.name for it in ordered) == sorted(it.name for it in index.sweeps)
        if column in ("sweep", "model", "gpus", "layouts", "failed", "best", "error"):
            assert sort_sweeps(index.sweeps, column, is_inverted=True) == ordered[::-1]
    assert sort_sweeps(index.sweeps, "best")[0].model == "175B"
    assert sort_sweeps(index.sweeps, "gpus")[0].model == "485B"


def test_names_have_as_many_parts_as_tell_them_apart() -> None:
    assert name_folders([("a", "x"), ("b", "x"), ("c", "y")]) == ["a/x", "b/x", "y"]
    assert name_folders([("a", "x"), ("a", "x")]) == ["a/x #1", "a/x #2"]


def test_sweeps_of_one_model_are_told_apart_in_table_and_figure(index: SweepIndex) -> None:
    names = ("monday/485B_8192gpus_tplimit8", "friday/485B_8192gpus_tplimit8")
    same = tuple(msgspec.structs.replace(index.sweeps[1], name=name) for name in names)
    text = describe_index(SweepIndex(same, ()), 80, found=2)
    rows = [line.split()[0] for line in text.splitlines() if "TP 8 PP 64  15.0" in line]
    assert len(set(rows)) == 2
    assert name_panels(same) == [f"{name} (simulated)" for name in names]
    assert name_panels(index.sweeps) == ["175B, 1,024 GPUs (simulated)", "485B, 8,192 GPUs (simulated)"]


def test_the_table_fits_its_width_and_says_what_each_sweep_is(index: SweepIndex) -> None:
    text = describe_index(index, 120, found=3)
    assert text.startswith("2 of 3 sweeps\n")
    (row,) = [line for line in text.splitlines() if line.startswith("  485B_8192gpus_tplimit8")]
    assert row.split()[1:9] == ["485B", "8,192", "TP", "8", "PP", "64", "15.0", "+11"]
    assert "played each rank (simulated)" in text
    assert all(len(line) <= 60 for line in describe_index(index, 60, found=2).splitlines())


def test_json_follows_its_schema_which_stands_in_the_documents(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sweep", str(tree), "--json", "--filter", "model=485B"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    report = json.loads(line)
    assert (REPOSITORY / "docs" / "sweep.schema.json").read_text("utf-8") == render_schema("sweep")
    definitions = build_schema("sweep")["$defs"]
    assert list(report) == definitions["IndexReport"]["required"]
    (sweep,) = report["sweeps"]
    assert list(sweep) == definitions["SweepReport"]["required"]
    assert (report["schema"], report["found"]) == ("vramscope.sweep/1", 2)
    assert (sweep["best"]["tp"], sweep["best"]["actual_gb"], sweep["simulated"]) == (8, 15.0, True)
    assert sweep["states"] == {"ok": 6, "oom": 6, "failed": 12, "not_run": 0, "invalid": 0, "running": 0}
    assert abs(sweep["modified_s"] - time.time()) < 1e6


def test_small_multiples_are_the_same_bytes_every_time(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sweep", str(tree), "--output", str(tmp_path / "a")]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"a.pdf", "a.svg", "a.png", "a.alt.txt"}
    assert f"{tmp_path / 'a.pdf'}" in capsys.readouterr().out
    assert "predicted 136.9 GiB" in (tmp_path / "a.alt.txt").read_text("utf-8")
    page = draw_multiples(index_sweeps([tree], 80.0).sweeps)
    assert page.render("pdf") == (tmp_path / "a.pdf").read_bytes()
    assert page.render("svg") == (tmp_path / "a.svg").read_bytes()
    assert b"/Type3" not in (tmp_path / "a.pdf").read_bytes()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["no-such"], "no-such: cannot be read"),
        (["."], ".: no sweep found; expected memory traces such as"),
        ([".", "--filter", "gpus=x"], "filter gpus=x: expected a number of GPUs"),
        ([".", "--capacity", "much"], "--capacity much: not a size"),
        ([".", "--json", "--table"], "--json does not go with --table"),
        ([".", "--figure", "no/such/x/"], "no folder no/such"),
    ],
)
def test_mistakes_are_told_in_one_line(
    words: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["sweep", *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_a_filter_that_lets_nothing_pass_says_so(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", str(tree), "--filter", "model=7B"]) == 0
    assert capsys.readouterr().out == "0 of 2 sweeps\n"


def test_a_sweep_of_which_nothing_can_be_read_is_told_and_the_others_are_listed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / name_trace(2, 4)).write_text("{")
    with pytest.raises(InputFileError, match="a: cannot read any of 1 memory traces; the first is"):
        index_sweeps([tmp_path], 80.0)
    write_original(tmp_path)
    index = index_sweeps([tmp_path], 80.0)
    assert len(index.sweeps) == 1
    assert index.notes[0].startswith("a: cannot read any of 1")


def test_one_broken_file_is_counted_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    memory_dir, _ = write_original(tmp_path)
    (memory_dir / name_trace(8, 64)).write_text('{"0": ')
    assert run(["sweep", str(tmp_path), "--json"]) == 0
    (sweep,) = msgspec.json.decode(capsys.readouterr().out)["sweeps"]
    assert [file["path"].rpartition("/")[2] for file in sweep["skipped"]] == [name_trace(8, 64)]
