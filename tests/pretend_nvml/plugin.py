"""Fixtures: the compiled library, and a pretend driver of one's own for every test."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..components import missing
from .driver import PretendDriver, build_library, default_folder

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def pretend_library() -> Path:
    """Compile the pretend `libnvidia-ml.so.1`, or skip where no compiler is."""
    try:
        return build_library(default_folder())
    except FileNotFoundError as error:
        missing(f"{error} (Debian: apt-get install gcc libc6-dev)")


@pytest.fixture
def pretend_driver(tmp_path: Path) -> Iterator[PretendDriver]:
    """Give the test a driver without devices; calls that hang are released at the end."""
    # The library keeps what it mapped under one path, and a later test may get the same folder.
    driver = PretendDriver(tmp_path / f"nvml-{next(_NUMBERS)}.state")
    yield driver
    driver.raw.init_hang = 0
    for device in driver.devices:
        device.release()


@pytest.fixture
def pretend_environment(
    pretend_driver: PretendDriver, pretend_library: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Let child processes find the test's driver, and return the variables that do."""
    variables = pretend_driver.environment(pretend_library)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


@pytest.fixture
def pretend_nvml(
    pretend_driver: PretendDriver, pretend_library: Path, monkeypatch: pytest.MonkeyPatch
) -> PretendDriver:
    """Let `pynvml` in this very process find the test's driver."""
    import pynvml

    monkeypatch.setenv("PRETEND_NVML_STATE", str(pretend_driver.state_file))
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(pretend_library)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return pretend_driver
