"""One device of a fleet, and one node. None means unmeasured; it is never 0 and never a guess."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from operator import eq, ge, gt, le, lt
from typing import Literal, NamedTuple, get_args

import msgspec

from ...engine.errors import UsageError
from ...engine.model import DeviceOwner, DeviceState, DeviceTrend, RiskLevel, TrendWord
from ...engine.text import find_nearest
from ...engine.units import parse_bytes, parse_duration
from ..risk import LEVELS
from ..trend_words import NO_ALLOCATOR_DATA

NodeState = Literal["live", "connecting", "lost"]


class FleetDevice(msgspec.Struct, frozen=True, gc=False):
    """A device as a fleet knows it; `key` is unique among all nodes."""

    node: str
    """Name of its node, as its feed has it."""
    uuid: str
    label: str
    """Label, as in `DeviceSample.label`."""
    name: str
    """Its name in a sentence: `GPU 3`."""
    model: str | None = None
    """Product name."""
    state: DeviceState = "ok"
    is_old: bool = False
    """Whether its values are old: the node is lost, or the device is lost or stale."""
    is_node_lost: bool = False
    """Whether all its values are old because its node is lost."""
    is_simulated: bool = False
    used_bytes: int | None = None
    total_bytes: int | None = None
    level: RiskLevel = "unknown"
    reason: str = ""
    """Why the level is what it is."""
    oom_in_s: float | None = None
    """Forecast time to the error, from the newest sample on; None where none is forecast."""
    probability: float | None = None
    """Probability of an out-of-memory error within the forecast's horizon, 0 to 1."""
    device_trend: DeviceTrend | None = None
    """How its used memory goes as of the newest sample, where nothing but that is known."""
    kinds: tuple[str, ...] = ()
    """Kinds of its open findings, sorted."""
    jobs: tuple[str, ...] = ()
    """Jobs of `vramscope run` that report from it."""
    owners: tuple[DeviceOwner, ...] = ()
    """Whose processes hold its memory, and who was given it by Kubernetes."""
    rank: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None

    @property
    def all_jobs(self) -> tuple[str, ...]:
        """Jobs that report from it, else its Slurm jobs by number."""
        return self.jobs or _list_names(it.slurm_job for it in self.owners)

    @property
    def pods(self) -> tuple[str, ...]:
        """Its pods with their namespaces, `ml/llama-0`, or by UID."""
        return _list_names(
            f"{it.namespace}/{it.pod}" if it.namespace and it.pod else it.pod for it in self.owners
        )

    @property
    def namespaces(self) -> tuple[str, ...]:
        return _list_names(it.namespace for it in self.owners)

    @property
    def users(self) -> tuple[str, ...]:
        return _list_names(it.user for it in self.owners)

    @property
    def trend(self) -> TrendWord | None:
        return None if self.device_trend is None else self.device_trend.word

    @property
    def full_in_s(self) -> float | None:
        """Time until it is full if it goes on filling; None where it does not."""
        return None if self.device_trend is None else self.device_trend.full_in_s

    @property
    def lacks_probe(self) -> bool:
        """Whether its level is unknown for want of a process that reports its allocator."""
        return self.level == "unknown" and self.reason == NO_ALLOCATOR_DATA

    @property
    def key(self) -> tuple[str, str]:
        return self.node, self.uuid

    @property
    def used_share(self) -> float | None:
        if self.used_bytes is None or not self.total_bytes:
            return None
        return self.used_bytes / self.total_bytes


def _list_names(names: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted({name for name in names if name}))


class FleetNode(msgspec.Struct, frozen=True):
    """A node as a fleet knows it, without its devices."""

    name: str
    state: NodeState
    reason: str | None = None
    """Why it is not live, in one sentence."""
    silent_s: float | None = None
    """Seconds without a message from it, as of the last check."""
    heard_s: float | None = None
    """When it last sent values, by our wall clock; None where it never did."""
    clock_offset_s: float | None = None
    """Its wall clock less ours; None where it cannot be separated from delay."""
    mismatch: str | None = None
    """Why its devices are not followed, in one sentence."""


