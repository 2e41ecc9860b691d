"""What a remote peer wants: which devices, how much, and messages trimmed to that."""

import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import InitVar, dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from ..alerts.state import AlertState
from ..errors import UsageError
from ..history import HistoryBlock
from ..history.block import HOST_KEY
from ..masking import mask_command, name_program
from ..model import Assessment, DeviceSample, Finding, HubStatus, Sample, ServerSample
from ..ranks.messages import PackedSegments
from .messages import FindingBatch, Welcome

MAX_WORDS = 64
MAX_WORD_CHARACTERS = 80
MAX_SHOWN_LABELS = 16
MAX_REMEMBERED = 4096
# Shorter words are no prefix of a UUID.
LEAST_OF_UUID = 4
EXAMPLE = "expected device numbers as shown, such as 0,2-5 or 0:1, or the start of UUIDs"
_RANGE = re.compile(r"(\d{1,6})-(\d{1,6})", re.ASCII)
_LABEL = re.compile(r"\d+(:\d+)?", re.ASCII)


@dataclass(frozen=True)
class DeviceSelection:
    """Devices by name; a device is wanted if one of the words means it."""

    words: tuple[str, ...]
    # Answers so far: the same devices are asked for at every sample.
    _known: dict[tuple[str, str], bool] = field(default_factory=dict, compare=False, repr=False)

    @property
    def text(self) -> str:
        return ",".join(self.words)

    def wants(self, uuid: str | None, label: str | None) -> bool:
        """Return whether a device is wanted."""
        key = uuid or "", label or ""
        is_wanted = self._known.get(key)
        if is_wanted is None:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            is_wanted = self._known[key] = any(_means(word.casefold(), *key) for word in self.words)
        return is_wanted


@lru_cache(maxsize=256)  # the same for every node that is followed
def select_devices(words: tuple[str, ...]) -> DeviceSelection | None:
    """Return a selection; None without words, which means all."""
    return DeviceSelection(words) if words else None


def parse_devices(text: str) -> tuple[str, ...]:
    """Parse a list with commas.

    Raises:
        UsageError: A word cannot mean a device, or there are too many.
    """
    words = tuple(word.strip() for word in text.split(","))
    for word in words:
        found = _RANGE.fullmatch(word)
        if not word or not word.isprintable() or (found is None and re.fullmatch(r"[\d-]*-[\d-]*", word)):
            raise UsageError(f"--devices {text!r}: {EXAMPLE}")
        if found is not None and int(found[1]) > int(found[2]):
            raise UsageError(f"--devices {text}: {word} ends before it starts; write {found[2]}-{found[1]}")
    reason = explain_excess(words)
    if reason is not None:
        raise UsageError(f"--devices {reason}")
    return words


def explain_excess(words: Sequence[str]) -> str | None:
    """Return why words are too many or too long, in one sentence, or None."""
    if len(words) > MAX_WORDS:
        return (
            f"names {len(words)} devices or ranges: expected at most {MAX_WORDS}; join them, for example 0-7"
        )
    if any(len(word) > MAX_WORD_CHARACTERS for word in words):
        return f"has a word of more than {MAX_WORD_CHARACTERS} characters; no device has such a name"
    return None


