"""Packets of probes, checked: what cannot be trusted on its way into samples is refused in one sentence."""

import msgspec

from ..decoders import make_json_decoder
from ..errors import WireError
from ..soundness import check_numbers
from ..text import clean_texts
from .messages import MAX_PACKET_BYTES, PROBE_PROTOCOL, ProbeMessage


class _VersionOnly(msgspec.Struct):
    v: int


_MESSAGE: "msgspec.json.Decoder[ProbeMessage]" = make_json_decoder(ProbeMessage)  # type: ignore[arg-type]
_VERSION = msgspec.json.Decoder(_VersionOnly)
_MALFORMED = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""What decoding or encoding hostile content may raise."""


def decode_packet(data: bytes | memoryview) -> ProbeMessage:
    """Return the message of one packet, with every text in it made printable.

    Raises:
        WireError: The packet is too large, malformed, of a newer version, or cannot travel on in a sample.
    """
    if len(data) > MAX_PACKET_BYTES:
        raise WireError(f"sent a packet of more than {MAX_PACKET_BYTES} bytes")
    try:
        message = _MESSAGE.decode(data)
        if message.v <= PROBE_PROTOCOL:
            check_numbers(message)
            msgspec.msgpack.encode(message)  # JSON knows numbers that no stream of ours can carry
            return clean_texts(message)
    except WireError as error:
        raise WireError(f"sent a malformed message: {error}") from None
    except _MALFORMED as error:
        _refuse_newer(data)
        raise WireError(f"sent a malformed message: {error}") from error
    raise _too_new(message.v)


def encode_packet(message: msgspec.Struct) -> bytes:
    """Return one message as a packet."""
    return msgspec.json.encode(message)


def _refuse_newer(data: bytes | memoryview) -> None:
    try:
        version = _VERSION.decode(data).v
    except _MALFORMED:
        return
    if version > PROBE_PROTOCOL:
        raise _too_new(version)


def _too_new(version: int) -> WireError:
    return WireError(
        f"speaks probe protocol {version}, this agent understands up to {PROBE_PROTOCOL}: "
        "start the agent from the newer vramscope"
    )
