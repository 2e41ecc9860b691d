"""`vramscope import` and `export`: what others wrote becomes a recording, and that what others read."""

import csv
import json
import re
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from vramscope.cli.verbs.export import export_recording
from vramscope.cli.verbs.import_ import Importer
from vramscope.engine.errors import InputFileError, OutputFileError
from vramscope.engine.model import Sample
from vramscope.engine.recording import Recording

from ...engine.recording.samples import make_sample, write
from ...waiting import wait_until
from .running import call, run
from .test_stream import running

SERIES = "time_s,device,allocated_bytes,reserved_bytes,used_bytes,total_bytes,step\n"
LOG = "timestamp, index, memory.used [MiB], memory.total [MiB]\n"
TRACE_KEYS = ("timestamp_s", "reserved_memory_MB", "allocated_memory_MB")


def write_inputs(folder: Path) -> dict[str, Path]:
    """Write a small file of every format that is read; return them by format."""
    readings = [{"timestamp": 1.0 + at, "allocated": 5 << 20, "total": 80 << 30} for at in range(3)]
    trace = [dict(zip(TRACE_KEYS, (at / 10, 600.0, 500.0 + at), strict=True)) for at in range(3)]
    whole = json.dumps({"0": {"samples": trace, "peak_allocated_MB": 502.0}})
    texts = {
        "series CSV": ("a.csv", f"{SERIES}1,0,5,6,7,8,1\nnonsense,0,,,,,\n2,0,,,9,8,2\n3,0,,,9,8,2\n"),
        "nvidia-smi log": ("b.log", f"{LOG}2025/06/23 10:30:00.000, 0, 7 MiB, 81559 MiB\n"),
        "snapshot export": ("c.json", json.dumps({"snapshots": {"0": readings}})),
        "memory trace": ("memory_trace_rank1_wd8_tp2_pp4_exp1_expNumNone_l40_bs1.json", whole),
    }
    for name, text in texts.values():
        (folder / name).write_text(text)
    paths = {kind: folder / name for kind, (name, _) in texts.items()}
    write(folder / "kept.vscope", [make_sample(tick) for tick in range(3)])
    paths["recording"] = folder / "kept.vscope"
    return paths


def test_every_format_becomes_a_recording_that_says_of_what_it_was_made(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path)
    kept = call("export", str(inputs["recording"]), "--jsonl")
    inputs["status stream"] = tmp_path / "kept.jsonl"
    inputs["status stream"].write_text(kept.stdout)
    told = {}
    for kind, path in inputs.items():
        output = tmp_path / f"{path.name}.vscope"
        Importer([path], output, capacity_bytes=None, interval_s=None).run()
        with Recording(output) as recording:
            (made,) = recording.identity.imported
            told[made.format] = made.clock, made.is_simulated
            assert (made.path, made.format) == (str(path), kind)
            assert recording.sample_count == (1 if kind == "nvidia-smi log" else 3)
            assert not recording.is_unfinished
            if kind == "series CSV":
                assert any("time_s is 'nonsense', expected seconds" in note for note in made.notes)
            if kind in ("recording", "status stream"):
                assert [it.devices for it in recording.samples()] == [
                    make_sample(at).devices for at in range(3)
                ]
    assert told == {
        "series CSV": ("trace", None),
        "nvidia-smi log": ("wall", False),
        "snapshot export": ("trace", None),
        "memory trace": ("trace", True),
        "recording": ("wall", False),
        "status stream": ("wall", False),
    }


def test_ranks_are_joined_and_what_comes_out_again_is_what_went_in(tmp_path: Path) -> None:
    lines = [
        [f"{at + rank / 10},0,{at},,{at + 100 * rank},1000,{at}\n" for at in range(5)] for rank in range(2)
    ]
    for rank in range(2):
        (tmp_path / f"rank{rank}.csv").write_text(SERIES + "".join(lines[rank]))
    ranks = [str(tmp_path / f"rank{rank}.csv") for rank in range(2)]
    path, output = tmp_path / "run.vscope", tmp_path / "run.csv"
    done = call("import", *ranks, "-o", str(path))
    assert (done.code, done.stdout) == (0, ""), done.stderr
    assert "named by their files: rank0.csv/0 is 0, rank1.csv/0 is 1" in done.stderr
    assert re.search(rf"wrote 5 samples of 2 devices to {re.escape(str(path))} \(\d+ KiB\)", done.stderr)
    assert path.stat().st_mode & 0o777 == 0o600
    outcome = call("export", str(path), "--csv", "-o", str(output), "--from", "+1s", "--to", "3.1")
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, "", "")
    expected = [
        line.replace(",0,", f",rank{rank}.csv/0,", 1)
        for at in (1, 2, 3)
        for rank in (0, 1)
        for line in [lines[rank][at]]
    ]
    assert output.read_text().splitlines()[1:] == [_as_float(line) for line in expected[:]]
    assert sorted(it.name for it in tmp_path.iterdir()) == ["rank0.csv", "rank1.csv", "run.csv", "run.vscope"]
    report = call("leak", "--input", str(path))
    assert report.code == 0, report.stderr


