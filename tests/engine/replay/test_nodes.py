"""Several nodes on one clock: each with its own past, its own verdicts and its own holes."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tests.vramscope.cli.running import run
from vramscope.cli.verbs.import_ import Importer
from vramscope.engine.agent.analyzer_host import AnalyzerHost
from vramscope.engine.errors import InputFileError
from vramscope.engine.model import Sample
from vramscope.engine.recording import Recording, RecordingIdentity, RecordingWriter
from vramscope.engine.recording.series import RecordingSeries
from vramscope.engine.replay.player import ReplayOptions
from vramscope.engine.replay.tapes import open_tapes

from .recordings import START_S, Played, fresh_analyzers, grow, record

PAUSED = ReplayOptions(is_paused=True)


def _of(node: str, seqs: range, *, shift: int = 0) -> list[Sample]:
    """Return the samples of a node at some seconds; `shift` moves what fills up."""
    at = {seq: grow(seq + shift) for seq in seqs}
    return [
        msgspec.structs.replace(sample, node=node, seq=seq, time_s=START_S + seq)
        for seq, sample in at.items()
    ]


def _two_nodes(folder: Path) -> list[Path]:
    """Record a node of 300 seconds, and one that begins later and ends earlier, in a file each."""
    record(folder / "a.vscope", _of("alpha", range(300)))
    record(folder / "b.vscope", _of("beta", range(100, 220), shift=130))
    return [folder / "a.vscope", folder / "b.vscope"]


def _look(played: Played, text: str, node: str) -> None:
    played.ask("go", text=text)
    played.ask("node", text=node)


def test_each_node_is_what_it_is_alone_and_says_where_it_has_nothing(tmp_path: Path) -> None:
    paths = _two_nodes(tmp_path)
    played, alone = Played(*open_tapes(paths), options=PAUSED), Played(paths[1], options=PAUSED)
    _look(played, "50s", "beta")
    told = played.player.snapshot
    assert (told.node, told.connection, told.sample, told.reason) == (
        "beta",
        "connecting",
        None,
        "its recording begins 50 s later",
    )
    for second in (190, 110, 215):
        played.ask("go", text=f"{second}s")
        alone.ask("go", text=f"{second - 100}s")
        assert played.player.snapshot.connection == "live"
        assert played.sample == alone.sample
        assert played.player.snapshot.findings == alone.player.snapshot.findings
        assert list(played.history.samples()) == list(alone.history.samples())
    _look(played, "250s", "beta")
    told = played.player.snapshot
    assert (told.connection, told.silent_s, told.reason) == ("lost", 31.0, "its recording has ended")
    assert told.sample is not None
    assert told.sample.is_last
    _look(played, "250s", "alpha")
    assert played.player.snapshot.connection == "live"


def test_marks_of_all_nodes_are_visited_and_bring_their_node(tmp_path: Path) -> None:
    played = Played(*open_tapes(_two_nodes(tmp_path)), options=PAUSED)
    marks = played.player.state.marks
    assert {mark.node for mark in marks} == {"alpha", "beta"}
    visited = []
    for _ in {(mark.time_s, mark.node) for mark in marks}:
        played.ask("mark", 1)
        word = played.player.state.word
        assert word is not None
        assert word.node == played.player.snapshot.node
        visited.append((played.player.state.position_s, word.node))
    assert visited == sorted({(mark.time_s, mark.node) for mark in marks})


def test_nodes_play_together_at_one_pace(tmp_path: Path) -> None:
    played = Played(*open_tapes(_two_nodes(tmp_path)), options=ReplayOptions(speed=4.0))
    played.let_pass(30)
    assert played.seconds == 120
    assert {it.node: it.connection for it in played.player.snapshots} == {"alpha": "live", "beta": "live"}
    times = {it.node: it.sample.time_s for it in played.player.snapshots if it.sample is not None}
    assert times["alpha"] == times["beta"]


def test_one_file_of_several_nodes_and_files_that_follow_one_another(tmp_path: Path) -> None:
    host = AnalyzerHost(fresh_analyzers())
    both = sorted(_of("alpha", range(200)) + _of("beta", range(50, 150)), key=lambda it: it.time_s)
    with RecordingWriter(tmp_path / "both.vscope", RecordingIdentity("alpha", START_S, "test")) as writer:
        for sample in both:
            writer.append(sample, host.observe(sample))
    tapes = open_tapes([tmp_path / "both.vscope"])
    assert {tape.node: len(list(tape.samples(0.0))) for tape in tapes} == {"alpha": 200, "beta": 100}
    samples = _of("gamma", range(350))
    files = _rotate(tmp_path / "run.vscope", samples)
    assert len(files) == 4
    (rotated,) = open_tapes(sorted(files, reverse=True))
    whole = Played(record(tmp_path / "whole.vscope", samples), options=PAUSED)
    played = Played(rotated, options=PAUSED)
    for text in ("90%", "20%"):
        played.ask("go", text=text)
        whole.ask("go", text=text)
        assert played.player.snapshot.findings == whole.player.snapshot.findings
        assert list(played.history.samples()) == list(whole.history.samples())


def _rotate(path: Path, samples: Sequence[Sample]) -> list[Path]:
    """Record into a file for each hundred samples, as `--rotate` does at a size."""
    host = AnalyzerHost(fresh_analyzers())
    identity = RecordingIdentity("gamma", START_S, "test", interval_s=1.0, series="one")
    series = RecordingSeries(path, identity, rotate_bytes=1)
    for number, sample in enumerate(samples, 1):
        series.append(sample)
        series.tell(sample.node, host.observe(sample))
        if number % 100 == 0:
            series.flush()
    series.close("it is over")
    return list(path.parent.glob(f"{path.stem}*{path.suffix}"))


def test_two_recordings_of_one_node_at_one_time_are_told_apart_and_two_clocks_are_refused(
    tmp_path: Path,
) -> None:
    record(tmp_path / "a.vscope", _of("alpha", range(100)))
    record(tmp_path / "b.vscope", _of("alpha", range(50, 150)))
    record(tmp_path / "later.vscope", _of("alpha", range(200, 250)))
    tapes = open_tapes([tmp_path / f"{name}.vscope" for name in ("a", "b", "later")])
    assert {tape.node: (tape.start_s - START_S, tape.end_s - START_S) for tape in tapes} == {
        "alpha (a.vscope)": (0, 249),
        "alpha (b.vscope)": (50, 149),
    }
    early = [msgspec.structs.replace(it, time_s=it.seq, clock="trace") for it in _of("alpha", range(9))]
    record(tmp_path / "trace.vscope", early)
    with pytest.raises(InputFileError, match=r"trace\.vscope: its times count from its own start"):
        open_tapes([tmp_path / "a.vscope", tmp_path / "trace.vscope"])


def test_what_is_imported_of_several_nodes_plays_with_all_of_them(tmp_path: Path) -> None:
    joined, lines = tmp_path / "joined.vscope", tmp_path / "lines.jsonl"
    for inputs, name in ((_two_nodes(tmp_path), "joined"), ([joined], "again"), ([lines], "kept")):
        if inputs == [lines]:
            lines.write_text(run("export", str(joined), "--jsonl").stdout)
        path = tmp_path / f"{name}.vscope"
        Importer(inputs, path, capacity_bytes=None, interval_s=None).run(is_quiet=True)
        tapes = open_tapes([path])
        assert {tape.node: len(list(tape.samples(0.0))) for tape in tapes} == {"alpha": 300, "beta": 120}
        with Recording(path) as recording:
            notes = [note for file in recording.identity.imported for note in file.notes]
            assert not [note for note in notes if "other node" in note]
