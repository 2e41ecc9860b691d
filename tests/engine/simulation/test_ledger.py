"""Processes on one card: together they never hold more than it has, and what the dead held is free again."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.structure.tree import ROOT
from vramscope.engine.simulation.ledger import CardLedger, read_start_time

HOLD = """
import sys
from vramscope.engine.simulation.ledger import CardLedger
ledger = CardLedger(sys.argv[1], 0, 1000)
for line in sys.stdin:
    verb, size = line.split()
    print(ledger.reserve(int(size)) if verb == "reserve" else ledger.release(int(size)), flush=True)
"""


class Holder:
    """Another process on the card."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, verb: str, size_bytes: int) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{verb} {size_bytes}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.communicate()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Holder]:
    holder = Holder(tmp_path)
    yield holder
    holder.end()


def test_processes_share_the_capacity(tmp_path: Path, other: Holder) -> None:
    ours = CardLedger(str(tmp_path), 0, 1000)
    assert other.ask("reserve", 700) == "True"
    assert not ours.reserve(400)
    assert ours.reserve(300)
    assert ours.holders() == {other.process.pid: 700, os.getpid(): 300}
    assert other.ask("release", 200) == "None"
    assert ours.free_bytes() == 200


def test_what_a_killed_process_held_is_free_again(tmp_path: Path, other: Holder) -> None:
    ours = CardLedger(str(tmp_path), 0, 1000)
    assert other.ask("reserve", 900) == "True"
    assert not ours.reserve(500)
    other.end(signal.SIGKILL)
    assert ours.reserve(500)
    assert ours.holders() == {os.getpid(): 500}


def test_a_pid_that_was_given_to_another_process_holds_nothing(tmp_path: Path) -> None:
    ledger = CardLedger(str(tmp_path), 0, 1000)
    assert ledger.reserve(600)
    content = bytearray((tmp_path / "card-0.ledger").read_bytes())
    started = read_start_time(os.getpid())
    assert started is not None
    position = content.index(started.to_bytes(8, sys.byteorder))
    content[position : position + 8] = (started - 1).to_bytes(8, sys.byteorder)
    (tmp_path / "card-0.ledger").write_bytes(content)
    assert CardLedger(str(tmp_path), 0, 1000).free_bytes() == 1000


def test_closing_gives_everything_back(tmp_path: Path) -> None:
    ledger = CardLedger(str(tmp_path), 0, 1000)
    assert ledger.reserve(600)
    ledger.close()
    assert ledger.free_bytes() == 1000


def test_a_card_of_another_size_is_refused_while_somebody_holds_it(
    tmp_path: Path, other: Holder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert other.ask("reserve", 100) == "True"
    with pytest.raises(SystemExit) as refused:
        CardLedger(str(tmp_path), 0, 2000)
    assert refused.value.code == 2
    said = capsys.readouterr().err
    assert f"a job that is still running (process {other.process.pid}), with a card of 1000 bytes" in said
    assert "expected 2000 bytes" in said


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_card_of_another_size_begins_anew_where_nobody_is_left(
    end: signal.Signals, tmp_path: Path, other: Holder
) -> None:
    assert other.ask("reserve", 900) == "True"
    other.end(end)
    larger = CardLedger(str(tmp_path), 0, 2000)
    assert larger.free_bytes() == 2000
    assert larger.reserve(1500)
    again = CardLedger(str(tmp_path), 0, 2000)
    assert again.free_bytes() == 500
    larger.close()
    assert CardLedger(str(tmp_path), 0, 1000).free_bytes() == 1000


def test_a_file_of_another_version_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "card-0.ledger").write_bytes(b"vrledg99" + bytes(20000))
    with pytest.raises(SystemExit):
        CardLedger(str(tmp_path), 0, 1000)
    assert "was written by another version of vramscope" in capsys.readouterr().err


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-400, 600), max_size=40))
def test_the_sum_is_kept_whatever_comes_and_goes(
    tmp_path_factory: pytest.TempPathFactory, changes: list[int]
) -> None:
    ledger = CardLedger(str(tmp_path_factory.mktemp("ledger")), 0, 1000)
    held = 0
    for change in changes:
        if change >= 0:
            assert ledger.reserve(change) == (held + change <= 1000)
            held += change if held + change <= 1000 else 0
        elif held >= -change:
            ledger.release(-change)
            held += change
        assert ledger.free_bytes() == 1000 - held
