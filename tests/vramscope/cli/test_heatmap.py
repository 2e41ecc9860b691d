"""`vramscope heatmap` and `MemoryHeatmapVisualizer`: the original's command line, files and mistakes."""

import csv
import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import vramscope
from vramscope.cli.application import run
from vramscope.engine.errors import OutputFileError, UsageError

from ...analyzers.planning.sweep.original import LOG_NAME, name_trace, trace_text, write_original
from ...analyzers.planning.sweep.trees import SMALL_LOG, write_tree

CELL_KEYS = ["tp", "pp", "dp", "state", "actual_gb", "theory_gb", "error_percent", "mispredicted"]
ADDED_KEYS = ["iteration", "simulated"]


@pytest.fixture
def sweep(tmp_path: Path) -> list[str]:
    memory_dir, log_dir = write_original(tmp_path)
    return ["--memory-dir", str(memory_dir), "--log-dir", str(log_dir)]


def test_the_command_line_of_the_original_writes_all_files_and_says_what_it_found(
    sweep: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "visualization_outputs" / "memory_heatmap.v1.png"
    assert run(["heatmap", *sweep, "--output", str(output), "--dpi", "100"]) == 0
    printed, told = capsys.readouterr()
    endings = ("png", "pdf", "svg", "csv", "html", "alt.txt")
    names = [f"memory_heatmap.v1.{ending}" for ending in endings]
    assert sorted(path.name for path in output.parent.iterdir()) == sorted(names)
    assert printed.splitlines()[0] == "24 layouts (8,192 GPUs): 6 ran, 6 out of memory, 12 failed"
    assert printed.splitlines()[2:7] == [
        "        PP 2      4      8     16     32     64",
        "  TP 1   OOM    OOM    OOM    OOM    OOM    OOM",
        "  TP 2  fail   fail   fail   fail   fail   57.3!",
        "  TP 4  fail   fail   fail   fail   76.0!  29.1",
        "  TP 8  fail   fail   fail   73.6!  38.4  [15.0]",
    ]
    assert printed.splitlines()[-6:] == [str(output.parent / name) for name in names]
    assert "485B" in told
    rows = list(csv.DictReader(output.with_suffix(".csv").read_text().splitlines()))
    assert len(rows) == 24
    (row,) = [row for row in rows if (row["tp"], row["pp"]) == ("2", "64")]
    assert [row[key] for key in CELL_KEYS] == [
        "2",
        "64",
        "64",
        "ok",
        "57.3405",
        "136.918",
        "138.7805",
        "true",
    ]
    text = output.with_name("memory_heatmap.v1.alt.txt").read_text()
    assert "TP 2, PP 64: ran, 57.3 GiB, predicted 136.9 GiB (+139 %), ruled out by the theory" in text
    assert "TP 1, PP 2: out of memory: torch.OutOfMemoryError: CUDA out of memory." in text


def test_the_page_has_every_layout_and_loads_nothing(sweep: list[str], tmp_path: Path) -> None:
    assert run(["heatmap", *sweep, "--output", str(tmp_path / "heat"), "--dpi", "50"]) == 0
    page = (tmp_path / "heat.html").read_text()
    assert not re.search(r"https?:|src=|url\(|<script|@import", page)
    fields = re.findall(r'<td class="([^"]*)" style="[^"]*" title="([^"]*)">', page)
    assert len(fields) == 24
    assert [words for names, words in fields if "best" in names] == [
        "TP 8, PP 64: ran, 15.0 GiB, predicted 34.2 GiB (+128 %)"
    ]
    assert page.count("<tr><td>") == 24
    assert "137" not in re.findall(r'class="peak">([^<]*)<', page)
    assert "136.9" in re.findall(r'class="theory">([^<]*)<', page)


def test_layouts_of_several_dp_are_all_told_and_the_figure_says_what_it_shows(
    sweep: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = name_trace(8, 64).replace("wd8192", "wd4096").replace("dp16", "dp8")
    (Path(sweep[1]) / name).write_text(trace_text(20480.0))
    assert run(["heatmap", *sweep, "--output", str(tmp_path / "x"), "--dpi", "50"]) == 0
    printed, told = capsys.readouterr()
    assert "38.4   20.0" in printed
    assert "layouts that share TP and PP with another one: 1;" in told
    assert "several world sizes: 4,096, 8,192" in told
    assert len((tmp_path / "x.csv").read_text().splitlines()) == 26


def test_a_grid_that_is_too_wide_for_the_terminal_is_left_to_the_figure(
    sweep: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert run(["heatmap", *sweep, "--output", str(tmp_path / "x"), "--dpi", "50", "--ascii"]) == 0
    printed = capsys.readouterr().out
    assert "OOM" not in printed
    assert "TP 8 x PP 64 needs least" in printed
    assert all(len(line) <= 40 for line in printed.splitlines() if not line.startswith("/"))


def test_json_has_cells_best_and_findings_and_loads_nothing_heavy(sweep: list[str]) -> None:
    code = (
        "import sys; from vramscope.cli.application import run; code = run(sys.argv[1:]);"
        "heavy = [it for it in ('matplotlib', 'numpy', 'rich', 'textual', 'zmq') if it in sys.modules];"
        "sys.exit(code or ' '.join(heavy) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "heatmap", *sweep, "--json"],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    (line,) = done.stdout.splitlines()
    report = json.loads(line)
    assert report["schema"] == "vramscope.heatmap/1"
    assert all(list(cell) == CELL_KEYS + ADDED_KEYS for cell in report["cells"])
    states = [cell["state"] for cell in report["cells"]]
    assert [states.count(state) for state in ("ok", "oom", "failed")] == [6, 6, 12]
    assert [(cell["tp"], cell["pp"]) for cell in report["cells"] if cell["mispredicted"]] == [
        (2, 64),
        (4, 32),
        (8, 16),
    ]
    assert (report["best"]["tp"], report["best"]["pp"], report["best"]["actual_gb"]) == (8, 64, 15.0)
    assert {finding["kind"] for finding in report["findings"]} >= {"best", "trend", "failures", "prediction"}
    assert report["skipped"] == []


def test_a_batch_makes_three_variants_and_says_how_far_it_is(
    sweep: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = tmp_path / "sweep.toml"
    batch.write_text(
        f'memory_dir = "{sweep[1]}"\nlog_dir = "log"\noutput = "figures/heat"\nstyle = "original"\n'
    )
    assert run(["heatmap", "--batch", str(batch)]) == 0
    told = capsys.readouterr().err
    sizes = [
        struct.unpack(">II", (tmp_path / "figures" / f"heat_{name}.png").read_bytes()[16:24])
        for name in ("standard", "highres", "compact")
    ]
    assert sizes == [(2400, 800), (4800, 1600), (1800, 600)]
    assert "3 of 3 figures drawn" in told


def test_variants_of_a_batch_are_those_it_names(sweep: list[str], tmp_path: Path) -> None:
    batch = tmp_path / "sweep.toml"
    batch.write_text(
        f'memory_dir = "{sweep[1]}"\noutput = "heat.png"\n[variants.talk]\nfigsize = [6, 3]\ndpi = 50\n'
    )
    assert run(["heatmap", "--batch", str(batch), "--json"]) == 0
    assert sorted(path.name for path in tmp_path.glob("heat*.png")) == ["heat_talk.png"]
    assert struct.unpack(">II", (tmp_path / "heat_talk.png").read_bytes()[16:24]) == (300, 150)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('stile = "usenix"', "stile: unknown key; did you mean style?"),
        ("[variants.a]\nDPI = 3", "variants.a.DPI: unknown key"),
        ('[variants."../a"]\ndpi = 50', "expected a name of letters"),
        ("max_memory = -1", "max_memory"),
        ("style = ", "not TOML"),
    ],
)
def test_mistakes_in_a_batch_are_named(
    sweep: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, words: str
) -> None:
    batch = tmp_path / "sweep.toml"
    batch.write_text(f'memory_dir = "{sweep[1]}"\noutput = "x"\n{content}\n')
    assert run(["heatmap", "--batch", str(batch)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--figure", "x/"], "--memory-dir is missing"),
        (["--memory-dir", ".", "--figure", "no/such/x/"], "no folder no/such"),
        (["--memory-dir", "no-such", "--figure", "x/"], "no-such: cannot be read"),
        (["--memory-dir", ".", "--figure", "x/"], "no memory trace"),
        (
            ["--memory-dir", ".", "--figure", "x/", "--capacity", "much"],
            "--capacity much: not a size",
        ),
        (
            ["--memory-dir", ".", "--figure", "x/", "--figsize", "3", "nan"],
            "--figsize nan: expected a number",
        ),
        (["--batch", "x.toml", "--dpi", "300"], "--dpi does not go with --batch"),
    ],
)
def test_mistakes_are_told_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["heatmap", *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def write_iterations(path: Path, *peaks_gib: float) -> None:
    """Write a trace whose iterations have these peaks."""
    iterations = {
        str(number): {"samples": [], "peak_allocated_MB": peak * 1024}
        for number, peak in enumerate(peaks_gib)
    }
    path.write_text(json.dumps(iterations))


def test_a_peak_after_the_first_iteration_is_drawn_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_iterations(tmp_path / "memory_trace_rank0_wd8_tp2_pp4_l40_bs1.json", 51.2, 60.7, 60.6)
    write_iterations(tmp_path / "memory_trace_rank0_wd8_tp4_pp2_l40_bs1.json", 25.6, 31.0, 31.0)
    words = ["heatmap", "--memory-dir", str(tmp_path)]
    assert run([*words, "--json", "--capacity", "60GiB"]) == 0
    report = json.loads(capsys.readouterr().out)
    ran = {(it["tp"], it["actual_gb"], it["iteration"]) for it in report["cells"] if it["actual_gb"]}
    assert ran == {(2, 60.7, 1), (4, 31.0, 1)}
    assert any("with 60.0 GiB or more" in finding["text"] for finding in report["findings"])
    assert "after iteration 0: 2 of 2" in report["notes"][0]
    assert run([*words, "--output", str(tmp_path / "heat"), "--dpi", "50"]) == 0
    text = (tmp_path / "heat.alt.txt").read_text()
    assert "TP 2, PP 4: ran, 60.7 GiB in iteration 1 of 3" in text
    capsys.readouterr()
    assert run([*words, "--json", "--iteration", "0"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {it["actual_gb"] for it in report["cells"] if it["actual_gb"]} == {51.2, 25.6}
    assert report["notes"] == ["the peaks are those of iteration 0"]
    assert run([*words, "--json", "--iteration", "9"]) == 2
    assert "no trace has a peak in iteration 9" in capsys.readouterr().err
    for verb in (words, ["sweep", str(tmp_path)]):
        assert run([*verb, "--json", "--capacity", "30GiB"]) == 0, "that nothing fits is an answer"
        assert run([*verb, "--json", "--capacity", "30GiB", "--fail-on", "unfit"]) == 3
        assert run([*verb, "--json", "--capacity", "40GiB", "--fail-on", "unfit"]) == 0


def test_a_real_and_a_simulated_run_of_one_layout_are_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_iterations(tmp_path / "memory_trace_rank0_wd8_tp2_pp4_l40_bs1.json", 60.7)
    write_iterations(tmp_path / "memory_trace_rank0_wd8_tp2_pp4_exp1_expNumNone_l40_bs1.json", 55.0)
    words = ["heatmap", "--memory-dir", str(tmp_path)]
    assert run([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(it["actual_gb"], it["simulated"]) for it in report["cells"]] == [(60.7, False), (55.0, True)]
    assert report["best"]["actual_gb"] == 60.7
    assert "a real and a simulated run: 1" in report["notes"][0]
    assert run([*words, "--output", str(tmp_path / "heat"), "--dpi", "50"]) == 0
    text = (tmp_path / "heat.alt.txt").read_text()
    assert "TP 2, PP 4 (real): ran, 60.7 GiB" in text
    assert "TP 2, PP 4 (simulated): ran, 55.0 GiB" in text


def test_logs_of_another_sweep_are_never_joined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tree(tmp_path)
    large = tmp_path / "memory_traces_scaling" / "485B_8192gpus_tplimit8"
    words = ["heatmap", "--memory-dir", str(large), "--json", "--log-dir"]
    assert run([*words, str(tmp_path / "log")]) == 0
    report = json.loads(capsys.readouterr().out)
    states = [cell["state"] for cell in report["cells"]]
    assert [states.count(state) for state in ("ok", "oom", "failed")] == [6, 6, 12]
    assert any(f"{LOG_NAME} was read: paired by" in note for note in report["notes"])
    assert run([*words, str(tmp_path / "log" / SMALL_LOG)]) == 2
    told = capsys.readouterr().err
    assert "no logs in it belong to the traces" in told
    assert SMALL_LOG in told


def test_a_size_that_is_too_small_is_told(
    sweep: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["heatmap", *sweep, "--output", str(tmp_path / "x"), "--figsize", "1", "1"]) == 2
    assert "a figure of 1 x 1 in has no room" in capsys.readouterr().err
    assert not list(tmp_path.glob("x*"))


def test_broken_files_are_counted_and_listed(
    sweep: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = next(Path(sweep[1]).iterdir())
    broken.write_text(broken.read_text()[:50])
    assert run(["heatmap", *sweep, "--output", str(tmp_path / "x"), "--dpi", "50"]) == 0
    told = capsys.readouterr().err
    assert "files left out: 1\n" in told
    assert broken.name in told


def test_the_class_returns_a_figure_that_a_notebook_shows(sweep: list[str], tmp_path: Path) -> None:
    visualizer = vramscope.MemoryHeatmapVisualizer(sweep[1], Path(sweep[3]))
    figure = visualizer.create_heatmap(tmp_path / "heat", max_memory=40, dpi=50)
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    assert (tmp_path / "heat.pdf").is_file()
    assert sum(cell.mispredicted for cell in visualizer.report(max_memory=40).cells) == 5
    assert not visualizer.create_heatmap(style="original").get_size_inches()[0] < 8
    with pytest.raises(UsageError, match="expected one of usenix, original"):
        visualizer.create_heatmap(style="other")  # type: ignore[arg-type]
    with pytest.raises(OutputFileError, match="no folder"):
        visualizer.create_heatmap(tmp_path / "no" / "such" / "x")


def test_folders_of_several_models_are_refused_by_name_and_each_of_them_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces, log = write_tree(tmp_path) / "memory_traces_scaling", tmp_path / "log"
    for words in (["heatmap", "--memory-dir", str(traces)], ["replay", str(traces)]):
        for logs in ([], ["--log-dir", str(log)]):
            assert run([*words, *logs]) == 2
            told = capsys.readouterr().err
            assert "several sweeps" in told
            assert "175B_1024gpus (model 175B, 1,024 GPUs, 96 layers)" in told
            assert "485B_8192gpus_tplimit8 (model 485B, 8,192 GPUs, 96 layers)" in told
            assert f"choose one, such as {traces / '175B_1024gpus'}" in told
    for name in ("175B_1024gpus", "485B_8192gpus_tplimit8"):
        assert run(["heatmap", "--memory-dir", str(traces / name), "--log-dir", str(log)]) == 0


def test_logs_of_another_model_are_refused_by_what_they_miss_not_as_a_file_for_other_verbs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_tree(tmp_path)
    large = str(root / "memory_traces_scaling" / "485B_8192gpus_tplimit8")
    small = str(root / "log" / SMALL_LOG)
    for words in (["heatmap", "--memory-dir", large], ["replay", large]):
        assert run([*words, "--log-dir", small]) == 2
        told = capsys.readouterr().err
        assert "no logs in it belong to the traces" in told
        assert "does not read" not in told
    assert run(["heatmap", "--memory-dir", str(root)]) == 2
    assert "a folder of sweeps" in capsys.readouterr().err


def test_folders_of_one_model_side_by_side_are_one_grid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory_dir, _ = write_original(tmp_path)
    later = memory_dir.parent / "485B_again"
    later.mkdir()
    name = name_trace(8, 64)
    (memory_dir / name).rename(later / name)
    assert run(["heatmap", "--memory-dir", str(memory_dir.parent), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["cells"]) >= 6
