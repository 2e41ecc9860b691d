"""Runs that play one after the other: which can be, and what is told of those that cannot."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.analyzers.planning.sweep.original import name_trace, trace_text, write_original
from tests.vramscope.cli.running import environment
from tests.vramscope.cli.terminals import TerminalRun
from vramscope.analyzers.planning.sweep import SweepCell
from vramscope.cli.application import run
from vramscope.cli.replay import DEFAULT_OPTIONS, find_sweep, list_entries, name_sweep, open_first, open_with
from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.replay.feed import Playlist, PlaylistEntry
from vramscope.engine.replay.tapes import Tape
from vramscope.sweeps import load_sweep

ABSENT = "ran out of memory"


def _make(kinds: str) -> Playlist:
    """Return runs that are called by letters: small ones play, large ones are broken, `-` has no trace."""

    def open_entry(entry: PlaylistEntry, on_read: Callable[[float], None]) -> Sequence[Tape]:
        if entry.name.isupper():
            raise InputFileError(f"{entry.name}.json: JSON is malformed")
        return ()

    entries = [
        PlaylistEntry(
            name=f"gap{at}" if kind == "-" else kind,
            state="ok",
            path=None if kind == "-" else Path(kind),
            absence=ABSENT,
        )
        for at, kind in enumerate(kinds)
    ]
    return Playlist(entries, open_entry)


def test_steps_go_from_run_to_run_and_stop_at_the_last() -> None:
    playlist = _make("-a--b-c-")
    assert [playlist.step(1, places) for places in (1, 2, 9, -1)] == [4, 6, 6, None]
    assert [playlist.find(at, 1) for at in range(8)] == [1, 1, 4, 4, 4, 6, 6, None]
    assert [playlist.find(at, -1) for at in range(3)] == [None, 1, 1]
    assert (playlist.part(4).number, playlist.part(4).total) == (2, 3)


def test_what_cannot_be_read_is_skipped_and_told_from_then_on() -> None:
    playlist = _make("aBCd")
    assert playlist.describe_passed(range(4)) == ""
    opened = playlist.open(1, 1)
    assert opened is not None
    assert opened.place == 3
    assert playlist.open(2, -1) == (0, ())
    assert playlist.describe_passed(range(1, 3)) == (
        "B is skipped: B.json: JSON is malformed. C is skipped: C.json: JSON is malformed."
    )
    assert playlist.part(3).total == 4


def test_those_without_traces_are_told_together() -> None:
    assert _make("-").describe_passed(range(1)) == "gap0 ran out of memory: no trace."
    assert _make("--").describe_passed(range(9)) == "gap0 and gap1 ran out of memory: no trace."
    assert _make("-a---").describe_passed(range(5)) == "gap0, gap2 and 2 more ran out of memory: no trace."


def test_beginning_where_nothing_plays_goes_on_then_back_then_is_told() -> None:
    assert open_first(_make("-aB-"), 0).place == 1
    assert open_first(_make("-aB-"), 2).place == 1
    with pytest.raises(InputFileError, match=r"can be played\. gap0 ran out.*B is skipped"):
        open_first(_make("-B"), 0)


def _cell(tp: int, dp: int, path: Path | None = None) -> SweepCell:
    return SweepCell(tp=tp, pp=1, dp=dp, state="oom" if path is None else "ok", path=path)


def test_dp_is_named_where_it_tells_configurations_apart() -> None:
    cells = [_cell(1, 4, Path("/s/t/a")), _cell(1, 8, Path("/s/t/b")), _cell(2, 4)]
    assert [entry.name for entry in list_entries(cells)] == ["TP 1 PP 1 DP 4", "TP 1 PP 1 DP 8", "TP 2 PP 1"]
    assert name_sweep(cells) == "t"
    assert name_sweep([_cell(1, 4, Path("/s/t/a")), _cell(1, 8, Path("/s/u/b"))]) == "s"


def test_all_recorded_ranks_of_a_configuration_play_and_broken_ones_are_noted(tmp_path: Path) -> None:
    memory_dir, log_dir = write_original(tmp_path)
    (memory_dir / name_trace(8, 64, rank=8)).write_text(trace_text(9000.0))
    (memory_dir / name_trace(8, 32, rank=8)).write_text("{")
    cells = load_sweep(memory_dir, log_dir, 80.0).grid.cells
    open_entry = open_with(DEFAULT_OPTIONS, name_sweep(cells))
    entries = {entry.name: entry for entry in list_entries(cells)}
    assert (entries["TP 1 PP 2"].path, entries["TP 1 PP 2"].absence) == (None, "ran out of memory")
    for name, ranks, told in (("TP 8 PP 64", [0, 8], None), ("TP 8 PP 32", [0], "other ranks are left out")):
        (tape,) = open_entry(entries[name], lambda _: None)
        samples = list(tape.samples(tape.start_s))
        assert tape.node == "485B_8192gpus_tplimit8"
        assert [device.index for device in samples[-1].devices] == ranks
        assert any(note == f"{name} of the sweep" for note in samples[0].notes)
        assert told is None or any(note.startswith(told) for note in samples[0].notes)


def test_a_folder_is_a_sweep_where_its_traces_are_of_several_configurations(tmp_path: Path) -> None:
    memory_dir, log_dir = write_original(tmp_path)
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / name_trace(2, 2)).write_text(trace_text(1.0))
    assert find_sweep([memory_dir], None) == (memory_dir, None)
    assert find_sweep([alone], None) is None
    assert find_sweep([alone], log_dir) == (alone, log_dir)
    assert find_sweep([memory_dir, alone], None) is None
    assert find_sweep([alone / name_trace(2, 2)], None) is None
    with pytest.raises(UsageError, match="--log-dir"):
        find_sweep([memory_dir, alone], log_dir)


def test_real_runs_beside_their_simulations_are_no_sweep(tmp_path: Path) -> None:
    for side, made in (("memory_traces", ""), ("memory_traces_scaling", "_exp1_expNumNone")):
        (tmp_path / side).mkdir()
        for pp in (2, 4):
            name = f"memory_trace_rank0_wd8_tp2_pp{pp}{made}_l40_bs1.json"
            (tmp_path / side / name).write_text(trace_text(1.0))
    assert find_sweep([tmp_path], None) is None
    assert find_sweep([tmp_path / "memory_traces"], None) == (tmp_path / "memory_traces", None)


def test_a_tree_with_one_sweep_in_it_is_that_sweep_with_its_logs(tmp_path: Path) -> None:
    memory_dir, log_dir = write_original(tmp_path / "first")
    assert find_sweep([tmp_path / "first"], None) == (memory_dir, log_dir)
    write_original(tmp_path / "second")
    with pytest.raises(UsageError, match=r"contains 2 sweeps: .*first.*second.*name one of them"):
        find_sweep([tmp_path], None)
    (tmp_path / "empty").mkdir()
    assert find_sweep([tmp_path / "empty"], None) is None


def test_the_verb_opens_a_sweep_and_tells_what_has_no_trace(tmp_path: Path) -> None:
    memory_dir, log_dir = write_original(tmp_path)
    (memory_dir / name_trace(8, 64)).write_text("{")
    command = [sys.executable, "-m", "vramscope", "replay", str(memory_dir), "--log-dir", str(log_dir)]
    with TerminalRun(command, environment(TERM="xterm-256color", COLUMNS="120", LINES="30")) as screen:
        screen.wait_for(b"ran out of memory: no trace.")
        screen.wait_for(b"TP 2 PP 64")
        screen.type(b"q")
        assert screen.wait_for_end() == 0
        assert b"files left out: 1" in screen.shown


def test_a_sweep_that_cannot_be_played_is_told_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory_dir, log_dir = write_original(tmp_path)
    assert run(["replay", str(memory_dir), "--compare"]) == 2
    assert "--compare: " in (told := capsys.readouterr().err)
    assert "has traces of a sweep; name the folder of one run" in told
    for path in memory_dir.iterdir():
        path.write_text("{")
    assert run(["replay", str(memory_dir), "--log-dir", str(log_dir)]) == 2
    told = capsys.readouterr().err
    assert "files left out: 6" in told
    assert "no configuration of the sweep has a trace that can be played. TP 1 PP 2, TP 1 PP 4" in told
