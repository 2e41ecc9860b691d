"""Reports of a distributed run: sent by each node, gathered by one."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec
import zmq

from ..clock import Clock, SystemClock, ceil_ms
from ..errors import UsageError, WireError, WireVersionError
from ..model import (
    AllocatorReading,
    DeviceSample,
    Finding,
    MemoryReading,
    RankCoordinates,
    RankSample,
    Sample,
    StepReading,
)
from ..wire.messages import NodeReceipt, NodeReport, body_of, decode, encode
from ..wire.selection import RemotePeer
from .addresses import LOOPBACK, FoundAddress, TcpAddress, parse_address, parse_port, resolve
from .connections import RemoteConnection, Sockets
from .gate import MAX_INCOMING_BYTES, Doorkeeper, Gate, Listening, make_listening
from .keys import keys_folder, read_key_pair
from .links import Failure, NodeKeys
from .loopback import LoopbackDoorkeeper, LoopbackTrust, share_loopback_key
from .trust import Trust, read_trust

REPORT = "node"
RECEIPT = "node_receipt"
"""Kinds of messages in the envelope of the bus."""
EARLIER_REPORT = "node_report"
"""Kind of the reports of versions that had structs of their own for devices and processes."""
MOST_NODES = 1024
"""Nodes that one gathers at most; further ones are counted and left out."""
MAX_NAME_LENGTH: Final = 200
MAX_TEXT_LENGTH: Final = 2000
MOST_DEVICES = 512
MOST_THREATS = 64
MOST_RANKS = 512


def trim_sample_to_report(sample: Sample, node_id: str, time_s: float, interval_s: float) -> Sample:
    """Return the part of a node's newest sample that is reported, or kept from a received report.

    Of a device that does not answer only its size is reported: what it said before is old by now.

    Args:
        interval_s: Seconds after which its next report is to be expected.
    """
    devices = (_trim_device(it) for it in sample.devices[:MOST_DEVICES])
    ranks = (it for it in sample.ranks[:MOST_RANKS] if it.coordinates is not None and it.state == "ok")
    return Sample(
        node_id,
        0,
        time_s,
        interval_s,
        tuple(devices),
        ranks=tuple(_trim_rank(it, it.coordinates, time_s) for it in ranks if it.coordinates is not None),
    )


def _trim_device(device: DeviceSample) -> DeviceSample:
    is_read = device.state == "ok"
    return DeviceSample(
        device.uuid,
        device.index,
        kind=device.kind,
        mig_index=device.mig_index,
        state=device.state,
        memory=_trim_memory(device.memory, is_read=is_read),
        utilization_percent=device.utilization_percent if is_read else None,
    )


def _trim_memory(memory: MemoryReading, *, is_read: bool) -> MemoryReading:
    # What no device can hold is unmeasured, as where a driver answers so: balance and sums rest on it.
    total_bytes = memory.total_bytes if memory.total_bytes is not None and memory.total_bytes > 0 else None
    most_bytes = math.inf if total_bytes is None else total_bytes
    used_bytes, free_bytes = (
        it if is_read and it is not None and 0 <= it <= most_bytes else None
        for it in (memory.used_bytes, memory.free_bytes)
    )
    return MemoryReading(total_bytes, used_bytes, free_bytes)


def _trim_rank(rank: RankSample, place: RankCoordinates, time_s: float) -> RankSample:
    allocator = rank.allocator or AllocatorReading()
    step = rank.step
    if step is not None:
        step = StepReading(step.index, time_s, floor_bytes=step.floor_bytes, peak_bytes=step.peak_bytes)
    return RankSample(
        pid=rank.pid,
        started_s=rank.started_s,
        job=rank.job,
        device_uuid=rank.device_uuid,
        is_simulated=rank.is_simulated,
        coordinates=RankCoordinates(place.rank, place.world_size, pp=place.pp),
        allocator=AllocatorReading(
            allocated_bytes=allocator.allocated_bytes, reserved_bytes=allocator.reserved_bytes
        ),
        step=step,
        floor_min_bytes=None if step is None else step.floor_bytes,
        peak_max_bytes=None if step is None else step.peak_bytes,
    )


def read_report(data: bytes) -> NodeReport:
    """Return a report that can be shown and kept.

    Raises:
        WireVersionError: It is of another version.
        WireError: It is no report, a number in it cannot be, its name is empty, a text is too
            long, or it has more than a node has.
    """
    envelope = decode(data)
    if envelope.kind == EARLIER_REPORT:
        raise WireVersionError(
            "this node runs an older version: install the same version of vramscope on both sides"
        )
    if envelope.kind != REPORT:
        raise WireError(f"a message of kind {envelope.kind[:40]!r} was rejected: expected {REPORT!r}")
    report = body_of(envelope, NodeReport)
    sample = report.sample
    is_named = 1 <= len(sample.node) <= MAX_NAME_LENGTH
    is_small = (
        len(sample.devices) <= MOST_DEVICES
        and len(sample.ranks) <= MOST_RANKS
        and len(report.findings) <= MOST_THREATS
    )
    texts = [it.job or "" for it in sample.ranks]
    texts += [text for it in report.findings for text in (it.title, it.advice)]
    if not (is_named and is_small and all(len(text) <= MAX_TEXT_LENGTH for text in texts)):
        raise WireError("rejected a node report: invalid name, text or length")
    trimmed = trim_sample_to_report(sample, sample.node, sample.time_s, sample.interval_s)
    findings = tuple(trim_finding_to_report(it) for it in report.findings)
    return msgspec.structs.replace(report, sample=trimmed, findings=findings)


def trim_finding_to_report(finding: Finding) -> Finding:
    return msgspec.structs.replace(finding, method="", evidence=())


Presence = Literal["here", "late", "silent", "left"]
"""`here`: its newest report is of this moment; `late`: one is missing; `silent`: none for longer than the
timeout; `left`: it ended its watch and said so."""


@dataclass(frozen=True, slots=True)
class RollEntry:
    report: NodeReport
    heard_s: float
    """Monotonic seconds of the node that gathers: clocks of others are not trusted for ages."""
    heard_wall_s: float
    key: str = ""
    """Public key that it showed, which keeps its name while it is there; none without keys."""


class NodeRoll:
    """Keeps the newest report of each node; where there are too many, a new one replaces the longest gone.

    Args:
        timeout_s: Seconds without a report after which a node counts as silent.
    """

    def __init__(self, timeout_s: float, clock: Clock | None = None) -> None:
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._nodes: dict[str, RollEntry] = {}
        self.refused = 0
        """Reports of nodes beyond the most that are kept."""
        self.twins = 0
        """Reports under the name of another node that is there, or with another key than its own."""

    @property
    def nodes(self) -> Mapping[str, RollEntry]:
        """The newest of each node, by its id, in the order in which they came first."""
        return self._nodes

    @property
    def present(self) -> tuple[NodeReport, ...]:
        """Newest reports of the nodes that are neither silent nor gone."""
        return tuple(self._nodes[it].report for it in self.find("here", "late"))

    @property
    def ages_s(self) -> Mapping[str, float]:
        """Seconds since the newest report of each node."""
        now_s = self._clock.monotonic_s()
        return {node: now_s - known.heard_s for node, known in self._nodes.items()}

    def take(self, report: NodeReport, key: str = "") -> None:
        now_s = self._clock.monotonic_s()
        wall_s = self._clock.wall_s()
        if report.node_id not in self._nodes and len(self._nodes) >= MOST_NODES:
            gone = self._find_longest_gone()
            if gone is not None:
                del self._nodes[gone]
        self._nodes[report.node_id] = RollEntry(report, now_s, wall_s, key)

    def refuse(self, report: NodeReport, key: str = "") -> str | None:
        """Return why a report is rejected, in one sentence, and count it; None for one that is accepted."""
        known = self._nodes.get(report.node_id)
        if known is None and len(self._nodes) >= MOST_NODES and self._find_longest_gone() is None:
            self.refused += 1
            return f"rejected: {MOST_NODES} nodes report already, the most there can be"
        if known is None or self._judge(known, self._clock.monotonic_s()) not in ("here", "late"):
            return None
        if known.key != key:
            self.twins += 1
            return (
                f"the name {report.node_id} is in use with another key, until that node leaves or is "
                f"silent for {self._timeout_s:.0f} s: give this node a unique name"
            )
        return None if known.report.session == report.session else self.refuse_twin(report.node_id)

    def refuse_twin(self, node_id: str) -> str:
        """Return the sentence for a second node under one name, and count it."""
        self.twins += 1
        return f"another node reports under the name {node_id}: give this one a unique name"

    def find(self, *presences: Presence) -> tuple[str, ...]:
        now_s = self._clock.monotonic_s()
        return tuple(it for it, known in self._nodes.items() if self._judge(known, now_s) in presences)

    def _find_longest_gone(self) -> str | None:
        """Return the node whose place a new one gets: one that left before one that is silent."""
        gone = self.find("left") or self.find("silent")
        return min(gone, key=lambda it: self._nodes[it].heard_s, default=None)

    def _judge(self, known: RollEntry, now_s: float) -> Presence:
        age_s = now_s - known.heard_s
        if known.report.is_leaving:
            return "left"
        if age_s > self._timeout_s:
            return "silent"
        return "late" if age_s > 2.0 * known.report.sample.interval_s else "here"


TORCHRUN_PORT = 29500
EVERYWHERE = "0.0.0.0"  # noqa: S104 - only where `*` was typed, and with keys


def find_host(host: str | None, port: int) -> TcpAddress:
    """Return the numeric address of a host; asks name servers, and may take long.

    Args:
        host: Name or number; None for this machine, `*` for all of its addresses.

    Raises:
        UsageError: It is no host, nobody knows the name, or the port is none.
    """
    parse_port(str(port))
    if host in (None, "", "localhost"):
        return TcpAddress(LOOPBACK, port)
    if host == "*":
        return TcpAddress(EVERYWHERE, port)
    return resolve(TcpAddress(_read_host(str(host)), port))


def _read_host(text: str) -> str:
    """Return a host as it was typed, without the brackets of IPv6."""
    bare = text.removeprefix("[").removesuffix("]")
    try:
        return parse_address(f"[{bare}]" if ":" in bare else bare).host
    except UsageError as error:
        raise UsageError(
            f"{text}: expected a host name or IP address only; give the port separately"
        ) from error


def prepare_gathering(
    host: str | None, port: int, *, is_insecure: bool, folder: Path | None = None
) -> Listening:
    """Return where the collecting node listens, and who may report.

    Args:
        host: As for `find_host`.
        is_insecure: Take reports without keys, wherever that is.
        folder: Folder of the keys; that of this user by default.

    Raises:
        UsageError: It is no address, or it is beyond loopback and there is no key.
        InputFileError: The keys cannot be used.
        RuntimeFolderError: Without keys: the runtime folder is not private, or cannot be made.
    """
    address = find_host(host, port)
    folder = folder or keys_folder()
    pair = None if is_insecure else read_key_pair(folder)
    if pair is None and not is_insecure and not address.is_loopback:
        raise UsageError(
            f"{host}: reports from other machines need keys, and you have none: create one with "
            "`vramscope keys new` (or accept reports from anyone with --insecure, in a program "
            "insecure=True)"
        )
    doorkeeper: Doorkeeper | None = None
    if pair is None and not is_insecure:
        doorkeeper = LoopbackDoorkeeper()
        pair = doorkeeper.pair
    hint = " (torchrun uses 29500 too)" if port == TORCHRUN_PORT else ""
    made = make_listening(address, pair, folder, visitor="worker")
    return made._replace(
        doorkeeper=doorkeeper or made.doorkeeper,
        taken=f"port {{port}} of {{host}} is in use by {{holder}}{hint}: choose another, here and on the "
        "workers",
    )


def describe_gathering(listening: Listening) -> str:
    """Return where reports are accepted, and from whom."""
    where = f"collecting on {listening.address.text}"
    if isinstance(listening.doorkeeper, LoopbackDoorkeeper):
        return f"{where} from your processes on this machine"
    if listening.pair is not None:
        return f"{where} for your key and keys with the role worker (`vramscope keys list`)"
    if listening.address.is_loopback:
        return f"{where}, INSECURE: from anyone on this machine"
    return f"{where}, INSECURE: anyone who can reach it can report, and anyone on the way can read"


MOST_AT_ONCE_S = 0.1
"""Longest time for which `collect` reads: a flood holds nothing up, and the rest waits for its turn."""
REPORT_COSTS = 1.0 / 64
"""Cost of a report at the gate, with which a thousand nodes of one key may report ten times a second."""


class Collector:
    """Listens at a gate, and answers each report with a receipt.

    Args:
        node_id: Name of this node, sent in receipts.

    Raises:
        UsageError: The port is taken, and the text names its holder; or the address is not of this machine.
    """

    def __init__(self, listening: Listening, node_id: str, roll: NodeRoll) -> None:
        self.listening = listening
        self._node_id = node_id
        self._roll = roll
        self._context = zmq.Context()
        try:
            self._gate = Gate(self._context, listening, node_id, node_id, SystemClock())
        except UsageError:
            self.close()
            raise

    @property
    def rejected(self) -> int:
        """Messages that were no reports, came too fast, or came with a key that may not report."""
        return self._gate.ignored

    @property
    def turned_away(self) -> int:
        """Addresses whose key was not let in when they last asked."""
        return len(self.listening.doorkeeper.turned_away)

    def collect(self) -> int:
        """Process the reports that have come, without waiting; return how many were accepted."""
        self._gate.cut_off_revoked()
        taken = 0
        is_more = True
        end_s = time.monotonic() + MOST_AT_ONCE_S
        while is_more and time.monotonic() < end_s:
            is_more = self._gate.take_questions()
            for peer, data in self._gate.take_requests(REPORT_COSTS):
                taken += self._take(peer, data)
                is_more = time.monotonic() < end_s
                if not is_more:
                    break
        return taken

    def close(self) -> None:
        self._context.destroy(linger=0)

    def _take(self, peer: RemotePeer, data: bytes) -> bool:
        try:
            report = read_report(data)
        except WireVersionError as error:
            self._gate.note_rejected()
            reason: str | None = str(error)
        except WireError:  # a viewer, say, which would take an answer for that of an agent
            self._gate.note_rejected()
            return False
        else:
            reason = self._refuse(peer, report)
            if reason is None:
                self._roll.take(report, peer.user)
        receipt = NodeReceipt(self._node_id, len(self._roll.nodes), reason is None, reason or "")
        self._gate.answer(peer, encode(RECEIPT, self._node_id, receipt))
        return reason is None

    def _refuse(self, peer: RemotePeer, report: NodeReport) -> str | None:
        if self._gate.refuse_report(peer) is not None:
            self._gate.note_rejected()
            return (
                f"this key may not report to {self._node_id}: run there `vramscope keys allow "
                f"{peer.user} --name NAME --role worker`"
            )
        if report.node_id == self._node_id:
            return self._roll.refuse_twin(report.node_id)
        return self._roll.refuse(report, peer.user)


LEAVE_WITHIN_MS = 300


class MasterTrust(Trust):
    """The keys of a node that reports, with the words for what stands against it."""

    def explain(self, address: TcpAddress, failure: Failure, keys: NodeKeys | None) -> str:
        if keys is None:
            what = "leave out --insecure" if self.is_insecure else "create one with `vramscope keys new`"
            return f"{address.text} asks for a key: {what}; or it is not a vramscope master"
        if failure == "refused":
            return (
                f"refused: this key is not allowed on {address.host}: run there `vramscope keys allow "
                f"{keys.own.public_text} --name NAME --role worker`"
            )
        if failure == "mechanism":
            return f"the master at {address.text} uses no keys: report to it with --insecure here too"
        return (
            f"the master at {address.text} has no key, or not the one known here for {address.host}: "
            "run `vramscope keys list` there, and here `vramscope keys allow KEY --name "
            f"{address.host} --role node` with the public key that it shows"
        )


class Reporter:
    """Connects to the node that gathers, again and again while it is away; use from one thread.

    Args:
        address: Its address, as it was typed.
        numeric: The same as a number.
    """

    def __init__(
        self, address: TcpAddress, numeric: TcpAddress, trust: Trust, clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self.receipt: NodeReceipt | None = None
        """The newest answer; None until the first."""
        self.has_been_accepted = False
        """Whether any report was."""
        self.endpoint = address.text
        self._answered_s = -math.inf
        self._context = zmq.Context()
        self._poller = zmq.Poller()
        self._connection = RemoteConnection(address, trust, Sockets(self._context, self._poller))
        self._connection.find(FoundAddress(address, numeric))

    @property
    def answer_age_s(self) -> float:
        """Seconds since the newest receipt; infinite before the first."""
        return self._clock.monotonic_s() - self._answered_s

    @property
    def trouble(self) -> str | None:
        """Why reports are not taken, in one sentence; None where nothing speaks against it."""
        if self._connection.trouble is not None:
            return self._connection.trouble
        is_refused = self.receipt is not None and not self.receipt.is_accepted
        if is_refused and self.receipt is not None:
            return self.receipt.reason
        return None if self._connection.link.is_connected else f"nobody listens at {self.endpoint}"

    def send(self, report: NodeReport) -> bool:
        """Send a report without waiting; return whether it was sent, which needs a listening master."""
        self.receive()
        if not self._connection.link.is_connected:
            return False
        self._connection.link.send(encode(REPORT, report.node_id, report))
        return True

    def receive(self) -> bool:
        """Process the receipts that have come, without waiting; return whether the connection is new."""
        is_new = self._connection.note_events()
        for data in self._connection.link.receive():
            self._take(data)
        self._connection.mend(self._clock.monotonic_s())
        return is_new

    def settle(self, timeout_s: float) -> None:
        """Wait for the master's first answer: a short watch may end before it comes."""
        end_s = self._clock.monotonic_s() + timeout_s
        while self.receipt is None and self._connection.link.is_connected:
            left_s = end_s - self._clock.monotonic_s()
            if left_s <= 0:
                return
            self._poller.poll(ceil_ms(left_s))
            self.receive()

    def close(self) -> None:
        """End the connection; a last report is given a moment to go."""
        self._context.destroy(linger=LEAVE_WITHIN_MS)

    def _take(self, data: bytes) -> None:
        try:
            envelope = decode(data, MAX_INCOMING_BYTES)
            if envelope.kind == RECEIPT:
                self.receipt = body_of(envelope, NodeReceipt)
                self._answered_s = self._clock.monotonic_s()
                self.has_been_accepted = self.has_been_accepted or self.receipt.is_accepted
        except WireError:
            return  # not a vramscope listens there; its silence is reported


def open_reporter(
    host: str | None, port: int, *, is_insecure: bool, trust: MasterTrust | None = None
) -> Reporter:
    """Return a connection to the node that gathers; asks name servers, and may take long.

    Args:
        host: Its name or number; None for this machine.
        is_insecure: Speak without keys beyond this machine too.
        trust: Keys; those of this user by default.

    Raises:
        UsageError: It is no address, or it is beyond loopback and there is no key.
        InputFileError: The keys cannot be used.
        RuntimeFolderError: Without keys: the runtime folder is not private, or cannot be made.
    """
    numeric = find_host(host, port)
    known: Trust = trust or MasterTrust(*read_trust(is_insecure=is_insecure))
    if known.pair is None and not known.is_insecure and numeric.is_loopback:
        known = LoopbackTrust(share_loopback_key(), known.allowed)
    if known.pair is None and not known.is_insecure and not numeric.is_loopback:
        raise UsageError(
            f"{host}: reports to other machines need keys, and you have none: create one with "
            "`vramscope keys new` (or send without keys with --insecure, in a program insecure=True)"
        )
    return Reporter(TcpAddress(host or "localhost", port), numeric, known)
