"""A device that JAX has preallocated looks full, and the live view says why."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from vramscope.engine.model import ProcessReading
from vramscope.engine.sources.preallocation import PreallocationWatch

from ..recording.samples import make_sample

JAXLIB = "/usr/lib/python3/site-packages/jaxlib/libjax_common.so"


def watch(folder: Path, *, path: str = JAXLIB, environ: str = "HOME=/root") -> PreallocationWatch:
    """Return a watch over a machine on which process 41 has mapped a file."""
    process = folder / "41"
    process.mkdir()
    (process / "maps").write_text(f"7f00-7f01 r-xp 00000000 08:01 12 {path}\n")
    (process / "environ").write_bytes(environ.replace(" ", "\0").encode())
    return PreallocationWatch(folder)


def say(found: PreallocationWatch, **fields: object) -> tuple[str, ...]:
    process = ProcessReading(pid=41, **fields)  # type: ignore[arg-type]
    device = replace(make_sample(1).devices[0], processes=(process,))
    (told,), notes = found.collect((device,))
    assert told.processes is not None
    assert (told.processes[0].preallocated_percent is not None) == bool(notes)
    return notes


def test_the_share_is_that_of_the_variables_of_the_process(tmp_path: Path) -> None:
    (said,) = say(watch(tmp_path, environ="A=b XLA_PYTHON_CLIENT_MEM_FRACTION=.9"))
    assert "JAX preallocated 90 % of the device: how full it looks says nothing of what lives in it" in said
    assert said.endswith("(process 41)")


@pytest.mark.parametrize(
    "machine",
    [
        {"path": "/usr/lib/python3/site-packages/torch/lib/libtorch.so"},
        {"environ": "XLA_PYTHON_CLIENT_PREALLOCATE=false"},
        {"environ": "XLA_PYTHON_CLIENT_ALLOCATOR=platform"},
    ],
    ids=["another framework", "switched off", "at the driver"],
)
def test_of_other_processes_nothing_is_said(machine: dict[str, str], tmp_path: Path) -> None:
    assert say(watch(tmp_path, **machine)) == ()


def test_a_process_of_another_place_is_not_looked_at(tmp_path: Path) -> None:
    assert say(watch(tmp_path), location="outside") == ()
    (tmp_path / "empty").mkdir()
    assert say(PreallocationWatch(tmp_path / "empty")) == ()


def test_a_process_is_looked_at_once(tmp_path: Path) -> None:
    found = watch(tmp_path)
    before = say(found)
    (tmp_path / "41" / "maps").unlink()
    assert before
    assert say(found) == before
