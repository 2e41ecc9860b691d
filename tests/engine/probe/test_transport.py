"""The way to the hub never waits, counts what it loses, and trusts nobody else's socket."""

import itertools
import os
import socket
from pathlib import Path

import pytest

from tests.engine.probe.clocks import WoundClock
from tests.engine.probe.hub import listen
from tests.waiting import wait_until
from vramscope.engine.probe.transport import MOST_READINGS, Connection, Outbox
from vramscope.engine.probe.wire import ReadingRow, encode_goodbye
from vramscope.engine.ranks.messages import Goodbye, Hello, ModelState, Readings, Steps

NOBODY = 65534


def reading(number: int) -> ReadingRow:
    return (float(number), number, *[None] * 8)  # type: ignore[return-value]


def test_an_absent_hub_is_looked_for_with_growing_pauses(tmp_path: Path) -> None:
    clock = WoundClock()
    connection = Connection(str(tmp_path), clock)
    tries = []
    opened = connection._connect

    def count_and_connect() -> socket.socket | None:
        tries.append(clock.monotonic_s())
        return opened()

    connection._connect = count_and_connect  # type: ignore[method-assign]
    for _ in range(600):
        assert not connection.open()
        clock.advance(0.1)
    pauses = [round(after - before) for before, after in itertools.pairwise(tries[2:])]
    assert len(tries) < 15
    assert pauses[:3] == [2, 4, 8]
    assert max(pauses) == 8


def test_a_hub_that_comes_back_is_found(tmp_path: Path) -> None:
    clock = WoundClock()
    connection = Connection(str(tmp_path), clock)
    with listen(tmp_path) as hub:
        assert connection.open()
        assert not connection.open()
        assert connection.send(encode_goodbye("exit"))
        hub.wait_for(Goodbye)
    wait_until(lambda: not connection.send(encode_goodbye("exit")) and not connection.is_open)
    assert not connection.open()
    with listen(tmp_path) as hub:
        clock.advance(1.0)
        assert connection.open()
        connection.send(encode_goodbye("exit"))
        hub.wait_for(Goodbye)
        connection.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may play another user's hub")
def test_the_hub_of_another_user_is_refused_and_that_of_root_is_not(tmp_path: Path) -> None:
    with listen(tmp_path):
        of_root = Connection(str(tmp_path), WoundClock(), uid=NOBODY)
        assert of_root.open()
        of_root.close()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(tmp_path / "probe.sock"))
    os.seteuid(NOBODY)
    try:
        listener.listen()
    finally:
        os.seteuid(0)
    connection = Connection(str(tmp_path), WoundClock(), uid=1)
    assert not connection.open()
    assert connection.refusal is not None
    assert "user id 65534" in connection.refusal
    listener.close()


def test_a_stream_socket_in_its_place_is_no_hub(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "probe.sock"))
        listener.listen()
        assert not Connection(str(tmp_path), WoundClock()).open()


def test_a_path_that_is_too_long_for_a_socket_is_no_hub(tmp_path: Path) -> None:
    assert not Connection(str(tmp_path / ("x" * 200)), WoundClock()).open()


def test_a_hub_that_never_reads_costs_readings_which_are_counted(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(tmp_path / "probe.sock"))
    listener.listen()
    connection = Connection(str(tmp_path), WoundClock())
    assert connection.open()
    outbox = Outbox()
    outbox.say_hello({"pid": 1})
    put = 0
    while outbox.dropped < 500:
        outbox.put_reading(reading(put))
        put += 1
        outbox.flush(connection.send)
        assert put < 100_000
    peer, _ = listener.accept()
    received = 0
    newest = b""
    peer.settimeout(10)
    while received < put - outbox.dropped:
        newest = peer.recv(65536)
        received += newest.count(b"null,null,null,null,null,null,null,null]")
        outbox.flush(connection.send)
    assert received == put - outbox.dropped
    assert f'"dropped":{outbox.dropped}'.encode() in newest
    assert f"[{put - 1}.0,{put - 1},".encode() in newest
    for each in (peer, listener):
        each.close()
    connection.close()


def test_what_waits_for_an_absent_hub_is_bounded_and_its_newest_is_kept() -> None:
    outbox = Outbox()
    for number in range(MOST_READINGS + 40):
        outbox.put_reading(reading(number))
        outbox.put_step((number, 0.0, None, None, None, False))
    assert outbox.dropped == 40
    packets: list[bytes] = []

    def take(packet: bytes) -> bool:
        packets.append(packet)
        return True

    outbox.flush(take)
    assert packets[-1].endswith(
        b'"dropped":40,"phase":null,"memory_history":"off","allocations":null,"frees":null}'
    )
    assert f"[{MOST_READINGS + 39}.0,".encode() in packets[-1]


def test_hello_and_model_go_first_on_every_connection_and_nothing_is_sent_twice(tmp_path: Path) -> None:
    clock = WoundClock()
    outbox = Outbox()
    connection = Connection(str(tmp_path), clock)
    outbox.say_hello({"pid": 1, "backend": "cpu"})
    outbox.put_model_state({"parameters_bytes": 4})
    outbox.put_reading(reading(1))
    with listen(tmp_path) as hub:
        connection.open()
        outbox.begin_connection()
        assert outbox.flush(connection.send)
        outbox.say_hello({"pid": 1, "backend": "cpu"})
        outbox.put_model_state({"parameters_bytes": 4})
        assert outbox.flush(connection.send)
        hub.wait_for(Readings)
        connection.send(encode_goodbye("exit"))
        hub.wait_for_goodbye()
        assert [type(message) for message in hub.connections[0]] == [Hello, ModelState, Readings, Goodbye]
    connection.close()
    outbox.put_reading(reading(2))
    outbox.put_step((1, 2.0, None, None, None, False))
    with listen(tmp_path) as hub:
        clock.advance(10)
        connection.open()
        outbox.begin_connection()
        outbox.flush(connection.send)
        hub.wait_for(Readings)
        assert [type(message) for message in hub.connections[0]] == [Hello, ModelState, Steps, Readings]
        assert [row[1] for row in hub.readings()] == [2]
    connection.close()
