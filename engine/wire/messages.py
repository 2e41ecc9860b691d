"""The envelope of a message, and the bodies of all messages."""

from typing import Literal, TypeVar

import msgspec

from ..alerts.state import AlertState, FindingDecision
from ..errors import WireError
from ..history import HistoryBlock
from ..model import AdviceAction, Assessment, Finding, HubStatus, Sample
from ..soundness import MAX_REASON_CHARACTERS, check_numbers, make_msgpack_decoder
from ..text import clean_texts, make_printable

# An unknown newer field is ignored; an unknown newer version is refused in one clear line. Nothing is
# pickled.

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


TOPIC_SAMPLE = b"sample/"
"""Followed by the node's name."""
TOPIC_FINDING = b"finding/"
TOPIC_HUB = b"hub/"
TOPIC_SEGMENTS = b"segments/"
TOPIC_CELLS = b"cells/"
"""Samples with no more in them than a cell of the fleet shows (`cells.py`); sent over tcp alone."""
TOPIC_NODES = b"nodes/"
"""What a relay knows of the nodes behind it."""
TOPIC_VIEWER = b"viewer/"
"""Nothing is published under it: a subscription says that a viewer is there, its end that none is left."""
TO_WHOM_IT_CONCERNS = 0
"""Number of a refusal that answers no request: this end is told nothing more."""


Detail = Literal["full", "cells"]
"""How much of a node is sent: everything, or what a cell of the fleet shows."""


class FindingBatch(msgspec.Struct, frozen=True):
    """Findings that opened, changed or closed, and how near each process is to running out of memory."""

    findings: tuple[Finding, ...]
    assessments: tuple[Assessment, ...] | None = None
    """All that stand; None where none has changed."""
    number: int | None = None
    """How many batches the hub has published, this one included; None where some are left out."""


class WorkerReport(msgspec.Struct, frozen=True):
    """What a worker tells its hub: every few seconds, and at once when findings changed."""

    name: str
    pid: int
    seen_seq: int
    """Newest sample that was analyzed."""
    samples_dropped: int
    analyzers: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    """Findings that opened, changed or closed since the last report."""
    open_ids: tuple[str, ...] | None = None
    """After catching up with the ring: every finding this worker holds open; others are over."""
    reason: str | None = None
    """An analyzer that failed and was set aside, in one sentence."""
    assessments: tuple[Assessment, ...] = ()
    """Those that changed since the last report."""
    found_by: tuple[str, ...] = ()
    """Name of the analyzer that each of `findings` comes of."""
    is_chosen: bool = False
    """Whether it runs some analyzers that were chosen: what comes of others is none of its business."""
    is_assessor: bool = True
    """Whether one of its analyzers says how near processes are to running out of memory."""


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """One node of a distributed run, as it reports to the one that gathers."""

    sample: Sample
    """Its devices and its processes that know their rank, of which `trim_sample_to_report` keeps a part."""
    findings: tuple[Finding, ...] = ()
    """Out-of-memory errors that are foreseen, or were met, and are not over."""
    step: int | None = None
    """The least of the newest steps of its processes, as their probes count."""
    is_leaving: bool = False
    """Whether it is the last of a node that ends its watch."""
    session: str = ""
    """Of one watch, random: two nodes under one name have two."""

    @property
    def node_id(self) -> str:
        return self.sample.node


class NodeReceipt(msgspec.Struct, frozen=True):
    """What a report is answered with."""

    master_id: str
    total_nodes: int
    is_accepted: bool
    """False where there are too many nodes already, the name is another's, or the key may not report."""
    reason: str = ""
    """Why it was not accepted, in one sentence."""


class Request(msgspec.Struct, frozen=True):
    """What a viewer or worker asks of a hub."""

    verb: Literal["join", "leave", "segments", "detach", "history", "modules", "decide", "advise"]
    """`join`: everything the hub knows. `decide`: what a person decided about a finding. The others are
    passed on to the training process `pid`: a segment map, please; let go of the process; record allocations
    with their stacks, or stop; profile modules for a few steps; do what `action` says at the end of a step.
    `leave`, at a relay: send nothing more of `node`."""
    request_id: int
    pid: int | None = None
    is_on: bool = True
    """For `history`."""
    seconds: float | None = None
    """For `history`: how long at most. For the others: how long to wait for the end of a step."""
    decision: FindingDecision | None = None
    """For `decide`."""
    topics: tuple[str, ...] = ()
    """For `join` over tcp: the beginnings of topics that are sent from the answer on; over ipc, subscriptions
    say it."""
    detail: Detail = "full"
    """For `join`: of `cells` the answer has no history, and a sample with no more than a cell shows."""
    since_seq: int | None = None
    """For `join`: the newest sample that this end has of the hub that its envelope names: of that hub's
    history the answer tells what came from there on. None for all of it."""
    node: str = ""
    """At a relay: which of the nodes behind it is asked; empty for the relay itself."""
    action: AdviceAction | None = None
    """For `advise`."""
    reason: str | None = None
    """For `advise`: why, in one sentence; the callback of the program gets it."""
    devices: tuple[str, ...] = ()
    """For `join`: the devices that are asked for, as in `DeviceSelection.words`; none for all. Of others the
    answer has nothing, and over tcp nothing is sent; over ipc everybody hears of all."""


class Welcome(msgspec.Struct, frozen=True):
    """Everything a hub knows, for whoever attaches late or missed something."""

    request_id: int
    sample: Sample | None
    findings: tuple[Finding, ...]
    hub: HubStatus
    history: HistoryBlock
    first_seq: int | None = None
    """First sample this hub ever published."""
    history_first_seq: int | None = None
    """First sample that `history` still holds; those before it are forgotten."""
    alerts: AlertState = AlertState()
    assessments: tuple[Assessment, ...] = ()
    findings_number: int | None = None
    """That of the newest batch of findings which is in here; None where nobody counts them."""


class Done(msgspec.Struct, frozen=True):
    """What was asked has come about; a segment map, or what was decided, comes with the stream."""

    request_id: int


class ModulesAnswer(msgspec.Struct, frozen=True):
    """A profile by module that was asked for; it goes to those who asked for it alone."""

    request_id: int
    pid: int
    data: bytes
    """The zlib-compressed text of a `module_memory.jsonl`, as the probe packed it."""


class Refusal(msgspec.Struct, frozen=True):
    """Why a request was not answered."""

    request_id: int
    reason: str


class Advised(msgspec.Struct, frozen=True):
    """What a training process made of an advice; it goes to those who gave it alone."""

    request_id: int
    pid: int
    is_obeyed: bool
    """Whether it did what was asked."""
    outcome: str
    """What came of it, or why nothing was done, in one sentence without its subject, which is the process."""
    freed_bytes: int | None = None
    """Reserved bytes that were given back to the device; None where that was not measured."""


class KnownNode(msgspec.Struct, frozen=True):
    """One node behind a relay."""

    name: str
    """By which requests and messages name it; unlike those of all others behind this relay."""
    connection: Literal["connecting", "live", "lost"]
    reason: str | None = None
    """Why it is not live, in one sentence."""
    silent_s: float | None = None
    """Seconds for which it has said nothing."""


class KnownNodes(msgspec.Struct, frozen=True):
    """All nodes behind a relay: its answer to a `join` that names no node, and again whenever that changed.

    A relay sends two frames a message: the name of the node, empty for the relay itself, and the message.
    """

    request_id: int
    relay: str
    """Name of the relay's own node."""
    nodes: tuple[KnownNode, ...]
    relays: tuple[str, ...] = ()
    """Ids of the relay and of all relays behind it; one that finds its own there would follow itself."""
