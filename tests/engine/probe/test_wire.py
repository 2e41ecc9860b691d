"""Both ends speak the same words: what the probe encodes, the structs of the hub decode."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.model import ADVICE_ACTIONS
from vramscope.engine.probe import wire
from vramscope.engine.probe.phase_memory import MOST_NAMES
from vramscope.engine.ranks import messages

FIGURE = st.none() | st.integers(0, 2**48)
READING = st.tuples(st.floats(0, 4e9), *[FIGURE] * 9)
STEP = st.tuples(
    st.integers(1, 2**40), st.floats(0, 4e9), st.none() | st.floats(0, 1e6), FIGURE, FIGURE, st.booleans()
)


def decode(packet: bytes) -> messages.ProbeMessage:
    """Return a message as the hub does."""
    assert len(packet) <= messages.MAX_PACKET_BYTES
    message: messages.ProbeMessage = msgspec.json.decode(packet, type=messages.ProbeMessage)
    return message


def test_the_protocol_has_one_version_one_socket_and_one_limit() -> None:
    assert wire.PROTOCOL == messages.PROBE_PROTOCOL
    assert wire.SOCKET_NAME == messages.PROBE_SOCKET_NAME
    assert wire.MAX_PACKET_BYTES == messages.MAX_PACKET_BYTES


@given(rows=st.lists(READING, max_size=20), dropped=st.integers(0, 2**31), phase=st.none() | st.text())
def test_readings(rows: list[wire.ReadingRow], dropped: int, phase: str | None) -> None:
    message = decode(wire.encode_readings(rows, dropped, phase, "user", (70, 60)))
    assert isinstance(message, messages.Readings)
    assert (message.allocations, message.frees) == (70, 60)
    assert message.rows == tuple(rows)
    assert (message.v, message.dropped, message.memory_history) == (1, dropped, "user")


@given(rows=st.lists(STEP, max_size=20))
def test_steps(rows: list[wire.StepRow]) -> None:
    message = decode(wire.encode_steps(rows))
    assert message == messages.Steps(1, tuple(rows))


PHASE = st.tuples(
    st.text(max_size=80),
    st.integers(1, 2**40),
    st.floats(0, 4e9),
    st.none() | st.floats(0, 1e6),
    *[FIGURE] * 5,
    st.booleans(),
    FIGURE,
    st.booleans(),
)


@given(rows=st.lists(PHASE, max_size=MOST_NAMES))
def test_phases_are_steps_without_any_to_an_older_hub(rows: list[wire.PhaseRow]) -> None:
    message = decode(wire.encode_phases(rows))
    assert isinstance(message, messages.Steps)
    assert message.rows == ()
    assert [row[1:] for row in message.phases] == [row[1:] for row in rows]


def test_a_full_packet_of_the_widest_rows_is_small_enough() -> None:
    wide = 2**62
    reading = (1_800_000_000.123, wide, wide, wide, wide, wide, wide, wide, wide, wide)
    step = (2**62, 1_800_000_000.1234567, 123456.12345678901, 2**62, 2**62, False)
    decode(wire.encode_readings([reading] * wire.MOST_ROWS, 2**62, "p" * 80, "off", (wide, wide)))
    decode(wire.encode_steps([step] * wire.MOST_ROWS))
    decode(wire.encode_steps([(*step, 2**62, 2**62)] * wire.MOST_ROWS))
    phase: wire.PhaseRow = (
        *("\udc80" * 80, wide, 1_800_000_000.1234567, 123456.12345678901),
        *(wide, wide, wide, wide, wide, False, wide, False),
    )
    decode(wire.encode_phases([phase] * MOST_NAMES))
    decode(wire.encode_segments_part(2**31, 999, 1000, "A" * wire.PART_CHARACTERS))


@given(text=st.text() | st.sampled_from(["\udc80", "x" * 100_000, "\x00", "é" * 5000]))
def test_a_hello_holds_any_text_and_stays_small(text: str) -> None:
    about = {
        "pid": 7,
        "command": text,
        "backend": "cuda",
        "device": {"index": 0, "uuid": text, "name": None, "total_bytes": 5},
        "coordinates": {"rank": 3, "tp": 1, "source": "environment"},
        "notes": [text] * 40,
    }
    message = decode(wire.encode_hello(about))
    assert isinstance(message, messages.Hello)
    assert message.device is not None
    assert message.coordinates is not None
    assert (message.pid, message.device.total_bytes, message.coordinates.rank) == (7, 5, 3)
    if text.isascii() and len(text) < 800:
        assert message.command == text


def test_the_remaining_kinds() -> None:
    assert decode(wire.encode_model_state({"parameters_bytes": 8, "grad_sample_bytes": None})) == (
        messages.ModelState(1, parameters_bytes=8)
    )
    assert decode(wire.encode_out_of_memory(1.5, 9, "/x", None)) == (
        messages.OutOfMemoryMet(1, 1.5, size_bytes=9, flight_record="/x")
    )
    assert decode(wire.encode_advised(3, True, "x" * 999, None)) == messages.AdviceTaken(
        1, 3, True, "x" * 300
    )
    assert decode(wire.encode_goodbye("exit")) == messages.Goodbye(1, "exit")
    assert decode(wire.encode_goodbye("whatever")) == messages.Goodbye(1, "detached")


def test_what_json_cannot_say_is_refused_and_never_sent() -> None:
    with pytest.raises(ValueError, match="JSON"):
        wire.encode_steps([(1, math.nan, None, None, None, False)])


@given(
    demand=st.builds(
        messages.Demand,
        v=st.just(1),
        kind=st.sampled_from(["segments", "detach", "history", "modules", "advise"]),
        request=st.integers(0, 2**31),
        is_on=st.booleans(),
        seconds=st.none() | st.floats(0.001, 1e6),
        action=st.none() | st.sampled_from(ADVICE_ACTIONS),
        reason=st.none() | st.sampled_from(["", "rank 3 is foreseen to run out", "é" * 300]),
    )
)
def test_demands_of_the_hub_are_understood(demand: messages.Demand) -> None:
    heard = wire.decode_demand(msgspec.json.encode(demand))
    assert heard is not None
    advice = (demand.action or "", demand.reason or "")
    assert tuple(heard) == (demand.kind, demand.request, demand.is_on, demand.seconds, *advice)


@given(
    packet=st.binary()
    | st.recursive(st.none() | st.integers() | st.text(), lambda it: st.dictionaries(st.text(), it)).map(
        msgspec.json.encode
    )
)
def test_garbage_is_no_demand(packet: bytes) -> None:
    assert wire.decode_demand(packet) is None


@pytest.mark.parametrize(
    "packet",
    [
        b'{"v":2,"kind":"detach"}',
        b'{"v":1,"kind":"dance"}',
        b'{"v":1,"kind":["detach"]}',
        b'{"v":1,"kind":"segments","request":"1"}',
        b"[" * 50_000,
    ],
)
def test_what_is_newer_foreign_or_wrong_is_no_demand(packet: bytes) -> None:
    assert wire.decode_demand(packet) is None


def test_a_reason_that_would_steer_a_terminal_loses_what_does() -> None:
    heard = wire.decode_demand(b'{"v":1,"kind":"advise","action":"checkpoint","reason":"a\\u001b[2Jb\\n"}')
    assert heard == wire.Demand("advise", action="checkpoint", reason="a [2Jb ")


@pytest.mark.parametrize("seconds", ["NaN", "Infinity", "-1", "1e999", '"9"', "true", "1" * 400])
def test_seconds_that_are_none_are_left_out(seconds: str) -> None:
    heard = wire.decode_demand(f'{{"v":1,"kind":"history","seconds":{seconds}}}'.encode())
    assert heard == wire.Demand("history")
