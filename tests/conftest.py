"""What every test gets: a home, settings and a runtime folder of its own."""

import functools
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import execnet
import pytest
from hypothesis import settings

from tests import REPOSITORY

pytest_plugins = (
    ["tests.pretend_nvml.plugin"] if (REPOSITORY / "tests/pretend_nvml/plugin.py").exists() else []
)

FOREIGN_PREFIXES = ("VRAMSCOPE_", "TEXTUAL", "XDG_")
OUR_OWN_PREFIX = "TEXTUAL_SNAPSHOT_"
"""Variables in which pytest-textual-snapshot keeps its own state."""
FOREIGN_NAMES = (
    "COLORFGBG",
    "COLORTERM",
    "COLUMNS",
    "FORCE_COLOR",
    "LINES",
    "NO_COLOR",
    "STY",
    "TMUX",
    "TMUX_PANE",
)
"""Variables of whoever runs the tests that would change what the program shows or where it looks."""
READLINE_NAMES = ("COLUMNS", "LINES")
"""Readline, which pytest loads, sets these behind the back of `os.environ`; programs would inherit them."""

os.environ.pop("PYTHONUNBUFFERED", None)
# Programs of users buffer what they write, and so fail in other places.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Else every program that a test starts would compile anew what it imports: more than half of its time.

gc.disable()  # until all tests are collected: nothing of that is garbage

GARBAGE_THRESHOLDS = (10_000, 20, 20)
"""Screens are made and dropped all the time: at the defaults a quarter of their time is the collector's."""
WORKERS_BESIDE_CORES = 4
"""Tests wait for programs and clocks too, which other workers can use."""
WAITING_WORKERS = 3
"""Workers that begin with tests that wait; the others have more than enough for the cores meanwhile."""


settings.register_profile("suite", max_examples=40, deadline=None)
settings.load_profile("suite")
"""Where a test names no number of its own; `make fuzz` looks on for as long as one likes."""


MEMORY, LEAST_MEMORY_BYTES = "/dev/shm", 4 << 30


def find_temporary_folder() -> str:
    """Return where tests write: to make and remove a file takes ten times as long on a disk as in memory."""
    try:
        state = os.statvfs(MEMORY)
    except OSError:
        return "/tmp"
    is_executable = not state.f_flag & os.ST_NOEXEC
    has_room = state.f_bavail * state.f_frsize >= LEAST_MEMORY_BYTES
    return MEMORY if has_room and is_executable and os.access(MEMORY, os.W_OK) else "/tmp"


TEMPORARY = find_temporary_folder()
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", TEMPORARY)

PRIVATE_FOLDERS = {
    "HOME": "home",
    "XDG_CONFIG_HOME": "home/.config",
    "XDG_STATE_HOME": "home/.local/state",
    "XDG_DATA_HOME": "home/.local/share",
    "XDG_CACHE_HOME": "home/.cache",
    "XDG_RUNTIME_DIR": "run",
}


def pytest_xdist_auto_num_workers() -> int:
    """Return how many workers `-n auto` starts."""
    return len(os.sched_getaffinity(0)) + WORKERS_BESIDE_CORES


