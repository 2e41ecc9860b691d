"""What strangers, other users and newer versions send costs nobody anything, and is told."""

import os
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramscope.engine.errors import RuntimeFolderError, WireError
from vramscope.engine.ranks import listener, roster
from vramscope.engine.ranks.listener import decode_packet, encode_packet
from vramscope.engine.ranks.messages import (
    MAX_PACKET_BYTES,
    PROBE_PROTOCOL,
    PROBE_SOCKET_NAME,
    Hello,
    Readings,
)

from .probe_client import GIB, ProbeClient, encode_json, make_hello, make_readings
from .rosters import open_roster

GARBAGE = (
    b"\0",
    b"{",
    b"\xff\xfe" * 100,
    b"[" * 30_000,
    b'{"kind":"hello"}',
    b'{"kind":"nonsense","v":1}',
    b'{"kind":"hello","v":1,"pid":"x"}',
    b'{"kind":"readings","v":1,"rows":[[1,2]]}',
    b'{"kind":"readings","v":1,"rows":[[1e999,null,null,null,null,null,null,null,null,null]]}',
    b"x" * (MAX_PACKET_BYTES + 1),
)

TURNED_AWAY = "connections from training processes rejected (another user, or too many): 1"


def test_the_socket_is_open_to_its_owner_alone(private_environment: Path) -> None:
    with open_roster(private_environment):
        mode = (private_environment / PROBE_SOCKET_NAME).stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_a_socket_that_was_left_behind_is_replaced(private_environment: Path) -> None:
    with open_roster(private_environment):
        pass
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send(make_hello(), make_readings(GIB))
        assert bench.rank().state == "ok"


def test_a_folder_that_cannot_be_written_is_said_in_one_line(private_environment: Path) -> None:
    with pytest.raises(RuntimeFolderError, match=r"cannot listen on .*probe\.sock: No such file"):
        listener.Listener(private_environment / "absent")


def test_garbage_is_counted_and_told_and_the_process_goes_on(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send(make_hello())
        for packet in GARBAGE:
            probe.send_bytes(packet)
        probe.send(make_readings(2 * GIB))
        roll = bench.tick()
        assert roll.ranks[0].allocator is not None
        assert roll.ranks[0].allocator.allocated_bytes == 2 * GIB
        assert roll.notes == (
            f"{len(GARBAGE)} messages from training processes rejected; the newest: process {os.getpid()} "
            f"sent a packet of more than {MAX_PACKET_BYTES} bytes",
        )
        assert bench.tick(after_s=roster.REFUSAL_TOLD_S + 1).notes == ()


def test_a_newer_version_is_refused_in_one_line(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send_bytes(encode_json(kind="hello", v=2, pid=1, backend="photonic"))
        roll = bench.tick()
    assert roll.ranks == ()
    assert "uses probe protocol 2, this agent supports up to 1: start the agent" in roll.notes[0]


def test_an_unknown_newer_field_is_ignored(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send_bytes(encode_json(kind="hello", v=1, pid=1, backend="cpu", colour="blue"))
        assert bench.rank().backend == "cpu"


def test_figures_before_a_hello_are_refused(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send(make_readings(GIB))
        roll = bench.tick()
    assert roll.ranks == ()
    assert "sent a message before its hello" in roll.notes[0]


@pytest.mark.parametrize("size", [-1, 2**62 + 1, 2**64, 10**40])
def test_figures_that_no_memory_has_are_refused(size: int) -> None:
    row = [1.0, size, None, None, None, None, None, None, None, None]
    with pytest.raises(WireError, match="malformed"):
        decode_packet(encode_json(kind="readings", v=1, rows=[row]))


def test_a_rank_too_large_to_travel_on_is_refused() -> None:
    with pytest.raises(WireError, match="malformed"):
        decode_packet(encode_json(kind="hello", v=1, pid=1, coordinates={"rank": 10**30}))


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    with suppress(WireError):
        assert decode_packet(data).v <= PROBE_PROTOCOL


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=50).filter(str.isprintable), st.integers(0, 2**31))
def test_a_message_comes_back_as_it_was(text: str, pid: int) -> None:
    hello = Hello(v=1, pid=pid, command=text, notes=(text,))
    assert decode_packet(encode_packet(hello)) == hello


def test_more_connections_than_there_is_room_for_are_turned_away_and_told(
    private_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MAX_CONNECTIONS", 2)
    with open_roster(private_environment) as bench:
        probes = [ProbeClient(private_environment) for _ in range(2)]
        bench.tick()
        with ProbeClient(private_environment) as late:
            roll = bench.tick()
            assert late.is_cut_off()
        for probe in probes:
            probe.close()
    assert roll.notes == (TURNED_AWAY,)


def test_one_that_never_stops_talking_does_not_keep_the_hub(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send(make_hello())
        for index in range(1, 100):
            probe.send_steps((index, 1.0, None, None, None, False))
        first = bench.rank()
        assert first.steps_within == listener.MAX_PACKETS_PER_CONNECTION - 1
        assert bench.rank().steps_within == 99 - first.steps_within


def test_readings_of_a_burst_are_all_folded(private_environment: Path) -> None:
    with open_roster(private_environment) as bench, ProbeClient(private_environment) as probe:
        probe.send(make_hello(), *(make_readings(size * GIB) for size in (1, 9, 3)))
        allocator = bench.rank().allocator
    assert allocator is not None
    assert (allocator.allocated_bytes, allocator.allocated_max_bytes) == (3 * GIB, 9 * GIB)
    assert Readings(v=1, rows=()) == decode_packet(encode_json(kind="readings", v=1, rows=[]))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may report to everybody's agent; see the test below")
def test_an_agent_of_another_user_turns_this_one_away(private_environment: Path) -> None:
    rosters = roster.Roster(private_environment, node="n", uid=os.geteuid() + 1)
    with ProbeClient(private_environment) as probe:
        assert rosters.collect((), None).notes == (TURNED_AWAY,)
        assert probe.is_cut_off()
    rosters.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user; see the test above")
def test_a_process_of_another_user_is_turned_away(private_environment: Path) -> None:
    nobody = 65534
    with open_roster(private_environment) as bench:
        for path, mode in ((private_environment, 0o755), (private_environment / PROBE_SOCKET_NAME, 0o666)):
            path.chmod(mode)
        code = (
            "import os, socket, sys\n"
            f"os.setuid({nobody})\n"
            "probe = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
            f"probe.connect({str(private_environment / PROBE_SOCKET_NAME)!r})\n"
            "probe.settimeout(10)\n"
            "print('connected', flush=True)\n"
            "sys.stdin.readline()\n"
            "print(probe.recv(1))\n"
        )
        with subprocess.Popen(
            [sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"connected\n"
            roll = bench.tick()
            answer, _ = process.communicate(b"\n", timeout=60)
    assert answer == b"b''\n"
    assert roll.notes == (TURNED_AWAY,)
