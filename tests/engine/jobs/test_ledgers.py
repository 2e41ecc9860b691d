"""Ledgers of jobs that have ended are removed; of one that runs, or has just begun, never."""

import os
import time
from pathlib import Path

import pytest

from vramscope.engine.jobs.launch import UNTOUCHED_S, sweep_ledgers
from vramscope.engine.simulation.ledger import CardLedger, list_living

LATER_S = UNTOUCHED_S + 60.0


@pytest.fixture
def ledgers(tmp_path: Path) -> Path:
    """Two jobs: this process lives on the card of one, and has left that of the other."""
    for job in ("living", "ended"):
        card = CardLedger(str(tmp_path / job), 0, 1000)
        assert card.reserve(10)
        if job == "ended":
            card.close()
    return tmp_path


def test_only_a_job_that_ended_long_ago_is_removed(ledgers: Path) -> None:
    sweep_ledgers(ledgers)
    assert {path.name for path in ledgers.iterdir()} == {"living", "ended"}
    sweep_ledgers(ledgers, now_s=time.time() + LATER_S)
    assert [path.name for path in ledgers.iterdir()] == ["living"]
    assert list_living(ledgers / "living" / "card-0.ledger") == [os.getpid()]


def test_a_folder_that_is_not_there_or_holds_something_else_is_no_trouble(tmp_path: Path) -> None:
    sweep_ledgers(tmp_path / "nowhere")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "card-0.ledger").write_bytes(b"short")
    (tmp_path / "a file").write_text("")
    sweep_ledgers(tmp_path, now_s=time.time() + LATER_S)
    assert [path.name for path in tmp_path.iterdir()] == ["a file"]
