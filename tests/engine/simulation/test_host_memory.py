"""Real tensors need real memory: the run is refused in one line before the host has none."""

from pathlib import Path

import pytest

from tests.engine.simulation.simulated import GIB, run_script
from vramscope.engine.simulation import ledger as notices

pytestmark = pytest.mark.loads_torch

# Host memory is imported by the tests: torch, which it needs, costs a worker two seconds.


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_told", set())


def test_growth_is_refused_at_the_reserve(capsys: pytest.CaptureFixture[str]) -> None:
    from vramscope.engine.simulation.host_memory import HostMemory

    available = [4 * GIB]
    host = HostMemory(lambda: available[0], GIB)
    host.check_capacity(2 * GIB)
    host.check_growth(3 * GIB)
    assert capsys.readouterr().err == ""
    available[0] = GIB - 1
    host.note_growth(1000)
    with pytest.raises(SystemExit) as refused:
        host.note_growth(GIB)
    assert refused.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("vramscope simulate: this host has 1.0 GiB of memory free, but")
    assert "run with --fake" in line


def test_cards_larger_than_the_host_are_allowed_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    from vramscope.engine.simulation.host_memory import HostMemory

    HostMemory(lambda: 4 * GIB, GIB).check_capacity(80 * GIB)
    (line,) = capsys.readouterr().err.splitlines()
    assert "the cards have 80.0 GiB and this host has 4.0 GiB free" in line


def test_a_host_that_tells_nothing_refuses_nothing() -> None:
    from vramscope.engine.simulation.host_memory import HostMemory

    host = HostMemory(lambda: None, GIB)
    host.check_capacity(80 * GIB)
    host.note_growth(80 * GIB)


def test_only_what_the_allocator_of_the_host_refused_is_read() -> None:
    from vramscope.engine.simulation.host_memory import read_refused_bytes

    text = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 68719476736 bytes."
    assert read_refused_bytes(RuntimeError(text)) == 64 * GIB
    assert read_refused_bytes(RuntimeError("shape mismatch")) is None


def test_a_tensor_that_the_card_has_room_for_and_the_host_has_not_ends_the_run_in_a_line(
    tmp_path: Path,
) -> None:
    source = "import torch\nprint('begun', flush=True)\ntorch.zeros(1 << 46, device='cuda')\n"
    result = run_script(tmp_path, source, {"total_bytes": 1 << 50})
    assert result.returncode == 2
    assert result.stdout == "begun\n"
    assert all(line.startswith("vramscope simulate: ") for line in result.stderr.splitlines())
    assert "262144.0 GiB more are needed" in result.stderr