def test_memory_traces_of_ranks_are_one_job_and_what_is_folded_is_said(tmp_path: Path) -> None:
    for rank in range(3):
        samples = [
            dict(zip(TRACE_KEYS, (at / 50, 600.0 + at % 7, 500.0 + rank), strict=True)) for at in range(60)
        ]
        name = f"memory_trace_rank{rank}_wd8_tp2_pp4_l40_bs1.json"
        (tmp_path / name).write_text(json.dumps({"0": {"samples": samples, "peak_allocated_MB": 502.0}}))
    ranks = sorted(str(path) for path in tmp_path.glob("*.json"))
    folded, whole = tmp_path / "folded.vscope", tmp_path / "whole.vscope"
    done = call("import", *ranks, "-o", str(folded))
    assert done.stderr.count("3 of 8 ranks are recorded here") == 1
    assert (
        "180 readings are merged into 39 ticks of 100 ms, each with last, minimum and maximum; "
        "`vramscope import --interval 20ms` keeps each"
    ) in done.stderr
    call("import", *ranks, "-o", str(whole), "--interval", "20ms")
    rows = [
        list(csv.DictReader(call("export", str(path), "--csv").stdout.splitlines()))
        for path in (folded, whole)
    ]
    assert [len(each) for each in rows] == [39, 180]
    peaks = [max(int(row["used_max_bytes"]) for row in each) for each in rows]
    assert peaks == [606 << 20, 606 << 20]


def test_figures_go_into_a_folder_that_is_made_where_it_is_missing(tmp_path: Path) -> None:
    path, folder = write_inputs(tmp_path)["recording"], tmp_path / "plots"
    outcome = call("export", str(path), "--figure", f"{folder}/")
    assert outcome.code == 0, outcome.stderr
    assert (folder / "memory_peaks.png").stat().st_size > 0
    outcome = call("export", str(path), "--figure", f"{tmp_path / 'none' / 'plots'}/")
    assert (outcome.code, outcome.stderr.count("\n")) == (2, 1)
    assert "there is no folder" in outcome.stderr


@pytest.mark.parametrize("ending", ["pdf", "png", "svg"])
def test_one_figure_goes_into_the_file_that_is_named_in_its_format(tmp_path: Path, ending: str) -> None:
    path, figure = write_inputs(tmp_path)["recording"], tmp_path / "out" / f"run.{ending}"
    figure.parent.mkdir()
    outcome = call("export", "--figure", str(figure), str(path))
    assert outcome.code == 0, outcome.stderr
    assert [it.name for it in figure.parent.iterdir()] == [figure.name]
    assert {"pdf": b"%PDF", "png": b"PNG", "svg": b"<svg"}[ending] in figure.read_bytes()[:1500]


def test_figures_are_written_nowhere_unasked_and_the_old_spelling_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, here = write_inputs(tmp_path)["recording"], tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    outcome = call("export", str(path), "--figure")
    assert outcome.code == 2
    assert (
        "--figure: expected a file (run.pdf, .png or .svg), or a folder for all figures (plots/)"
        in outcome.stderr
    )
    assert list(here.iterdir()) == []
    outcome = call("export", "--figure", str(path), "-o", "smi.png")
    assert outcome.code == 0, outcome.stderr
    assert (here / "smi.png").is_file()
    assert "--figure -o smi.png is an old spelling: use --figure smi.png" in outcome.stderr
    outcome = call("export", str(path), "--figure", "-o", "plots")
    assert outcome.code == 0, outcome.stderr
    assert (here / "plots" / "memory_peaks.png").is_file()
    outcome = call("export", str(path), "--figure", "plots.gif")
    assert (outcome.code, outcome.stderr.count("\n")) == (2, 1)
    assert "expected a name that ends in .pdf, .png or .svg, or a folder" in outcome.stderr


