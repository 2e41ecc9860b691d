"""The envelope of a message, the bodies of all messages, and what a sample on the wire leaves out."""

from typing import Final, Literal, TypeVar, cast

import msgspec
from msgspec.structs import replace

from ..alerts.state import AlertState, FindingDecision
from ..errors import WireError, WireVersionError
from ..history import HistoryBlock
from ..model import (
    AdviceAction,
    Assessment,
    DeviceActivity,
    DeviceHardware,
    DeviceSample,
    Finding,
    HubStatus,
    ProcessReading,
    Sample,
)
from ..soundness import MAX_REASON_CHARACTERS, check_numbers, make_msgpack_decoder
from ..text import clean_texts, make_printable

# An unknown newer field is ignored; an unknown newer version is refused in one clear line. Nothing is
# pickled.

PROTOCOL_VERSION = 2
# Largest live message: a sample of about ten thousand devices.
MAX_MESSAGE_BYTES = 16 * 1024**2
# Largest history: a week of a thousand devices.
MAX_HISTORY_BYTES = 256 * 1024**2

Body = TypeVar("Body", bound=msgspec.Struct)


class Envelope(msgspec.Struct, frozen=True):
    """The outer part of every message."""

    version: int
    kind: str
    hub_id: str
    body: msgspec.Raw = msgspec.Raw()


class _VersionOnly(msgspec.Struct):
    version: int


# How long the newest rejection is among the notes of a hub.
REJECTION_TOLD_S = 600.0
_ENCODER = msgspec.msgpack.Encoder()
_ENVELOPE = msgspec.msgpack.Decoder(Envelope)
_VERSION = msgspec.msgpack.Decoder(_VersionOnly)
# What decoding hostile bytes may raise; invalid UTF-8 is a plain ValueError.
_MALFORMED = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
_LARGE_BYTES = 1 << 20
_BODIES: dict[type, msgspec.msgpack.Decoder[object]] = {}


def encode(kind: str, hub_id: str, body: msgspec.Struct) -> bytes:
    raw = msgspec.Raw(_ENCODER.encode(body))
    return _ENCODER.encode(Envelope(PROTOCOL_VERSION, kind, hub_id, raw))


def decode(data: bytes, max_bytes: int = MAX_MESSAGE_BYTES) -> Envelope:
    """Decode the envelope of one message; `body_of` decodes its body."""
    if len(data) > max_bytes:
        raise WireError(f"a message of {len(data)} bytes was rejected: at most {max_bytes} are accepted")
    try:
        envelope = _ENVELOPE.decode(data)
    except _MALFORMED as error:
        _refuse_newer(_find_version(data))
        raise WireError(f"a malformed message was rejected: {error}") from error
    _refuse_newer(envelope.version)
    return envelope


def _find_version(data: bytes) -> int:
    """Return the version of an unreadable message: the envelope of a newer one may differ."""
    try:
        return _VERSION.decode(data).version
    except _MALFORMED:
        return PROTOCOL_VERSION


def _refuse_newer(version: int) -> None:
    if version > PROTOCOL_VERSION:
        raise WireVersionError(
            f"the peer uses protocol {version}, this vramscope supports up to {PROTOCOL_VERSION}: "
            "install the same version of vramscope on both sides"
        )


def body_of(envelope: Envelope, body_type: type[Body]) -> Body:
    """Decode the body of a message, with every text in it made printable."""
    body = decode_body(envelope, body_type)
    try:
        check_numbers(body)
    except WireError as error:
        raise WireError(f"a {envelope.kind[:40]} message was rejected: {error}") from None
    return body


def decode_body(envelope: Envelope, body_type: type[Body]) -> Body:
    """Decode the body of a message, without checking its numbers."""
    decoder = _BODIES.get(body_type)
    if decoder is None:
        decoder = _BODIES[body_type] = make_msgpack_decoder(body_type)
    try:
        body = decoder.decode(envelope.body)
    except _MALFORMED as error:
        raise WireError(f"a malformed {envelope.kind[:40]} message was rejected: {error}") from error
    assert isinstance(body, body_type)  # noqa: S101 - tells the type checker what the decoder guarantees
    return clean_texts(body, is_large=len(envelope.body) > _LARGE_BYTES)


