"""A source on the test's own pretend driver."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pretend_nvml.driver import PretendDriver
from vramscope.engine.sources.nvml import NvmlSource


class SteppedClock:
    """Monotonic seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def stepped_clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def fake_root(tmp_path: Path) -> Path:
    """An empty machine: no driver folder in its /proc, no device files in its /dev."""
    root = tmp_path / "root"
    (root / "proc").mkdir(parents=True)
    return root


@pytest.fixture
def nvml_source(
    pretend_nvml: PretendDriver, fake_root: Path, stepped_clock: SteppedClock
) -> Iterator[NvmlSource]:
    """A source whose NVML is the pretend driver and whose /proc is `fake_root`'s."""
    source = NvmlSource(fake_root, stepped_clock)
    yield source
    pretend_nvml.raw.init_hang = 0
    source.close()