def pytest_xdist_setupnodes(config: pytest.Config, specs: list[execnet.XSpec]) -> None:
    """Fork the workers of a run of all tests from one process that has imported what all of them need."""
    is_whole = config.args == config.getini("testpaths")
    if is_whole and "coverage" not in sys.modules:  # which measures what a process imports
        from tests.warm.starter import start_loaded_workers  # reads variables that this file changes

        python = start_loaded_workers()
        specs[:] = [execnet.XSpec(f"{spec}//python={python}//id={spec.id}") for spec in specs]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with tests that wait, on some of the workers, then with the verbs.

    The others compute meanwhile, one of them first what loads torch. At the end one worker would have the
    longest, and the cores nothing to do.
    """
    items.sort(key=lambda item: not item.nodeid.startswith("tests/vramscope/"))
    waiting: list[pytest.Item] = []
    loading: list[pytest.Item] = []
    rest: list[pytest.Item] = []
    for item in items:
        names = {mark.name for mark in item.iter_markers()}
        (waiting if "waits" in names else loading if "loads_torch" in names else rest).append(item)
    count = int(getattr(config, "workerinput", {}).get("workercount", 1))
    ordered: list[pytest.Item] = []
    lanes = min(WAITING_WORKERS, count)
    for lane in range(lanes):
        size = (len(items) - len(ordered)) // (count - lane)  # what xdist gives to this worker
        first = waiting[lane::lanes]
        fill = max(size - len(first), 0)
        ordered += [*first, *rest[:fill]]
        rest = rest[fill:]
    items[:] = ordered + loading + rest


def pytest_collection_finish() -> None:
    """Let the collector of this process come less often."""
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    gc.freeze()  # without a collection, which would walk all that was collected and find nothing
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Drop at the end of each file what its tests left; what lives on stays out of later collections."""
    if nextitem is None or nextitem.path != item.path:
        leave_out_of_collections()


def leave_out_of_collections() -> None:
    """Let later collections skip all that is alive.

    Whatever test collects, and screens do when they close, would walk millions of objects of other tests.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def heeded_interrupts() -> None:
    """Let programs that tests start heed signals that `make test &` in a script and `nohup` ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)  # still ignored here, at its default in a new program


_started_programs = 0


def _count_program() -> None:
    global _started_programs  # noqa: PLW0603 - a fork tells nobody else
    _started_programs += 1


def _count_calls(owner: object, name: str) -> None:
    """Count what a function starts; a hook for audited events would be called for each `id` and `import`."""
    start = getattr(owner, name)

    @functools.wraps(start)
    def count_and_start(*arguments: Any, **named: Any) -> Any:
        _count_program()
        return start(*arguments, **named)

    setattr(owner, name, count_and_start)


os.register_at_fork(before=_count_program)
_count_calls(os, "posix_spawn")
_count_calls(subprocess.Popen, "_execute_child")


class PrivateFolder:
    """The home and the runtime folder of a test, at a short path.

    A unix socket's path may be no longer than 107 bytes.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="vs-", dir=TEMPORARY))
        self.variables = {name: str(self.path / child) for name, child in PRIVATE_FOLDERS.items()}
        for path in self.variables.values():
            Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folders = [self.path, *(it for it in self.path.rglob("*"))]
        self._before = self._describe()
        self._programs_before = _started_programs

    def may_serve_again(self) -> bool:
        """Say whether nothing was written here, and nothing started that may write here later."""
        try:
            return self._programs_before == _started_programs and self._before == self._describe()
        except OSError:  # a folder was removed
            return False

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def _describe(self) -> list[tuple[int, list[str]]]:
        return [(it.stat().st_mode, os.listdir(it)) for it in self._folders]  # noqa: PTH208 - every test asks


@pytest.fixture(scope="session")
def spare_folders() -> Iterator[list[PrivateFolder]]:
    """Keep a folder that a test left untouched: to make and remove one takes longer than most tests."""
    folders: list[PrivateFolder] = []
    yield folders
    for folder in folders:
        folder.remove()


@pytest.fixture(autouse=True)
def private_environment(
    monkeypatch: pytest.MonkeyPatch, spare_folders: list[PrivateFolder]
) -> Iterator[Path]:
    """Keep the developer's own settings, state and running agent out of every test."""
    for name in list(os.environ):
        if name.startswith(OUR_OWN_PREFIX):
            continue
        if name in FOREIGN_NAMES or name.startswith(FOREIGN_PREFIXES):
            monkeypatch.delenv(name)
    for name in READLINE_NAMES:
        os.unsetenv(name)
    folder = spare_folders.pop() if spare_folders else PrivateFolder()
    for variable, path in folder.variables.items():
        monkeypatch.setenv(variable, path)
    yield folder.path
    if folder.may_serve_again():
        spare_folders.append(folder)
    else:
        folder.remove()