class Rejections:
    """Counts messages that an agent rejected, for its notes."""

    def __init__(self) -> None:
        self.count = 0
        self._newest = ""
        self._newest_s = 0.0

    def add(self, source: str, reason: object, now_s: float) -> None:
        """Count one message. `source`: its sender, as in "from a worker"."""
        self.count += 1
        text = f"{source}: {str(reason)[:MAX_REASON_CHARACTERS]}"
        self._newest = make_printable(text)
        self._newest_s = now_s

    def list_notes(self, now_s: float) -> tuple[str, ...]:
        """How many there were, and the newest of them; empty long after it."""
        if not self.count or now_s - self._newest_s > REJECTION_TOLD_S:
            return ()
        messages = "1 message was" if self.count == 1 else f"{self.count:,} messages were"
        return (f"{messages} rejected; the newest {self._newest}",)


# Followed by the node's name.
TOPIC_SAMPLE = b"sample/"
TOPIC_FINDING = b"finding/"
TOPIC_HUB = b"hub/"
TOPIC_SEGMENTS = b"segments/"
# Samples with no more in them than a cell of the fleet shows (`cells.py`); sent over tcp alone.
TOPIC_CELLS = b"cells/"
# The nodes behind a relay.
TOPIC_NODES = b"nodes/"
# Nothing is published under it: a subscription says that a viewer is there, its end that all have left.
TOPIC_VIEWER = b"viewer/"
# Number of a refusal that answers no request: this end receives nothing more.
TO_WHOM_IT_CONCERNS = 0


# How much of a node is sent: everything, or what a cell of the fleet shows.
Detail = Literal["full", "cells"]


class FindingBatch(msgspec.Struct, frozen=True):
    """Findings that opened, changed or closed, and how near each process is to running out of memory."""

    findings: tuple[Finding, ...]
    # All that are open; None if none has changed.
    assessments: tuple[Assessment, ...] | None = None
    # How many batches the hub has published, this one included; None if some are left out.
    number: int | None = None


class WorkerReport(msgspec.Struct, frozen=True):
    """A worker's report to its hub: every few seconds, and at once when findings changed."""

    name: str
    pid: int
    # Newest sample that was analyzed.
    seen_seq: int
    samples_dropped: int
    analyzers: tuple[str, ...]
    # Findings that opened, changed or closed since the last report.
    findings: tuple[Finding, ...] = ()
    # After catching up with the ring: every finding that is open in this worker; others are over.
    open_ids: tuple[str, ...] | None = None
    # An analyzer that failed and was set aside, in one sentence.
    reason: str | None = None
    # Those that changed since the last report.
    assessments: tuple[Assessment, ...] = ()
    # Name of the analyzer of each of `findings`.
    found_by: tuple[str, ...] = ()
    # It runs only chosen analyzers, and reports nothing of others.
    is_chosen: bool = False
    # One of its analyzers says how near processes are to running out of memory.
    is_assessor: bool = True


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    # What `trim_sample_to_report` keeps of its devices and of its processes that know their rank.
    sample: Sample
    # Out-of-memory errors that are expected, or were met, and are not over.
    findings: tuple[Finding, ...] = ()
    # The least of the newest steps of its processes, as their probes count.
    step: int | None = None
    # Whether it is the last report of a node that ends its watch.
    is_leaving: bool = False
    # Random for each watch, so that two nodes with one name differ.
    session: str = ""

    @property
    def node_id(self) -> str:
        return self.sample.node


class NodeReceipt(msgspec.Struct, frozen=True):
    master_id: str
    total_nodes: int
    # False if there are too many nodes already, the name belongs to another, or the key may not report.
    is_accepted: bool
    # Why it was not accepted, in one sentence.
    reason: str = ""


