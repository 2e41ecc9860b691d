"""What `vramscope replay` is given: every format that is known plays, and nothing is left behind."""

import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.engine.replay.recordings import grow, record
from tests.vramscope.cli.running import environment, run
from tests.vramscope.cli.terminals import TerminalRun
from tests.vramscope.cli.test_import_export import SERIES, write_inputs
from tests.waiting import wait_until
from vramscope.cli.replay import ReplayFiles
from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.model import Sample
from vramscope.engine.units import GIB


def _play(files: ReplayFiles) -> list[Sample]:
    (tape,) = files.open_tapes()
    try:
        return list(tape.samples(tape.start_s))
    finally:
        tape.close()


def test_every_format_plays_with_its_capacity_and_its_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "private").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "private"))
    inputs = write_inputs(tmp_path)
    for kind, path in inputs.items():
        samples = _play(ReplayFiles([path], capacity_bytes=90 * GIB))
        assert [sample.is_last for sample in samples] == [False] * (len(samples) - 1) + [True], kind
        assert all(device.memory.total_bytes for sample in samples for device in sample.devices), kind
        if kind == "series CSV":
            assert any("time_s is 'nonsense', expected seconds" in note for note in samples[0].notes)
        if kind == "memory trace":
            assert samples[0].devices[0].memory.total_bytes == 90 * GIB
    assert not list((tmp_path / "private").iterdir())


def test_files_of_ranks_are_joined_into_one_node(tmp_path: Path) -> None:
    folder = tmp_path / "run17"
    folder.mkdir()
    for rank in range(2):
        lines = "".join(f"{at},0,{at + rank},,,1000,{at}\n" for at in range(5))
        (folder / f"rank{rank}.csv").write_text(SERIES + lines)
    samples = _play(ReplayFiles([folder / "rank0.csv", folder / "rank1.csv"]))
    assert [[device.name for device in sample.devices] for sample in samples] == [
        ["rank0.csv", "rank1.csv"]
    ] * 5
    assert {sample.node for sample in samples} == {"run17"}


def test_what_cannot_be_played_is_told_in_one_line(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path)
    (tmp_path / "odd.txt").write_text("what is this\n")
    (tmp_path / "memory_trace_rank0_wd1_tp1_pp1_l1_bs1.json").write_text("{}")
    for path, told in (
        (tmp_path / "odd.txt", "not a header of a series"),
        (tmp_path / "gone.csv", "no such file"),
        (tmp_path, "has both recordings and memory traces"),
    ):
        with pytest.raises(InputFileError, match=told):
            ReplayFiles([path])
    with pytest.raises(UsageError, match="has no findings"):
        ReplayFiles([inputs["series CSV"]], is_as_recorded=True)
    outcome = run("replay", str(tmp_path / "odd.txt"))
    assert (outcome.code, len(outcome.stderr.splitlines())) == (2, 1)


def _end_by_signal(number: int) -> Callable[[TerminalRun], None]:
    return lambda screen: screen.process.send_signal(number)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda screen: screen.type(b"q"), 0),
        (_end_by_signal(signal.SIGTERM), 128 + signal.SIGTERM),
        (_end_by_signal(signal.SIGHUP), 128 + signal.SIGHUP),
    ],
)
def test_a_csv_opens_in_the_player_and_leaves_nothing(
    tmp_path: Path, end: Callable[[TerminalRun], None], code: int
) -> None:
    path, private = tmp_path / "gpu.csv", tmp_path / "private"
    private.mkdir()
    path.write_text(SERIES + "".join(f"{at},0,,,{5 << 30},{80 << 30},\n" for at in range(100)))
    command = [sys.executable, "-m", "vramscope", "replay", str(path)]
    variables = environment(TMPDIR=str(private), TERM="xterm-256color", COLUMNS="100", LINES="30")
    with TerminalRun(command, variables) as screen:
        screen.wait_for(b"gpu.csv")
        # The helper removes folders where the process is killed; what was read is not even in them.
        assert not list(private.rglob("*.vscope*"))
        end(screen)
        assert screen.wait_for_end() == code
    wait_until(lambda: not list(private.iterdir()), what="the helper to remove its folder")


def test_a_folder_of_recordings_and_a_file_of_another_tool_play_together(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path)
    nodes = tmp_path / "nodes"
    nodes.mkdir()
    for name in ("alpha", "beta"):
        samples = [msgspec.structs.replace(grow(seq), node=name, seq=seq) for seq in range(1, 20)]
        record(nodes / f"{name}.vscope", samples)
    tapes = ReplayFiles([nodes, inputs["nvidia-smi log"]]).open_tapes()
    assert [tape.node for tape in tapes] == ["alpha", "beta", "b.log"]
    for tape in tapes:
        tape.close()
    files = ReplayFiles([nodes, inputs["series CSV"]])
    with pytest.raises(InputFileError, match="its times count from its own start, those of"):
        files.open_tapes()