def describe_labels(labels: Iterable[str]) -> str:
    """List devices in a few words: `0-7`, `0, 0:0, 0:1`, and an ellipsis after many."""
    runs: list[list[str]] = []
    for label in labels:
        last = runs[-1][-1] if runs else ""
        if label.isdecimal() and last.isdecimal() and int(label) == int(last) + 1:
            runs[-1].append(label)
        else:
            runs.append([label])
    told = [run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return ", ".join([*told[:MAX_SHOWN_LABELS], *(["…"] if len(told) > MAX_SHOWN_LABELS else [])])


def _means(word: str, uuid: str, label: str) -> bool:
    found = _RANGE.fullmatch(word)
    if found is not None:
        is_number = label.isascii() and label.isdecimal()
        return is_number and int(found[1]) <= int(label) <= int(found[2])
    if label and fnmatchcase(label, word):
        return True
    is_of_uuid = len(word) >= LEAST_OF_UUID and _LABEL.fullmatch(word) is None
    return is_of_uuid and uuid.casefold().startswith(word)


class Cut(NamedTuple):
    """What of a node's messages a peer gets."""

    # None for all devices.
    devices: DeviceSelection | None = None
    # Whose commands it may read with their arguments, secrets masked; None for everybody's, as they are.
    commands_of: str | None = None

    @property
    def is_whole(self) -> bool:
        return self == Cut()


def hide_commands(sample: Sample, user: str) -> Sample:
    """Return a sample for a peer without the right to commands: of processes of others it has the program.

    Args:
        user: Whose agent it is; secrets in commands of this user are masked. Ranks report to agents of their
            own user alone.
    """
    return replace(
        sample,
        devices=tuple([_hide_commands_on(device, user) for device in sample.devices]),
        ranks=tuple(
            [
                it if it.command is None else replace(it, command=mask_command(it.command))
                for it in sample.ranks
            ]
        ),
    )


def _hide_commands_on(device: DeviceSample, user: str) -> DeviceSample:
    if not device.processes:
        return device
    processes = [
        it
        if it.command is None
        else replace(it, command=mask_command(it.command) if it.user == user else name_program(it.command))
        for it in device.processes
    ]
    return replace(device, processes=tuple(processes))


# What is about the node as a whole stays, and a process whose device is not known.

# All publications of a node.
Told = Sample | FindingBatch | AlertState | HubStatus | PackedSegments


def cut(told: Told, part: Cut, sample: Sample | None) -> Told | None:
    """Return the part of a publication that a peer gets; None if nothing is left of it."""
    found = told if part.devices is None else trim(told, part.devices, sample)
    if isinstance(found, Sample) and part.commands_of is not None:
        return hide_commands(found, part.commands_of)
    return found


def cut_welcome(welcome: Welcome, part: Cut) -> Welcome:
    found = welcome if part.devices is None else trim_welcome(welcome, part.devices)
    if found.sample is None or part.commands_of is None:
        return found
    return replace(found, sample=hide_commands(found.sample, part.commands_of))


def trim(told: Told, wanted: DeviceSelection, sample: Sample | None) -> Told | None:
    """Return the part of a publication about the wanted devices; None if nothing is left of it."""
    if isinstance(told, Sample):
        return trim_sample(told, wanted)
    if isinstance(told, FindingBatch):
        findings = trim_findings(told.findings, wanted)
        if not findings and told.assessments is None:
            return None
        assessments = None if told.assessments is None else trim_assessments(told.assessments, wanted)
        return FindingBatch(findings, assessments)
    if isinstance(told, AlertState):
        return trim_alerts(told, wanted, sample)
    if isinstance(told, PackedSegments):
        return trim_map(told, wanted, sample)
    return told


def trim_sample(sample: Sample, wanted: DeviceSelection) -> Sample:
    """Return a sample with the wanted devices, and the processes on them.

    If there are none, its first note says so, with the labels of the node's devices.
    """
    devices = tuple(it for it in sample.devices if wanted.wants(it.uuid, it.label))
    if len(devices) == len(sample.devices):
        return sample
    uuids: set[str | None] = {None, *(device.uuid for device in devices)}
    return replace(
        sample,
        devices=devices,
        ranks=tuple(it for it in sample.ranks if it.device_uuid in uuids),
        servers=tuple(it for it in sample.servers if _is_on(it, uuids)),
        devices_left_out=sample.devices_left_out + len(sample.devices) - len(devices),
        notes=sample.notes if devices else (_explain_mismatch(sample, wanted), *sample.notes),
    )


def _is_on(server: ServerSample, uuids: Set[str | None]) -> bool:
    """Return whether a server uses one of some devices, or none that is known."""
    return not server.devices or any(device.uuid in uuids for device in server.devices)


def find_mismatch(sample: Sample) -> str | None:
    """Say in one sentence that no device of a node is wanted; None if one is."""
    is_empty = sample.devices_left_out > 0 and not sample.devices
    return sample.notes[0] if is_empty and sample.notes else None


def trim_findings(findings: tuple[Finding, ...], wanted: DeviceSelection) -> tuple[Finding, ...]:
    return tuple(it for it in findings if it.device_uuid is None or wanted.wants(it.device_uuid, it.device))


def trim_assessments(assessments: tuple[Assessment, ...], wanted: DeviceSelection) -> tuple[Assessment, ...]:
    return tuple(
        it for it in assessments if it.device_uuid is None or wanted.wants(it.device_uuid, it.device)
    )


def trim_alerts(alerts: AlertState, wanted: DeviceSelection, sample: Sample | None) -> AlertState:
    """Keep the decisions about wanted devices, and the history of their findings."""
    uuids = _find_uuids(wanted, sample)
    return AlertState(
        tuple(it for it in alerts.acknowledged if it.device_uuid in uuids),
        tuple(it for it in alerts.mutes if it.device_uuid in uuids),
        tuple(it for it in alerts.changes if it.device_uuid in uuids),
    )


def trim_map(packed: PackedSegments, wanted: DeviceSelection, sample: Sample | None) -> PackedSegments | None:
    return packed if packed.device_uuid in _find_uuids(wanted, sample) else None


def trim_welcome(welcome: Welcome, wanted: DeviceSelection) -> Welcome:
    sample = welcome.sample
    return replace(
        welcome,
        sample=None if sample is None else trim_sample(sample, wanted),
        findings=trim_findings(welcome.findings, wanted),
        history=trim_history(welcome.history, wanted),
        assessments=trim_assessments(welcome.assessments, wanted),
        alerts=trim_alerts(welcome.alerts, wanted, sample),
    )


def trim_history(block: HistoryBlock, wanted: DeviceSelection) -> HistoryBlock:
    """Keep the columns of the host, of wanted devices and of processes on them."""
    devices = {
        uuid: it
        for uuid, it in block.devices.items()
        if wanted.wants(uuid, DeviceSample(uuid, it.index, kind=it.kind, mig_index=it.mig_index).label)
    }
    ranks = {key: it for key, it in block.ranks.items() if it.device_uuid in (None, *devices)}
    kept = {HOST_KEY, *devices, *ranks}
    return replace(
        block,
        devices=devices,
        fine={key: it for key, it in block.fine.items() if key in kept},
        coarse={key: it for key, it in block.coarse.items() if key in kept},
        ranks=ranks,
        peaks={uuid: it for uuid, it in block.peaks.items() if uuid in devices},
    )


def _find_uuids(wanted: DeviceSelection, sample: Sample | None) -> set[str | None]:
    """Return the UUIDs of the wanted devices of a sample, and None for what is of no device."""
    devices = () if sample is None else sample.devices
    return {None, *(it.uuid for it in devices if wanted.wants(it.uuid, it.label))}


def _explain_mismatch(sample: Sample, wanted: DeviceSelection) -> str:
    known = describe_labels(device.label for device in sample.devices)
    return f"No device of {sample.node} matches --devices {wanted.text}: it has {known}"


BURST = 60.0
# What a peer may ask at once, and per second.
PER_SECOND = 20.0
# A join is answered with the whole history, and costs as much as this many other requests.
JOIN_COSTS = 20.0
# Peers of one key: a key that may only read cannot use up all places.
MAX_PEERS_OF_KEY = 64
KEY_BURST = MAX_PEERS_OF_KEY * (JOIN_COSTS + 1.0)
# The same for a key: at once so much that all its viewers may join after a restart of the agent.
KEY_PER_SECOND = 8.0 * PER_SECOND


@dataclass(slots=True)
class Allowance:
    """Requests that may still be made; refills with time, up to a burst."""

    most: float
    per_second: float
    # Time of the last refill, in monotonic seconds.
    noted_s: float
    left: float = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.most

    def spend(self, cost: float, now_s: float) -> bool:
        """Count a request; False if it may not be answered now."""
        self.left = min(self.most, self.left + self.per_second * (now_s - self.noted_s))
        self.noted_s = now_s
        if self.left < cost:
            return False
        self.left -= cost
        return True


class KeyAllowances:
    """One allowance a key, whatever number of connections it has and whatever these call themselves."""

    def __init__(self) -> None:
        self._of_key: dict[str, Allowance] = {}

    def spend(self, user: str, cost: float, now_s: float) -> bool:
        if user not in self._of_key:
            self._of_key[user] = Allowance(KEY_BURST, KEY_PER_SECOND, now_s)
        return self._of_key[user].spend(cost, now_s)

    def forget(self, is_over: Callable[[str], bool]) -> None:
        self._of_key = {user: it for user, it in self._of_key.items() if not is_over(user)}


class RemotePeer(bytes):
    """Identity of a connection over tcp, with its proven user."""

    user: str = ""

    @classmethod
    def of(cls, identity: bytes, user: str) -> "RemotePeer":
        peer = cls(identity)
        peer.user = user
        return peer


@dataclass(slots=True)
class PeerState:
    user: str
    # Time of its first request, in monotonic seconds.
    noted_s: InitVar[float]
    # Prefixes of the topics that it follows, by node; at an agent there is one, without a name.
    follows: dict[str, tuple[bytes, ...]] = field(default_factory=dict)
    # The devices that it follows, by node; all devices of other nodes.
    selections: dict[str, DeviceSelection] = field(default_factory=dict)
    # Number of its newest answered join, by node; absent if the answer may not have arrived.
    answering: dict[str, int] = field(default_factory=dict)
    allowance: Allowance = field(init=False)

    def __post_init__(self, noted_s: float) -> None:
        self.allowance = Allowance(BURST, PER_SECOND, noted_s)

    def follow(self, node: str, topics: tuple[bytes, ...], selection: DeviceSelection | None) -> None:
        self.follows[node] = topics
        self.selections.pop(node, None)
        if selection is not None:
            self.selections[node] = selection

    def stop_following(self, node: str) -> None:
        self.follows.pop(node, None)
        self.selections.pop(node, None)

    @property
    def is_following(self) -> bool:
        return any(self.follows.values())

    def is_told(self, topic: bytes, node: str) -> bool:
        return topic.startswith(self.follows.get(node, ()))

    def spend(self, cost: float, now_s: float) -> bool:
        return self.allowance.spend(cost, now_s)