class Request(msgspec.Struct, frozen=True):
    """A request of a viewer or worker to a hub."""

    # `join`: everything the hub knows. `decide`: a person's decision about a finding. The others are passed
    # on to the training process `pid`: send a segment map; detach from the process; record allocations with
    # their stacks, or stop; profile modules for a few steps; do what `action` says at the end of a step.
    # `attach`: load the probe into the process `pid` of the agent's node. `leave`, at a relay: send nothing
    # more of `node`.
    verb: Literal["join", "leave", "segments", "detach", "history", "modules", "decide", "advise", "attach"]
    request_id: int
    pid: int | None = None
    # For `history`.
    is_on: bool = True
    # For `history`: how long at most. For the others: how long to wait for the end of a step.
    seconds: float | None = None
    # For `decide`.
    decision: FindingDecision | None = None
    # For `join` over tcp: prefixes of topics that are sent from the answer on; over ipc, subscriptions set
    # them.
    topics: tuple[str, ...] = ()
    # For `join`: with `cells` the answer has no history, and a sample with no more than a cell shows.
    detail: Detail = "full"
    # For `join`: the newest sample that this end has of the hub in the envelope: the answer has that hub's
    # history from there on. None for all of it.
    since_seq: int | None = None
    # At a relay: the node behind it that is asked; "" for the relay itself.
    node: str = ""
    # For `advise`.
    action: AdviceAction | None = None
    # For `advise`: why, in one sentence; the callback of the program gets it.
    reason: str | None = None
    # For `join`: the wanted devices, as in `DeviceSelection.words`; none for all. The answer has nothing of
    # others, and over tcp nothing is sent; over ipc everybody receives all.
    devices: tuple[str, ...] = ()
    # For `attach`: when the process that is meant started, as in `ProcessReading`; another one that has its
    # number by now is refused.
    started_s: float | None = None


class Welcome(msgspec.Struct, frozen=True):
    """Everything a hub knows, for a viewer that connects late or missed something."""

    request_id: int
    sample: Sample | None
    findings: tuple[Finding, ...]
    hub: HubStatus
    history: HistoryBlock
    # First sample this hub ever published.
    first_seq: int | None = None
    # First sample that is still in `history`; those before it are forgotten.
    history_first_seq: int | None = None
    alerts: AlertState = AlertState()
    assessments: tuple[Assessment, ...] = ()
    # Number of the newest batch of findings in here; None if nobody counts them.
    findings_number: int | None = None


class Done(msgspec.Struct, frozen=True):
    """A request was carried out; a segment map, or a decision, comes with the stream."""

    request_id: int
    # What was done, in one sentence, where there is something to say.
    outcome: str = ""


class ModulesAnswer(msgspec.Struct, frozen=True):
    """A profile by module, for those who asked for it alone."""

    request_id: int
    pid: int
    # The zlib-compressed text of a `module_memory.jsonl`, as the probe packed it.
    data: bytes


class Refusal(msgspec.Struct, frozen=True):
    request_id: int
    reason: str


class Advised(msgspec.Struct, frozen=True):
    """A training process's answer to an advice, for those who gave it alone."""

    request_id: int
    pid: int
    # It did what was asked.
    is_obeyed: bool
    # Its effect, or why nothing was done, in one sentence without its subject, which is the process.
    outcome: str
    # Reserved bytes that the device got back; None if that was not measured.
    freed_bytes: int | None = None


class KnownNode(msgspec.Struct, frozen=True):
    # In requests and messages; unique behind this relay.
    name: str
    connection: Literal["connecting", "live", "lost"]
    # Why it is not live, in one sentence.
    reason: str | None = None
    # Seconds since its last message.
    silent_s: float | None = None


