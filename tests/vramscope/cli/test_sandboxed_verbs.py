"""Verbs that read files of others do all their work confined; `tests/engine/sandbox` tries to break out."""

import json
import subprocess
import sys
from pathlib import Path

from tests.analyzers.planning.cluster.test_clusters import write_profiles
from tests.analyzers.planning.sweep.original import write_original
from tests.analyzers.planning.theory.test_configs import HUGGING_FACE
from tests.engine.files.snapshots import small_snapshot, write_snapshot
from tests.engine.recording.samples import IDENTITY, make_sample
from vramscope.engine.recording import RecordingWriter

from .running import Outcome, environment, run
from .suite.running import read_report, write_series


def done(outcome: Outcome) -> str:
    assert outcome.code == 0, outcome.stderr
    return outcome.stdout


def test_a_series_is_imported_exported_and_drawn(tmp_path: Path) -> None:
    series, recording = write_series(tmp_path / "series.csv", seconds=9), tmp_path / "run.vscope"
    done(run("import", str(series), "-o", str(recording)))
    assert done(run("export", str(recording), "--prometheus")).endswith("# EOF\n")
    done(run("export", str(recording), "--figure", f"{tmp_path}/new/"))
    assert list((tmp_path / "new").iterdir())
    archive = tmp_path / "reports" / "here"
    done(run("profile", "--input", str(series), "--every", "5s", "--archive", str(archive)))
    assert sum(read_report(path, "profile")["evidence"]["samples"] for path in archive.iterdir()) == 9
    assert '"schema":"vramscope.difference/' in done(run("diff", str(series), str(recording), "--json"))


def test_the_first_figure_of_a_user_is_drawn_without_a_warning_of_matplotlib(tmp_path: Path) -> None:
    series, recording = write_series(tmp_path / "series.csv", seconds=9), tmp_path / "run.vscope"
    done(run("import", str(series), "-o", str(recording)))
    fresh = environment(HOME=str(tmp_path / "home"))
    for name in ("MPLCONFIGDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        fresh.pop(name, None)
    (tmp_path / "figures").mkdir()
    # A process that has never loaded Matplotlib, and may not write at home.
    words = [sys.executable, "-m", "vramscope", "export", str(recording), "--figure", "run.pdf"]
    drawn = subprocess.run(
        words, cwd=tmp_path / "figures", env=fresh, capture_output=True, text=True, timeout=60, check=True
    )
    assert drawn.stderr == "vramscope export: wrote the figure run.pdf\n"
    # The list is made once, and not again by the next figure: nothing that is confined writes there.
    [fonts] = (tmp_path / "home/.cache/matplotlib").glob("fontlist*")
    before = fonts.stat()
    drawn = subprocess.run(
        words, cwd=tmp_path / "figures", env=fresh, capture_output=True, text=True, timeout=60, check=True
    )
    assert drawn.stderr == "vramscope export: wrote the figure run.pdf\n"
    assert (fonts.stat().st_ino, fonts.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_snapshot_is_decoded_by_a_process_within(tmp_path: Path) -> None:
    snapshot = write_snapshot(tmp_path, small_snapshot())
    assert '"schema":"vramscope.snapshot/' in done(run("inspect", str(snapshot), "--json"))


def test_an_estimate_of_a_models_configuration_is_computed_and_drawn(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(HUGGING_FACE))
    report = done(run("estimate", "--model", str(config), "--json", "--figure", str(tmp_path / "fit.png")))
    assert '"peak_bytes":' in report
    assert (tmp_path / "fit.png").stat().st_size > 0


def test_a_link_is_followed_to_the_file_itself(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    series = write_series(tmp_path / "far" / "series.csv", seconds=9)
    (tmp_path / "link.csv").symlink_to(series)
    report = done(run("oom", "--input", str(tmp_path / "link.csv"), "--format", "json"))
    assert '"schema": "vramscope.oom/' in report


def test_a_recording_that_is_being_written_is_read_with_its_newest_samples(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    with RecordingWriter(path, IDENTITY) as writer:
        for tick in range(5):
            writer.append(make_sample(tick, 1))
        writer.flush()
        assert path.with_name("run.vscope-wal").exists()
        lines = done(run("export", str(path), "--csv")).splitlines()
        (tmp_path / "copy.vscope").write_bytes(path.read_bytes())
    assert len(lines) == 1 + 5
    copied = run("export", str(tmp_path / "copy.vscope"), "--csv")
    assert (copied.code, copied.stdout) == (2, "")
    assert copied.stderr == (
        f"vramscope: {tmp_path}/copy.vscope: no samples to export; it was copied while it was written; "
        "copy copy.vscope-wal too, or copy it again\n"
    )


def test_a_plan_is_written_and_drawn_into_new_folders_and_an_old_one(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(HUGGING_FACE))
    plans, graphs = tmp_path / "new" / "plans", tmp_path / "graphs"
    graphs.mkdir()
    (graphs / "mine.toml").write_text("")
    words = ["plan", "--model", str(config), "--stages", "2", "-o", str(plans)]
    for _ in range(2):  # its own files are replaced
        done(run(*words, "--figure", str(tmp_path / "stages.svg"), "--graph-figure", f"{graphs}/"))
    assert {"torchtitan.toml", "best_partition_strategy.json"} <= {it.name for it in plans.iterdir()}
    assert (tmp_path / "stages.svg").read_bytes()
    assert len(list(graphs.iterdir())) > 1


def test_a_cluster_file_is_read_with_the_profiles_that_it_names(tmp_path: Path) -> None:
    write_profiles(tmp_path / "hardware")
    cluster = tmp_path / "cluster.toml"
    cluster.write_text('galvatron = "hardware"\n[[nodes]]\ndevice = "a100-80gb"\ndevices = 4\n')
    words = ["plan", "--model", "llama3-8b", "--global-batch", "16", "--json"]
    report = json.loads(done(run(*words, "--cluster", str(cluster))))
    assert report["schema"] == "vramscope.joint-plan/1"


def test_a_batch_of_heat_maps_reads_and_writes_what_its_file_names(tmp_path: Path) -> None:
    memory_dir, log_dir = write_original(tmp_path / "given")
    (tmp_path / "batches").mkdir()
    batch = tmp_path / "batches" / "sweep.toml"
    batch.write_text(
        f'memory_dir = "{memory_dir}"\nlog_dir = "{log_dir}"\noutput = "../figures/heat"\n'
        "[variants.small]\ndpi = 50\n"
    )
    done(run("heatmap", "--batch", str(batch)))
    endings = {it.name.removeprefix("heat_small.") for it in (tmp_path / "figures").iterdir()}
    assert endings == {"png", "pdf", "svg", "csv", "html", "alt.txt"}
    batch.write_text(batch.read_text().replace("dpi", "dqi"))
    wrong = run("heatmap", "--batch", str(batch))
    assert (wrong.code, "did you mean dpi" in wrong.stderr) == (2, True)