def _as_float(line: str) -> str:
    time, _, rest = line.strip().partition(",")
    device, allocated, reserved, used, total, step = rest.split(",")
    return f"{float(time)},{device},{allocated},{reserved},{used},{total},{step},{allocated},{used}"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["import", "nothere", "-o", "x.vscope"], "nothere: cannot be read: no such file or directory"),
        (["import", "a.csv", "./a.csv", "-o", "x.vscope"], "a.csv: given twice"),
        (
            ["import", "a.csv", "-o", "kept.vscope"],
            "kept.vscope: exists already; choose another file with -o",
        ),
        (
            ["import", "a.csv", "b.log", "-o", "x.vscope"],
            "a.csv: its times count from its own start, those of b.log from 1970",
        ),
        (
            ["export", "a.csv", "--csv"],
            "a.csv: a series of memory over time (CSV), which `vramscope export` does not read",
        ),
        (
            ["export", "kept.vscope"],
            "one of the arguments --csv --jsonl --prometheus --parquet --perfetto --figure",
        ),
        (["export", "kept.vscope", "--csv", "--from", "noon"], "--from noon: expected seconds, +TIME after"),
        (["export", "kept.vscope", "--csv", "--to", "5"], "no samples between --from and --to"),
        (["export", "kept.vscope", "--parquet"], "--parquet writes a binary file: name it with -o FILE"),
        (
            ["export", "kept.vscope", "--csv", "-o", "./kept.vscope"],
            "kept.vscope: this is the recording itself",
        ),
    ],
    ids=" ".join,
)
def test_what_cannot_be_done_is_said_in_one_line_and_leaves_nothing(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_inputs(tmp_path)
    before = sorted(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    outcome = run(*words)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert told in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_recording_of_which_nothing_is_left_is_no_export(tmp_path: Path) -> None:
    path, output = tmp_path / "run.vscope", tmp_path / "run.csv"
    write(path, [make_sample(tick) for tick in range(3)])
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("UPDATE blocks SET body = x'00'; UPDATE ticks SET sample = x'00'")
    with pytest.raises(InputFileError, match=r"run\.vscope: no sample can be exported: left out: .*3 "):
        export_recording(path, "csv", output, start=None, end=None)
    assert not output.exists()


def test_an_import_that_does_not_end_leaves_nothing(tmp_path: Path) -> None:
    path, output = tmp_path / "a.csv", tmp_path / "run.vscope"
    lines = "".join(f"{at},0,,,{at},,\n" for at in range(9_000))
    path.write_text(f"{SERIES}{lines}{'9' * 70_000}")
    with pytest.raises(InputFileError, match="line 9002: longer than 65,536 characters"):
        Importer([path], output, capacity_bytes=None, interval_s=None).run()
    assert list(tmp_path.iterdir()) == [path]
    path.write_text(f"{SERIES}{lines}")
    with pytest.raises(KeyboardInterrupt):
        _Interrupted([path], output, capacity_bytes=None, interval_s=None).run()
    assert list(tmp_path.iterdir()) == [path]
    output.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputFileError, match="a symbolic link to"):
        Importer([path], output, capacity_bytes=None, interval_s=None)


class _Interrupted(Importer):
    """Somebody presses Ctrl-C once some samples are written."""

    def _note(self, number: int | None, sample: Sample) -> None:
        super()._note(number, sample)
        if self._count == 2_000:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_export_that_is_ended_leaves_no_file_behind(number: signal.Signals, tmp_path: Path) -> None:
    recording, out = tmp_path / "run.vscope", tmp_path / "out"
    out.mkdir()
    write(recording, [make_sample(tick, 16) for tick in range(4000)])
    with running("export", str(recording), "--csv", "-o", str(out / "run.csv")) as process:
        wait_until(
            lambda: any(it.is_file() and it.stat().st_size for it in out.rglob("*")), what="the first bytes"
        )
        process.send_signal(number)
        assert process.wait(60) == 128 + number
    assert list(out.iterdir()) == []
