"""A view that waits for an agent says why and what to do; an agent whose files are removed is found again."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vramscope.engine.paths import locate_runtime_folder, open_runtime_folder
from vramscope.engine.ranks.messages import PROBE_SOCKET_NAME
from vramscope.engine.viewer.client import Client, connect
from vramscope.engine.viewer.hub_feed import HubFeed
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.engine.wire.endpoints import SOCKET_NAMES, HubLock, holder_pid, is_hub_alive

from ...components import missing, require
from ...pretend_nvml.driver import PretendDriver
from ...tui.panes import PROGRAM, pane
from ...vramscope.cli.running import run
from ...vramscope.cli.test_stream import agent
from ...waiting import wait_until
from .test_hub_feed import Watcher

pytestmark = pytest.mark.waits

GIB = 1 << 30


@pytest.fixture
def folder(pretend_driver: PretendDriver, pretend_environment: object) -> Path:
    """Return the runtime folder of a node with one device."""
    pretend_driver.add_device(used_bytes=10 * GIB)
    return open_runtime_folder()


@contextmanager
def watching(folder: Path) -> Iterator[Watcher]:
    """Follow the hub of a folder as a view does."""
    feed = HubFeed(folder, agent_arguments=("--interval", "0.2", "--no-worker"))
    feed.start_hub()
    try:
        yield Watcher(feed)
    finally:
        feed.stop()


def says(*words: str) -> Callable[[Snapshot], bool]:
    """Return what tells whether a snapshot has all these words in its reason."""
    return lambda it: it.connection == "lost" and all(word in str(it.reason) for word in words)


def is_measured(snapshot: Snapshot) -> bool:
    return snapshot.connection == "live" and snapshot.sample is not None and bool(snapshot.sample.devices)


def test_a_lock_that_another_process_holds_is_named_and_let_go(folder: Path) -> None:
    lock = HubLock(folder)
    lock.acquire()
    with watching(folder) as watcher:
        snapshot = watcher.until(
            says(f"process {os.getpid()} (", "does not listen there; end it"), "the reason"
        )
        assert "no agent for 3 s" in str(snapshot.reason) or "no agent for 4 s" in str(snapshot.reason)
        lock.release()
        watcher.until(is_measured, "figures", 60.0)


def test_an_agent_that_cannot_start_is_told_with_its_last_words(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'agent' in sys.orig_argv:\n"
        "    os.write(2, b'libzmq.so is damaged\\n')\n"
        "    os._exit(1)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with watching(folder) as watcher:
        watcher.until(says("libzmq.so is damaged", f"see {folder / 'hub.log'}"), "the reason", 60.0)
        (tmp_path / "sitecustomize.py").unlink()
        watcher.until(is_measured, "figures", 60.0)


def test_a_log_that_cannot_be_written_is_told(folder: Path) -> None:
    (folder / "hub.log").mkdir()
    with watching(folder) as watcher:
        watcher.until(says(f"{folder / 'hub.log'} cannot be written: Is a directory"), "the reason")
        (folder / "hub.log").rmdir()
        watcher.until(is_measured, "figures", 60.0)


def test_a_job_and_a_worker_say_it_too(folder: Path) -> None:
    (folder / "hub.log").mkdir()
    outcome = run("run", "--", "true")
    assert outcome.code == 0
    assert f"{folder / 'hub.log'} cannot be written: Is a directory" in outcome.stderr
    (folder / "worker.log").mkdir()
    with agent("--interval", "0.2"), connect() as client:

        def is_said() -> bool:
            hub = client.snapshot(0.05).hub
            return hub is not None and f"{folder / 'worker.log'} cannot be written" in str(
                hub.workers[0].reason
            )

        wait_until(is_said, 20.0, "the reason")


def test_a_folder_that_was_opened_to_others_is_told(folder: Path) -> None:
    with watching(folder) as watcher:
        watcher.until(is_measured, "figures", 60.0)
        folder.chmod(0o755)
        pid = holder_pid(folder)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        watcher.until(says("run chmod 700 on it"), "the reason")
        folder.chmod(0o700)
        watcher.until(is_measured, "figures", 60.0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of 64 KiB and eight files."""
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=2,mode=700", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(words, check=False, capture_output=True).returncode != 0:
        missing("only root may mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_without_room_is_told_and_a_full_one_is_enough(
    small_disk: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VRAMSCOPE_RUNTIME_DIR", str(small_disk))
    (small_disk / "filler").write_bytes(b"")
    with watching(small_disk) as watcher:
        watcher.until(says("cannot be written: No space left on device; make room"), "the reason")
        subprocess.run(["mount", "-o", "remount,nr_inodes=40", str(small_disk)], check=True)
        with pytest.raises(OSError, match="No space left"):
            (small_disk / "filler").write_bytes(bytes(100_000))
        watcher.until(is_measured, "figures from an agent that has no byte to write to", 60.0)


def test_sockets_that_were_removed_come_back(folder: Path) -> None:
    with agent("--interval", "0.2"), connect() as before:
        names = (*SOCKET_NAMES, PROBE_SOCKET_NAME)
        for name in names:
            (folder / name).unlink()
        wait_until(lambda: all((folder / name).exists() for name in names), 20.0, "the sockets")
        with connect(timeout_s=20.0) as after:
            wait_until(lambda: after.snapshot(0.05).sample, 20.0, "a sample of a new viewer")
            seq = after.newest.sample.seq if after.newest.sample else 0
        wait_until(lambda: is_newer(before, seq), 20.0, "a sample of the viewer that was there")


def is_newer(client: Client, seq: int) -> bool:
    sample = client.snapshot(0.05).sample
    return sample is not None and sample.seq > seq


def test_an_agent_whose_folder_was_removed_ends_and_leaves_the_next_one_alone(folder: Path) -> None:
    with agent("--interval", "0.2") as process:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        with watching(folder) as watcher:
            assert process.wait(20.0) == 6
            assert process.stderr is not None
            assert f"{folder}/hub.lock was removed while the agent was running" in process.stderr.read()
            watcher.until(is_measured, "figures of the next agent", 60.0)
            assert all((folder / name).exists() for name in SOCKET_NAMES)
    wait_until(lambda: not is_hub_alive(locate_runtime_folder()), what="the end of the next agent")


def test_the_screen_says_what_it_waits_for(folder: Path) -> None:
    require("tmux")
    holder = "import sys, pathlib; from vramscope.engine.wire.endpoints import HubLock; "
    holder += (
        f"lock = HubLock(pathlib.Path({str(folder)!r})); lock.acquire(); print('held', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pane(PROGRAM, dict(os.environ), width=200, height=24) as opened:
            opened.wait_for(
                "not connected", "no agent for", f"process {process.pid}", "end it to start an agent"
            )
            process.kill()
            opened.wait_for("Pretend GPU")
            opened.press("q")
            opened.wait_for("exit code 0")
