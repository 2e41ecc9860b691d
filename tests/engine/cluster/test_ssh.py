"""`--ssh` with a real ssh and a real sshd: agents that come and go, keys, what is said of failures."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from vramscope.cli.application import run as run_here
from vramscope.engine.cluster.addresses import parse_ssh_hosts
from vramscope.engine.cluster.keys import AllowList
from vramscope.engine.cluster.nodes_watch import NodesWatch
from vramscope.engine.cluster.ssh import HELLO, FrameReader, frame
from vramscope.engine.cluster.trust import Trust
from vramscope.engine.errors import UsageError, WireError
from vramscope.engine.wire.endpoints import HubLock, holder_pid, is_hub_alive

from ...pretend_nvml.driver import GIB, PretendDriver
from ...vramscope.cli.running import run
from ...waiting import wait_until
from ..agent.hubs import RunningHub, make_sample
from .relays import RunningRelay, until_of
from .remote import has_seq, says, until
from .sshd import LoopbackSshd
from .test_detail import has_processes, make_full

pytestmark = pytest.mark.waits


@pytest.fixture
def sshd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackSshd]:
    """Serve ssh on loopback, with an `ssh` in the path that finds its keys."""
    with LoopbackSshd(tmp_path) as server:
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
        yield server


@contextmanager
def _following(sshd: LoopbackSshd, command: str | None = None) -> Iterator[NodesWatch]:
    watch = NodesWatch(parse_ssh_hosts(sshd.host, command or sshd.command), Trust(None, AllowList()))
    try:
        yield watch
    finally:
        watch.close()


def test_an_agent_is_started_there_seen_and_taken_down_after(
    sshd: LoopbackSshd, pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device().set_memory(61 * GIB)
    sshd.trust()
    outcome = run("--ssh", sshd.host, "--once", "--json", VRAMSCOPE_SSH_COMMAND=sshd.command)
    assert outcome.code == 0, outcome.stderr
    (line,) = outcome.lines
    assert line["devices"][0]["memory"]["used_bytes"] == 61 * GIB
    wait_until(lambda: not is_hub_alive(sshd.runtime_dir), what="the end of the agent there")


def test_a_connection_that_is_cut_comes_back_and_misses_nothing_of_an_agent_that_was_there(
    sshd: LoopbackSshd,
) -> None:
    sshd.trust()
    sshd.runtime_dir.mkdir(mode=0o700)
    lock = HubLock(sshd.runtime_dir)
    lock.acquire()
    with RunningHub(sshd.runtime_dir) as hub:
        with _following(sshd) as watch:
            hub.producer.push([make_sample(1)])
            until(watch, has_seq(1))
            for pid in sshd.connections():
                os.kill(pid, signal.SIGKILL)
            until(watch, lambda it: not watch.nodes[sshd.host].connection.is_connected)
            hub.producer.push([make_sample(2), make_sample(3)])
            assert until(watch, has_seq(3)).samples_dropped == 0
            history = watch.nodes[sshd.host].picture.history
            assert None not in history.columns("GPU-a", "used", 1003.0, 1.0, 3).last
        wait_until(lambda: not sshd.connections(), what="the end of the bridge")
        assert holder_pid(sshd.runtime_dir) == os.getpid()  # not an agent that was started for the view
    lock.release()


def test_a_relay_passes_on_a_node_that_it_reaches_through_ssh(
    sshd: LoopbackSshd,
) -> None:
    sshd.trust()
    sshd.runtime_dir.mkdir(mode=0o700)
    lock = HubLock(sshd.runtime_dir)
    lock.acquire()
    with (
        RunningHub(sshd.runtime_dir) as hub,
        RunningRelay(*parse_ssh_hosts(sshd.host, sshd.command)) as relay,
        closing(NodesWatch([relay.address], Trust(None, AllowList()), most_in_full=0)) as watch,
    ):
        hub.producer.push([make_full(1)])
        assert not has_processes(until_of(watch, sshd.host, has_seq(1)))
        watch.nodes[sshd.host].follow("full")
        assert has_processes(until_of(watch, sshd.host, has_processes))
        hub.producer.push([make_full(2)])
        assert has_processes(until_of(watch, sshd.host, has_seq(2)))
    lock.release()


def test_why_a_node_is_not_reached_is_said_with_what_to_do(sshd: LoopbackSshd) -> None:
    with _following(sshd) as watch:  # its key is not known
        until(watch, says(f"Host key verification failed: run `ssh -p {sshd.port} 127.0.0.1`"))
        assert sshd.known_hosts.read_text() == ""
        sshd.trust()
        (sshd.folder / "authorized").write_text("")
        until(watch, says("Permission denied"))
        assert "ssh-add" in (watch.nodes[sshd.host].picture.newest.reason or "")
    (sshd.folder / "authorized").write_text((sshd.folder / "user.pub").read_text())
    with _following(sshd, "/nowhere/vramscope") as watch:
        reason = until(watch, says("cannot start `/nowhere/vramscope agent --stdio`")).reason or ""
        assert "--ssh-command" in reason
    with _following(sshd, "cat /dev/zero; true") as watch:
        until(watch, says("no vramscope answers there"))


def test_what_the_shell_there_prints_first_is_no_message() -> None:
    data = b"Welcome!\n" + HELLO + frame(b"one") + frame(b"") + frame(b"two")
    reader = FrameReader(3, awaits_hello=True)
    assert [it for at in range(len(data)) for it in reader.take(data[at : at + 1])] == [b"one", b"", b"two"]
    with pytest.raises(WireError, match="4 bytes: expected at most 3"):
        reader.take(frame(b"four"))


def test_a_host_for_ssh_is_read_as_it_is_meant() -> None:
    found = [(it.destination, it.port) for it in parse_ssh_hosts("n1,alice@n2:2222,[::1]:22")]
    assert found == [("n1", None), ("alice@n2", 2222), ("::1", 22)]
    for text in ("-oProxyCommand=x", "a b", "", "n1;ls", "-x@n1", "n1:x"):
        with pytest.raises(UsageError, match="expected"):
            parse_ssh_hosts(text)


def test_flags_of_ssh_without_a_host_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here(["--ssh-command", "x"]) == 2
    assert "needs --ssh" in capsys.readouterr().err
