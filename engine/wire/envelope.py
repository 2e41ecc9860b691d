"""The one message format: a versioned MessagePack envelope around a typed body, capped before decoding.

An unknown newer field is ignored; an unknown newer version is refused in one clear line. Nothing is pickled.
"""

from typing import TypeVar

import msgspec

from ..decoders import make_msgpack_decoder
from ..errors import WireError
from ..soundness import MAX_REASON_CHARACTERS, check_numbers
from ..text import clean_texts, make_printable

PROTOCOL_VERSION = 1
MAX_MESSAGE_BYTES = 16 * 1024**2
"""Largest live message: a sample of about ten thousand devices."""
MAX_HISTORY_BYTES = 256 * 1024**2
"""Largest history: a week of a thousand devices."""

Body = TypeVar("Body", bound=msgspec.Struct)


class Envelope(msgspec.Struct, frozen=True):
    """What every message begins with."""

    version: int
    kind: str
    hub_id: str
    body: msgspec.Raw = msgspec.Raw()


class _VersionOnly(msgspec.Struct):
    version: int


REJECTION_TOLD_S = 600.0
"""How long the newest rejection is among the notes of a hub."""
_ENCODER = msgspec.msgpack.Encoder()
_ENVELOPE = msgspec.msgpack.Decoder(Envelope)
_VERSION = msgspec.msgpack.Decoder(_VersionOnly)
_MALFORMED = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""What decoding hostile bytes may raise; invalid UTF-8 is a plain ValueError."""
_LARGE_BYTES = 1 << 20
_BODIES: dict[type, msgspec.msgpack.Decoder[object]] = {}


def encode(kind: str, hub_id: str, body: msgspec.Struct) -> bytes:
    """Return one message."""
    raw = msgspec.Raw(_ENCODER.encode(body))
    return _ENCODER.encode(Envelope(PROTOCOL_VERSION, kind, hub_id, raw))


def decode(data: bytes, max_bytes: int = MAX_MESSAGE_BYTES) -> Envelope:
    """Return the envelope of one message; its body is decoded by `body_of`.

    Raises:
        WireError: The message is too large, malformed, or of a newer version.
    """
    if len(data) > max_bytes:
        raise WireError(f"a message of {len(data)} bytes was refused: at most {max_bytes} are accepted")
    try:
        envelope = _ENVELOPE.decode(data)
    except _MALFORMED as error:
        _refuse_newer(_find_version(data))
        raise WireError(f"a malformed message was refused: {error}") from error
    _refuse_newer(envelope.version)
    return envelope


def _find_version(data: bytes) -> int:
    """Return the version of a message that could not be read, as of a newer one whose envelope is another."""
    try:
        return _VERSION.decode(data).version
    except _MALFORMED:
        return PROTOCOL_VERSION


def _refuse_newer(version: int) -> None:
    if version > PROTOCOL_VERSION:
        raise WireError(
            f"the peer speaks protocol {version}, this vramscope understands up to {PROTOCOL_VERSION}: "
            "install the same version of vramscope on both sides"
        )


def body_of(envelope: Envelope, body_type: type[Body]) -> Body:
    """Return the typed body of a message, with every text in it made printable.

    Raises:
        WireError: The body is not what its kind promises, or one of its numbers cannot be.
    """
    body = decode_body(envelope, body_type)
    try:
        check_numbers(body)
    except WireError as error:
        raise WireError(f"a {envelope.kind[:40]} message was rejected: {error}") from None
    return body


def decode_body(envelope: Envelope, body_type: type[Body]) -> Body:
    """Return the typed body of a message whose numbers nobody has checked yet.

    Raises:
        WireError: The body is not what its kind promises.
    """
    decoder = _BODIES.get(body_type)
    if decoder is None:
        decoder = _BODIES[body_type] = make_msgpack_decoder(body_type)
    try:
        body = decoder.decode(envelope.body)
    except _MALFORMED as error:
        raise WireError(f"a malformed {envelope.kind[:40]} message was refused: {error}") from error
    assert isinstance(body, body_type)  # noqa: S101 - tells the type checker what the decoder guarantees
    return clean_texts(body, is_large=len(envelope.body) > _LARGE_BYTES)


class Rejections:
    """Counts messages that an agent rejected, for its notes."""

    def __init__(self) -> None:
        self.count = 0
        self._newest = ""
        self._newest_s = 0.0

    def add(self, source: str, reason: object, now_s: float) -> None:
        """Count one message.

        Args:
            source: Who sent it, as in "from a worker".
            reason: Why it was rejected.
            now_s: Monotonic seconds.
        """
        self.count += 1
        text = f"{source}: {str(reason)[:MAX_REASON_CHARACTERS]}"
        self._newest = make_printable(text)
        self._newest_s = now_s

    def list_notes(self, now_s: float) -> tuple[str, ...]:
        """Return how many there were, and the newest of them; nothing long after it."""
        if not self.count or now_s - self._newest_s > REJECTION_TOLD_S:
            return ()
        messages = "1 message was" if self.count == 1 else f"{self.count:,} messages were"
        return (f"{messages} rejected; the newest {self._newest}",)
