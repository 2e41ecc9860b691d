"""Who belongs to a process with device memory: its launchers up to a shell, and all that it has started."""

from pathlib import Path

import pytest

from tests.engine.sources.machine import FakeMachine
from vramscope.engine.sources.process_families import MOST_ANCESTORS, ProcessFamilies

SHELL, LAUNCHER, TRAINER, WORKER, HELPER, STRANGER = 10, 20, 30, 31, 32, 90


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    machine = FakeMachine(tmp_path / "root")
    machine.add_process(SHELL, name="bash", parent=1)
    machine.add_process(LAUNCHER, name="torchrun", parent=SHELL, command="torchrun\0train.py\0")
    machine.add_process(TRAINER, parent=LAUNCHER)
    machine.add_process(WORKER, name="pt_data_worker", parent=TRAINER, resident_pages=7)
    machine.add_process(HELPER, parent=WORKER)
    machine.add_process(STRANGER, parent=SHELL)
    return machine


def test_launchers_above_and_workers_below_but_no_shell_and_no_stranger(machine: FakeMachine) -> None:
    found = ProcessFamilies(machine.root).read([TRAINER])
    assert set(found) == {LAUNCHER, WORKER, HELPER}
    assert found[LAUNCHER].command == "torchrun train.py"
    assert (found[WORKER].parent_pid, found[WORKER].used_bytes) == (TRAINER, None)


def test_those_that_were_asked_for_are_not_their_own_relatives(machine: FakeMachine) -> None:
    assert set(ProcessFamilies(machine.root).read([TRAINER, LAUNCHER])) == {WORKER, HELPER}
    assert ProcessFamilies(machine.root).read([]) == {}


def test_a_program_that_a_shell_started_has_no_ancestors(machine: FakeMachine) -> None:
    assert ProcessFamilies(machine.root).read([STRANGER]) == {}


def test_a_chain_of_launchers_ends_somewhere(machine: FakeMachine) -> None:
    for pid in range(100, 130):
        machine.add_process(pid, parent=pid - 1)
    assert len(ProcessFamilies(machine.root).read([129])) == MOST_ANCESTORS


def test_what_cannot_be_read_is_left_out(machine: FakeMachine) -> None:
    machine.write(f"proc/{WORKER}/stat", "nonsense")
    assert set(ProcessFamilies(machine.root).read([TRAINER])) == {LAUNCHER}


def test_without_proc_there_are_no_relatives(tmp_path: Path) -> None:
    assert ProcessFamilies(tmp_path / "nowhere").read([TRAINER]) == {}
