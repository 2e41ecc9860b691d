"""Messages: refused in one line when too large, too new or malformed, never with another exception."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.errors import WireError
from vramscope.engine.model import Sample
from vramscope.engine.wire.messages import PROTOCOL_VERSION, Welcome, body_of, decode, encode

from ..agent.hubs import make_sample


def test_a_sample_comes_back_as_it_went() -> None:
    envelope = decode(encode("sample", "hub", make_sample(3)))
    assert body_of(envelope, Sample) == make_sample(3)
    assert (envelope.kind, envelope.hub_id) == ("sample", "hub")


def test_an_unknown_newer_field_is_ignored() -> None:
    message = msgspec.msgpack.decode(encode("sample", "hub", make_sample(3)))
    message["signature"] = "new"
    body = msgspec.msgpack.decode(msgspec.msgpack.encode(make_sample(3)))
    body["weather"] = "fine"
    message["body"] = msgspec.Raw(msgspec.msgpack.encode(body))
    assert body_of(decode(msgspec.msgpack.encode(message)), Sample) == make_sample(3)


def test_an_unknown_newer_version_is_refused_with_what_to_do() -> None:
    message = msgspec.msgpack.encode({"version": PROTOCOL_VERSION + 1, "shape": "all different"})
    with pytest.raises(WireError, match=r"uses protocol 3.*up to 2.*same version"):
        decode(message)


def test_a_message_over_the_cap_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(WireError, match="2000 bytes was rejected: at most 1000"):
        decode(b"\xff" * 2000, max_bytes=1000)


@given(st.binary(max_size=300))
def test_garbage_is_refused_and_nothing_else(data: bytes) -> None:
    body: Welcome | None = None
    with contextlib.suppress(WireError):
        body = body_of(decode(data), Welcome)
    assert body is None or isinstance(body, Welcome)


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_flipped_byte_gives_a_message_or_a_refusal(position: int, value: int) -> None:
    data = bytearray(encode("sample", "hub", make_sample(3)))
    data[position % len(data)] = value
    with contextlib.suppress(WireError):
        assert isinstance(body_of(decode(bytes(data)), Sample), Sample)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(WireError):
        body_of(decode(encode("x", "h", make_sample(1))[:-1] + b"\x91" * 100_000), Sample)