# Groups of devices: by node, job or place in the parallel layout; the most worrying first, or otherwise.

Grouping = Literal["node", "job", "tp", "pp", "dp", "pod", "namespace", "user", "none"]
FleetSort = Literal["risk", "used", "name"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)
SORTS: tuple[FleetSort, ...] = get_args(FleetSort)
_DIGITS = re.compile(r"(\d+)")
_NOTHING = "no {}"
# From the least to the most worrying level.
RANKS: Mapping[RiskLevel, int] = {level: rank for rank, level in enumerate(LEVELS)}
# Share of the capacity: memory goes up and down with every step, and a cursor should not go with it.
STAYS_WITHIN_SHARE = 0.1


class FleetGroup(NamedTuple):
    """Devices that are shown together."""

    # What they share; empty where all devices are one group.
    name: str
    devices: tuple[FleetDevice, ...]
    # The node, where groups are nodes.
    node: str | None = None


@lru_cache(maxsize=16384)  # of the names of nodes, at every picture
def order_naturally(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that sorts numbers by value: node2 before node10."""
    parts = _DIGITS.split(name)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part)


def weigh(device: FleetDevice) -> tuple[int, float]:
    """Return how near a device is to running out: its level, and how soon it has an error or is full."""
    left_s = device.full_in_s if device.oom_in_s is None else device.oom_in_s
    soon = 0.0 if left_s is None else 1.0 / (1.0 + left_s)
    return RANKS[device.level], soon


def find_worst(devices: Iterable[FleetDevice]) -> FleetDevice | None:
    """Return the device that is nearest to running out; the fullest where all are equally near."""
    return max(devices, key=_weigh_all, default=None)


def hold_worst(worst: FleetDevice | None, now: FleetDevice | None) -> FleetDevice | None:
    """Return the device at highest risk, or the previous one (`now`) while there is little between them.

    The previous one stays where no other is nearer, or fuller by a tenth of its capacity.
    """
    if worst is None or now is None or _nearness(worst) > _nearness(now):
        return worst
    is_fuller = (worst.used_share or 0.0) - (now.used_share or 0.0) > STAYS_WITHIN_SHARE
    return worst if is_fuller else now


def _nearness(device: FleetDevice) -> tuple[tuple[int, float], bool]:
    return weigh(device), not device.is_old


def _weigh_all(device: FleetDevice) -> tuple[tuple[int, float], bool, float]:
    return weigh(device), not device.is_old, device.used_share or 0.0


def group_devices(devices: Sequence[FleetDevice], grouping: Grouping, sort: FleetSort) -> list[FleetGroup]:
    """Return groups in order; devices within each as they come, or sorted where all are one group.

    Devices keep their place within a group, so that a picture of them does not move with every value.
    """
    if grouping == "none":
        return [FleetGroup("", tuple(sorted(devices, key=_device_key(sort))))] if devices else []
    found: dict[str, list[FleetDevice]] = {}
    for device in devices:
        found.setdefault(_name_group(device, grouping), []).append(device)
    groups = [
        FleetGroup(name, tuple(its), name if grouping == "node" else None) for name, its in found.items()
    ]
    return sorted(groups, key=lambda group: (_rank_group(group, sort), order_naturally(group.name)))


def _name_group(device: FleetDevice, grouping: Grouping) -> str:
    if grouping == "node":
        return device.node
    if grouping in _NAMED:
        return "+".join(_NAMED[grouping](device)) or _NOTHING.format(grouping)
    number = {"tp": device.tp, "pp": device.pp, "dp": device.dp}[grouping]
    return _NOTHING.format(grouping) if number is None else f"{grouping} {number}"


# Groups by names; a device may have several.
_NAMED: dict[Grouping, Callable[[FleetDevice], tuple[str, ...]]] = {
    "job": lambda it: it.all_jobs,
    "pod": lambda it: it.pods,
    "namespace": lambda it: it.namespaces,
    "user": lambda it: it.users,
}


def _rank_group(group: FleetGroup, sort: FleetSort) -> float:
    if sort == "name":
        return 0.0
    if sort == "used":
        return -max((it.used_share or 0.0 for it in group.devices), default=0.0)
    return -find_need(it.level for it in group.devices)


def find_need(levels: Iterable[RiskLevel]) -> int:
    """Return the highest of some levels as a number, with low and unknown as one: no reason to move."""
    return max((max(0, RANKS[level] - RANKS["unknown"]) for level in levels), default=0)


def _device_key(sort: FleetSort) -> Callable[[FleetDevice], tuple[object, ...]]:
    if sort == "used":
        return lambda it: (-(it.used_share or 0.0), order_naturally(it.node), order_naturally(it.label))
    if sort == "risk":
        return lambda it: (-find_need((it.level,)), order_naturally(it.node), order_naturally(it.label))
    return lambda it: (order_naturally(it.node), order_naturally(it.label))


# Filters of a fleet's devices: `node:gpu1* used>90% !job:debug`, and words.

Check = Callable[[FleetDevice], bool]
Number = Callable[[FleetDevice], float | None]

_TERM = re.compile(r"(?P<key>[a-z]+)(?P<sign>>=|<=|=|:|>|<)(?P<value>.*)", re.IGNORECASE)
_SIGNS: dict[str, Callable[[float, float], bool]] = {":": eq, "=": eq, ">=": ge, "<=": le, ">": gt, "<": lt}
_TEXTS: dict[str, Callable[[FleetDevice], Sequence[str]]] = {
    "node": lambda it: (it.node,),
    "job": lambda it: (*it.jobs, *_list_jobs(it)),
    "pod": lambda it: (*it.pods, *_list_names(owner.pod for owner in it.owners)),
    "ns": lambda it: it.namespaces,
    "user": lambda it: it.users,
    "gpu": lambda it: (it.label,),
    "model": lambda it: (it.model or "",),
    "finding": lambda it: it.kinds,
    "state": lambda it: (it.state,),
    "trend": lambda it: () if it.trend is None else (it.trend,),
}
_NUMBERS: dict[str, Number] = {
    "risk": lambda it: LEVELS.index(it.level),
    "oom": lambda it: it.oom_in_s,
    "probability": lambda it: it.probability,
    "rank": lambda it: it.rank,
    "tp": lambda it: it.tp,
    "pp": lambda it: it.pp,
    "dp": lambda it: it.dp,
}


def _list_jobs(device: FleetDevice) -> tuple[str, ...]:
    """Return its Slurm jobs by number and by name."""
    return _list_names(name for it in device.owners for name in (it.slurm_job, it.slurm_job_name))


KEYS = (*_TEXTS, "used", "free", *_NUMBERS)
# How similar words must be for one to be offered for the other: `usd` and `used`, not `foo` and `oom`.
_NEAR = 0.7
EXAMPLE = "node:gpu1* used>90% risk>=medium job:NAME pp:0, words; ! in front negates"


def compile_filter(text: str) -> Check:
    """Compile a filter of blank-separated terms: a device passes if all hold.

    A term about an unmeasured value does not hold; an empty text lets every device pass. Raises `UsageError`.
    """
    checks = [_read_signed(term) for term in text.split()]
    return lambda device: all(check(device) for check in checks)


def _read_signed(term: str) -> Check:
    if not term.startswith("!"):
        return _read_term(term)
    if len(term) == 1:
        raise UsageError("filter !: expected a term after it, such as !job:debug")
    check = _read_term(term[1:])
    return lambda device: not check(device)


def _read_term(term: str) -> Check:
    match = _TERM.fullmatch(term)
    if match is None:
        word = term.casefold()
        return lambda it: word in _list_words(it).casefold()
    key = match["key"].lower()
    sign = match["sign"]
    value = match["value"]
    if not value:
        raise UsageError(f"filter {term}: expected a value after {sign}")
    if key in _TEXTS:
        return _read_text(term, key, sign, value)
    if key in ("used", "free"):
        return _read_memory(term, key, sign, value)
    if key not in KEYS:
        raise UsageError(f"filter {term}: {_explain(key)}")
    return _compare(_NUMBERS[key], sign, _read_value(term, key, value))


def _list_words(device: FleetDevice) -> str:
    names = (device.node, device.name, device.model or "", *device.jobs, *device.kinds)
    return " ".join((*names, *_list_jobs(device), *device.pods, *device.users))


def _read_value(term: str, key: str, value: str) -> float:
    if key == "risk":
        return _read_level(term, value)
    if key == "oom":
        return _read_time(term, value)
    return _read_share(term, value) if key == "probability" else _read_number(term, value)


def _explain(key: str) -> str:
    near = find_nearest(key, KEYS, cutoff=_NEAR)
    return f"did you mean {near[0]}?" if near else f"expected one of {', '.join(KEYS)}"


def _read_text(term: str, key: str, sign: str, value: str) -> Check:
    if sign not in (":", "="):
        raise UsageError(f"filter {term}: {key} is a name: use : with * and ?, not {sign}")
    patterns = [pattern for pattern in value.casefold().split(",") if pattern]
    if key == "state" and not any(
        fnmatchcase(it, pattern) for it in get_args(DeviceState) for pattern in patterns
    ):
        raise UsageError(f"filter {term}: expected one of {', '.join(get_args(DeviceState))}")
    texts = _TEXTS[key]
    return lambda it: any(fnmatchcase(text.casefold(), pattern) for text in texts(it) for pattern in patterns)


def _read_memory(term: str, key: str, sign: str, value: str) -> Check:
    """Return a check of a share of the capacity (`used>90%`), or of bytes (`free<2GiB`)."""
    is_used = key == "used"
    if value.endswith("%"):
        share = _read_share(term, value)
        return _compare(lambda it: _invert(it.used_share, 1.0, is_used=is_used), sign, share)
    try:
        size = parse_bytes(value)
        if size and value[-1].isdigit():  # `used>90` means a share, and would be 90 bytes
            raise UsageError(value)
    except (UsageError, OverflowError):
        raise UsageError(f"filter {term}: expected a share such as 90%, or a size such as 70GiB") from None
    return _compare(lambda it: _invert(it.used_bytes, it.total_bytes, is_used=is_used), sign, size)


def _invert(used: float | None, whole: float | None, *, is_used: bool) -> float | None:
    if is_used or used is None:
        return used
    return None if whole is None else round(whole - used, 9)


def _read_share(term: str, value: str) -> float:
    number = _read_number(term, value.removesuffix("%"))
    return number / 100 if value.endswith("%") else number


def _read_number(term: str, value: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", value, re.ASCII):
        raise UsageError(f"filter {term}: expected a number, not {value}")
    return float(value)


def _read_time(term: str, value: str) -> float:
    try:
        return parse_duration(value)
    except (UsageError, OverflowError):
        raise UsageError(f"filter {term}: expected a time such as 90s, 10m or 2h") from None


def _read_level(term: str, value: str) -> int:
    """Return the place of a level; `unknown` is between low and medium."""
    level = next((it for it in LEVELS if it == value.lower()), None)
    if level is None:
        raise UsageError(f"filter {term}: expected one of {', '.join(LEVELS)}")
    return LEVELS.index(level)


def _compare(number: Number, sign: str, wanted: float) -> Check:
    compare = _SIGNS[sign]

    def holds(device: FleetDevice) -> bool:
        found = number(device)
        return found is not None and compare(found, wanted)

    return holds