class KnownNodes(msgspec.Struct, frozen=True):
    """All nodes behind a relay: its answer to a `join` that names no node, and again whenever that changed.

    A relay sends two frames a message: the name of the node, "" for the relay itself, and the message.
    """

    request_id: int
    # Name of the relay's own node.
    relay: str
    nodes: tuple[KnownNode, ...]
    # Ids of the relay and of all relays behind it; one that finds its own there would follow itself.
    relays: tuple[str, ...] = ()


# Parts of a device that are as in the sample before are left out, and filled in at the other end.
#
# Clocks, limits, versions and processes are most of a sample, and most stay the same for seconds. Whoever
# misses a sample asks for the newest in full, so both ends know the one before; now and then everything is
# sent all the same, for those whose answer came too late.

# Every so many samples nothing is left out.
WHOLE_EVERY = 30


class _AsBefore(msgspec.Struct, frozen=True):
    """Encoded as an empty map, which is decoded as a part without a single value."""

    def __bool__(self) -> bool:
        """Nothing in it is to be checked: what it stands for was, when it was sent."""
        return False

    def __getattr__(self, name: str) -> None:
        """Whoever cuts a sample for a peer asks for a command."""


class _ProcessesAsBefore(_AsBefore, frozen=True):
    """Encoded as a map with a number that no process has."""

    pid: int = 0


_SAME_ACTIVITY: Final = cast(DeviceActivity, _AsBefore())
_SAME_HARDWARE: Final = cast(DeviceHardware, _AsBefore())
_SAME_PROCESSES: Final = (cast(ProcessReading, _ProcessesAsBefore()),)
_NO_PROCESSES: Final = (ProcessReading(pid=0),)
_NO_ACTIVITY: Final = DeviceActivity()
_NO_HARDWARE: Final = DeviceHardware()


def leave_out_unchanged(sample: Sample, before: Sample | None) -> Sample:
    """Return a sample to be sent to those who have the one before; its empty parts are only to be encoded."""
    if before is None or sample.seq % WHOLE_EVERY == 0:
        return sample
    known = {device.uuid: device for device in before.devices}
    devices = tuple([_shorten(device, known.get(device.uuid)) for device in sample.devices])
    return replace(sample, devices=devices)


def _shorten(device: DeviceSample, before: DeviceSample | None) -> DeviceSample:
    if before is None:
        return device
    activity = device.activity
    hardware = device.hardware
    processes = device.processes
    is_same_activity = activity is not None and activity == before.activity
    is_same_hardware = hardware is not None and hardware == before.hardware
    is_same_processes = bool(processes) and processes == before.processes
    if not (is_same_activity or is_same_hardware or is_same_processes):
        return device
    return replace(
        device,
        activity=_SAME_ACTIVITY if is_same_activity else activity,
        hardware=_SAME_HARDWARE if is_same_hardware else hardware,
        processes=_SAME_PROCESSES if is_same_processes else processes,
    )


def fill_in_unchanged(sample: Sample, before: Sample | None) -> Sample:
    """Return a sample as it was before `leave_out_unchanged`.

    If the newest one here is not the one before it, what was left out is unmeasured: it may have changed.
    """
    if not any(
        it.activity == _NO_ACTIVITY or it.hardware == _NO_HARDWARE or it.processes == _NO_PROCESSES
        for it in sample.devices
    ):
        return sample
    is_next = before is not None and before.seq == sample.seq - 1
    known = {device.uuid: device for device in before.devices} if before is not None and is_next else {}
    return replace(sample, devices=tuple([_complete(it, known.get(it.uuid)) for it in sample.devices]))


def _complete(device: DeviceSample, before: DeviceSample | None) -> DeviceSample:
    activity = device.activity
    hardware = device.hardware
    processes = device.processes
    if activity == _NO_ACTIVITY:
        activity = None if before is None else before.activity
    if hardware == _NO_HARDWARE:
        hardware = None if before is None else before.hardware
    if processes == _NO_PROCESSES:
        processes = None if before is None else before.processes
    return replace(device, activity=activity, hardware=hardware, processes=processes)
