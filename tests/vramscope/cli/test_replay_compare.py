"""`vramscope replay REAL SIM --compare`: how far a simulation is off, as text."""

from pathlib import Path

from tests.engine.replay.simulated_runs import write_pair

from .running import call, run


def test_errors_of_every_rank_are_printed(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    told = call("replay", str(pair.simulated), str(pair.real), "--compare")
    assert (told.code, told.stderr) == (0, "")
    rows = [line.split() for line in told.stdout.splitlines()]
    assert rows[2] == ["rank", "real", "MiB", "simulated", "MiB", "error", "least", "most", "iterations"]
    assert rows[3][:5] == ["0", "40,000.00", "40,200.00", "+0.500", "%"]
    assert rows[4][:5] == ["1", "40,000.00", "39,200.00", "-2.00", "%"]
    assert "The worst error is -2.00 %, of rank 1." in told.stdout
    assert call("replay", str(tmp_path), "--compare").stdout == told.stdout


def test_what_cannot_be_compared_is_refused_in_one_line(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    told = call("replay", str(pair.real), "--compare")
    assert (told.code, told.stdout) == (2, "")
    assert told.stderr.count("\n") == 1
    assert "expected the memory traces of a real run and of its simulation" in told.stderr


def test_missing_ranks_are_counted(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, simulated_ranks=1)
    told = run("replay", str(pair.real), str(pair.simulated), "--compare", COLUMNS="80", PYTHONUTF8="1")
    assert "Ranks that cannot be compared: 1." in told.stdout
    assert "—" in told.stdout
