"""What a remote peer asks for: of which devices, how much, and messages trimmed to that."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache

from msgspec.structs import replace

from ..alerts.state import AlertState
from ..errors import UsageError
from ..history import HistoryBlock
from ..history.block import HOST_KEY
from ..model import Assessment, DeviceSample, Finding, HubStatus, Sample
from ..ranks.messages import PackedSegments
from .messages import FindingBatch, Welcome

MAX_WORDS = 64
MAX_WORD_CHARACTERS = 80
MAX_SHOWN_LABELS = 16
MAX_REMEMBERED = 4096
LEAST_OF_UUID = 4
"""Characters from which a word may be the beginning of a UUID."""
EXAMPLE = "expected devices as they are shown, as 0,2-5 or 0:1, or beginnings of UUIDs"
_RANGE = re.compile(r"(\d{1,6})-(\d{1,6})", re.ASCII)
_LABEL = re.compile(r"\d+(:\d+)?", re.ASCII)


@dataclass(frozen=True)
class DeviceSelection:
    """Devices by what they are called; a device is wanted where one of the words means it."""

    words: tuple[str, ...]
    _known: dict[tuple[str, str], bool] = field(default_factory=dict, compare=False, repr=False)
    """Answers so far: the same devices are asked for at every sample."""

    @property
    def text(self) -> str:
        """The words as they are typed."""
        return ",".join(self.words)

    def wants(self, uuid: str | None, label: str | None) -> bool:
        """Return whether a device is wanted.

        Args:
            uuid: Its UUID; None where that is not known.
            label: As in `DeviceSample.label`; None where that is not known.
        """
        key = uuid or "", label or ""
        is_wanted = self._known.get(key)
        if is_wanted is None:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            is_wanted = self._known[key] = any(_means(word.casefold(), *key) for word in self.words)
        return is_wanted


@lru_cache(maxsize=256)  # the same for every node that is followed
def select_devices(words: tuple[str, ...]) -> DeviceSelection | None:
    """Return the devices that are meant; None where no word is, which means all."""
    return DeviceSelection(words) if words else None


def parse_devices(text: str) -> tuple[str, ...]:
    """Return the words of a list with commas.

    Raises:
        UsageError: One cannot mean a device, or there are too many.
    """
    words = tuple(word.strip() for word in text.split(","))
    for word in words:
        found = _RANGE.fullmatch(word)
        if not word or not word.isprintable() or (found is None and re.fullmatch(r"[\d-]*-[\d-]*", word)):
            raise UsageError(f"--devices {text!r}: {EXAMPLE}")
        if found is not None and int(found[1]) > int(found[2]):
            raise UsageError(f"--devices {text}: {word} ends before it begins; write {found[2]}-{found[1]}")
    reason = explain_excess(words)
    if reason is not None:
        raise UsageError(f"--devices {reason}")
    return words


def explain_excess(words: Sequence[str]) -> str | None:
    """Return why words are too many or too long, in one sentence; None where they are not."""
    if len(words) > MAX_WORDS:
        return f"names {len(words)} devices or ranges: expected at most {MAX_WORDS}; join them, as 0-7"
    if any(len(word) > MAX_WORD_CHARACTERS for word in words):
        return f"has a word of more than {MAX_WORD_CHARACTERS} characters, which no device is called"
    return None


def describe_labels(labels: Iterable[str]) -> str:
    """Return what devices are called in a few words: `0-7`, `0, 0:0, 0:1`, and an ellipsis after many."""
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


# What is about the node as a whole stays, and a process whose device is not known.

Told = Sample | FindingBatch | AlertState | HubStatus | PackedSegments
"""What is published of a node."""


def trim(told: Told, wanted: DeviceSelection, sample: Sample | None) -> Told | None:
    """Return what is told of the devices that are wanted; None where nothing is left of it.

    Args:
        sample: The newest of the node, by which what names a UUID alone is known.
    """
    if isinstance(told, Sample):
        return trim_sample(told, wanted)
    if isinstance(told, FindingBatch):
        return _trim_batch(told, wanted)
    if isinstance(told, AlertState):
        return trim_alerts(told, wanted, sample)
    if isinstance(told, PackedSegments):
        return trim_map(told, wanted, sample)
    return told


def trim_sample(sample: Sample, wanted: DeviceSelection) -> Sample:
    """Return a sample with the devices that are wanted, and the processes on them.

    Where none is, its first note says so, with what the devices of the node are called.
    """
    devices = tuple(it for it in sample.devices if wanted.wants(it.uuid, it.label))
    if len(devices) == len(sample.devices):
        return sample
    uuids: set[str | None] = {None, *(device.uuid for device in devices)}
    return replace(
        sample,
        devices=devices,
        ranks=tuple(it for it in sample.ranks if it.device_uuid in uuids),
        devices_left_out=sample.devices_left_out + len(sample.devices) - len(devices),
        notes=sample.notes if devices else (_explain_mismatch(sample, wanted), *sample.notes),
    )


def find_mismatch(sample: Sample) -> str | None:
    """Return in one sentence that no device of a node is wanted; None where one is."""
    is_empty = sample.devices_left_out > 0 and not sample.devices
    return sample.notes[0] if is_empty and sample.notes else None


def trim_findings(findings: tuple[Finding, ...], wanted: DeviceSelection) -> tuple[Finding, ...]:
    """Return the findings on devices that are wanted, and on the node as a whole."""
    return tuple(it for it in findings if it.device_uuid is None or wanted.wants(it.device_uuid, it.device))


def trim_assessments(assessments: tuple[Assessment, ...], wanted: DeviceSelection) -> tuple[Assessment, ...]:
    """Return the assessments of processes and devices that are wanted."""
    return tuple(
        it for it in assessments if it.device_uuid is None or wanted.wants(it.device_uuid, it.device)
    )


def trim_alerts(alerts: AlertState, wanted: DeviceSelection, sample: Sample | None) -> AlertState:
    """Return what was decided about devices that are wanted, and what became of their findings.

    Args:
        sample: The newest of the node: it tells by which names a UUID is wanted.
    """
    uuids = _find_uuids(wanted, sample)
    return AlertState(
        tuple(it for it in alerts.acknowledged if it.device_uuid in uuids),
        tuple(it for it in alerts.mutes if it.device_uuid in uuids),
        tuple(it for it in alerts.changes if it.device_uuid in uuids),
    )


def trim_map(packed: PackedSegments, wanted: DeviceSelection, sample: Sample | None) -> PackedSegments | None:
    """Return a segment map of a device that is wanted; None of another."""
    return packed if packed.device_uuid in _find_uuids(wanted, sample) else None


def trim_welcome(welcome: Welcome, wanted: DeviceSelection) -> Welcome:
    """Return everything that a hub knows of the devices that are wanted."""
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
    """Return a history with the columns of the host, of devices that are wanted and of processes on them."""
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
    """Return the UUIDs of the devices of a sample that are wanted, and None for what is of no device."""
    devices = () if sample is None else sample.devices
    return {None, *(it.uuid for it in devices if wanted.wants(it.uuid, it.label))}


def _trim_batch(batch: FindingBatch, wanted: DeviceSelection) -> FindingBatch | None:
    findings = trim_findings(batch.findings, wanted)
    if not findings and batch.assessments is None:
        return None
    assessments = None if batch.assessments is None else trim_assessments(batch.assessments, wanted)
    return FindingBatch(findings, assessments)


def _explain_mismatch(sample: Sample, wanted: DeviceSelection) -> str:
    known = describe_labels(device.label for device in sample.devices)
    return f"No device of {sample.node} matches --devices {wanted.text}: it has {known}"


BURST = 60.0
PER_SECOND = 20.0
"""What a peer may ask at once, and per second."""
JOIN_COSTS = 20.0
"""A join is answered with the whole history, and costs as much as this many other requests."""
MAX_PEERS_OF_KEY = 64
"""Of one key: whoever may only read cannot take the places of all others."""
KEY_BURST = MAX_PEERS_OF_KEY * (JOIN_COSTS + 1.0)
KEY_PER_SECOND = 8.0 * PER_SECOND
"""The same for a key: at once so much that all its viewers may join after a restart of the agent."""


@dataclass(slots=True)
class Allowance:
    """What may still be asked; comes back with time, up to a burst."""

    most: float
    per_second: float
    noted_s: float
    """When it was last asked for, in monotonic seconds."""
    left: float = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.most

    def spend(self, cost: float, now_s: float) -> bool:
        """Return whether a request may be answered now, and count it."""
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
        """Return whether a request of this key may be answered now, and count it."""
        if user not in self._of_key:
            self._of_key[user] = Allowance(KEY_BURST, KEY_PER_SECOND, now_s)
        return self._of_key[user].spend(cost, now_s)

    def forget(self, is_over: Callable[[str], bool]) -> None:
        self._of_key = {user: it for user, it in self._of_key.items() if not is_over(user)}


class RemotePeer(bytes):
    """Identity of a connection over tcp, with the user that it proved to be."""

    user: str = ""

    @classmethod
    def of(cls, identity: bytes, user: str) -> "RemotePeer":
        """Return the identity of a connection with its user."""
        peer = cls(identity)
        peer.user = user
        return peer


@dataclass(slots=True)
class PeerState:
    """What is kept of a peer while it is connected."""

    user: str
    noted_s: InitVar[float]
    """When it first asked, in monotonic seconds."""
    follows: dict[str, tuple[bytes, ...]] = field(default_factory=dict)
    """Beginnings of the topics that it follows, by node; at an agent there is one, without a name."""
    selections: dict[str, DeviceSelection] = field(default_factory=dict)
    """The devices that it follows, by node; of a node that is not named here all."""
    answering: dict[str, int] = field(default_factory=dict)
    """Number of its newest join by node, whose answer was sent; none where that may not have gone."""
    allowance: Allowance = field(init=False)

    def __post_init__(self, noted_s: float) -> None:
        self.allowance = Allowance(BURST, PER_SECOND, noted_s)

    def follow(self, node: str, topics: tuple[bytes, ...], selection: DeviceSelection | None) -> None:
        """Follow these topics of a node in place of those before, and of its devices those wanted."""
        self.follows[node] = topics
        self.selections.pop(node, None)
        if selection is not None:
            self.selections[node] = selection

    def stop_following(self, node: str) -> None:
        """Follow a node no longer."""
        self.follows.pop(node, None)
        self.selections.pop(node, None)

    @property
    def is_following(self) -> bool:
        """Whether it follows anything."""
        return any(self.follows.values())

    def is_told(self, topic: bytes, node: str) -> bool:
        """Return whether it follows a topic of a node."""
        return topic.startswith(self.follows.get(node, ()))

    def spend(self, cost: float, now_s: float) -> bool:
        """Return whether a request may be answered now, and count it."""
        return self.allowance.spend(cost, now_s)
