"""The view model of one device, and the widths that all devices share so that columns line up."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

import msgspec
from rich.cells import cell_len

from ...analyzers.finding_words import LeakWords, describe_leak
from ...analyzers.gap import MemoryGap, explain_gap
from ...analyzers.pressure import FULL_SHARE
from ...analyzers.risk import Risk, assess_risks, doubt_silent
from ...analyzers.trend_words import grade_trend, word_trend
from ...engine.history import History
from ...engine.history.history import Field
from ...engine.model import (
    AllocatorReading,
    DeviceSample,
    DeviceState,
    RankCoordinates,
    RankSample,
    Sample,
    ServerSample,
)
from ...engine.units import GIB, format_age, share_percent
from ...engine.viewer.snapshot import Snapshot
from ..draw.spans import Role

if TYPE_CHECKING:
    from ...engine.replay.simulated_run import RankComparison


# Kinds of parallelism, in the order in which a rank's coordinates are shown.
DEGREES = ("tp", "pp", "dp", "cp", "ep")
# Ranks of one device that are named one by one; more of them are counted.
MOST_NAMED = 4


def spell_label(device: DeviceSample) -> str:
    """Return the short name of a device as screens spell it: `0`, `sim0`, `CPU`."""
    return "CPU" if device.kind == "cpu" else device.label


def collect_ranks(ranks: Iterable[RankSample]) -> dict[str, tuple[RankSample, ...]]:
    """Return the training processes of each device by its UUID, in the order of their ranks.

    Processes that have ended are left out where others still train on the device.
    """
    found: dict[str, list[RankSample]] = {}
    for rank in ranks:
        if rank.device_uuid is not None:
            found.setdefault(rank.device_uuid, []).append(_settle(rank))
    return {uuid: tuple(_still_running(on_device)) for uuid, on_device in found.items()}


def order_of(rank: RankSample) -> tuple[bool, int, int]:
    """Return the sort key of processes: their ranks, and after those the pids of processes without one."""
    place = rank.coordinates
    return (place is None, place.rank if place else 0, rank.pid)


def name_coordinates(place: RankCoordinates, *, is_long: bool = True, has_rank: bool = True) -> str:
    """Name a rank with its coordinates (`rank 5 tp1 pp2`, if `is_long`), or only its number."""
    parts = [f"rank {place.rank}"] if has_rank else []
    if is_long:
        parts += [f"{name}{value}" for name in DEGREES if (value := getattr(place, name)) is not None]
    return " ".join(parts)


def name_rank(rank: RankSample, *, is_long: bool = True) -> str:
    """Name a training process by its rank, or by its process id where it has none."""
    if rank.coordinates is None:
        return f"pid {rank.pid}"
    return name_coordinates(rank.coordinates, is_long=is_long)


def name_ranks(ranks: Sequence[RankSample], *, is_long: bool = True) -> str:
    """Name the processes of one device (`ranks 0,1`), with their trouble."""
    if not ranks:
        return ""
    return " ".join(filter(None, (_name_all(ranks, is_long=is_long), _name_state(ranks))))


def _name_all(ranks: Sequence[RankSample], *, is_long: bool) -> str:
    if len(ranks) == 1:
        return name_rank(ranks[0], is_long=is_long)
    places = [rank.coordinates for rank in ranks]
    if None in places or len(ranks) > MOST_NAMED:
        return f"{len(ranks)} {'processes' if None in places else 'ranks'}"
    return "ranks " + ",".join(str(place.rank) for place in places if place is not None)


def _name_state(ranks: Sequence[RankSample]) -> str:
    """Return the state in one word where it is not `ok`; for several ranks with their number."""
    for state in ("stale", "ended"):
        count = sum(rank.state == state for rank in ranks)
        if count:
            return state if count == len(ranks) else f"{count} {state}"
    return ""


def name_degrees(ranks: Sequence[RankSample]) -> str:
    """Return the degrees of a job (`tp2 pp4`); empty where some of its ranks are elsewhere."""
    places = [rank.coordinates for rank in ranks if rank.coordinates is not None]
    if len(places) != len(ranks) or {place.world_size for place in places} != {len(ranks)}:
        return ""
    degrees = {
        name: 1 + max(values)
        for name in DEGREES
        if (values := [value for place in places if (value := getattr(place, name)) is not None])
    }
    return " ".join(f"{name}{degree}" for name, degree in degrees.items() if degree > 1)


def explain_state(rank: RankSample) -> str:
    """Return why the values of a process are old (`rank 3 stale 12 s: …`), or nothing."""
    if rank.state == "ok":
        return ""
    age = f" {format_age(rank.age_s)}" if rank.state == "stale" and rank.age_s is not None else ""
    reason = f": {rank.reason}" if rank.reason else ""
    return f"{name_rank(rank, is_long=False)} {rank.state}{age}{reason}"


def _settle(rank: RankSample) -> RankSample:
    """Remove an age that would change at every tick and does not matter; others in whole seconds."""
    age_s = None if rank.state != "stale" or rank.age_s is None else float(int(rank.age_s))
    return rank if rank.age_s == age_s else msgspec.structs.replace(rank, age_s=age_s)


def _still_running(ranks: list[RankSample]) -> list[RankSample]:
    """Return the processes that run, in order; all of them where none does."""
    running = [rank for rank in ranks if rank.state != "ended"]
    return sorted(running or ranks, key=order_of)


# One bucket for all of a history: twelve years, whose limits are far from now.
_WHOLE_S = 4e8
_ALLOCATOR: tuple[Field, ...] = ("reserved", "allocated")
_Levels = tuple[list[float | None], list[float | None]]


def has_only_allocator(device: DeviceSample, ranks: Iterable[object]) -> bool:
    """Return whether only the allocator of a device may be known, as in a file without a process."""
    return device.allocator is not None and not any(True for _ in ranks)


def read_levels(
    history: History, uuid: str, end_s: float, bucket_s: float, count: int, *, has_allocator: bool
) -> _Levels:
    """Return the least and the most of every bucket: of device used, else of reserved, else of allocated.

    Args:
        end_s: A time in the last bucket.
        has_allocator: Whether its allocator replaces device used where that was not measured.
    """
    used = history.columns(uuid, "used", end_s, bucket_s, count)
    low = list(used.minimum)
    high = list(used.maximum)
    for field in _ALLOCATOR if has_allocator else ():
        if None not in high:
            break
        columns = history.columns(uuid, field, end_s, bucket_s, count)
        for index, most in enumerate(columns.maximum):
            if high[index] is None:
                low[index], high[index] = columns.minimum[index], most
    return low, high


def find_most(history: History, uuid: str, end_s: float) -> int:
    """Return the most that was seen on a device by any measure until `end_s`, 0 without any."""
    fields: tuple[Field, ...] = ("used", *_ALLOCATOR)
    most = [history.columns(uuid, field, end_s, _WHOLE_S, 1).maximum[0] for field in fields]
    return max((int(size) for size in most if size is not None), default=0)


_FILLS: dict[str, Role] = {"medium": "fill-medium", "high": "fill-high", "critical": "fill-critical"}
# How full a device is, where that is worth a mark.
Fullness = Literal["", "nearly", "full"]
_FULLNESS_FILLS: dict[Fullness, Role] = {"": "fill", "nearly": "fill-nearly", "full": "fill-full"}
# Shares of the capacity from which a device is nearly full and full, by how far below it no longer is, and
# for how many seconds it must have been there: a level that comes and goes with every step would blink.
NEARLY_SHARE = 0.80
FULLNESS_MARGIN = 0.03
FULLNESS_DWELL_S = 10.0
# Kinds of devices that have no utilisation, temperature or power of their own.
MODELLED = ("trace", "simulated", "cpu")
# Longest name of a device that is drawn in full.
NAME_WIDTH = 24


@dataclass(frozen=True, slots=True)
class DeviceView:
    """One device, ready to be drawn; equal views look equal."""

    device: DeviceSample
    risk: Risk
    # The device's own state; `stale` also where the whole node is silent.
    state: DeviceState
    # Age of the values in whole seconds; None where they are current.
    age_s: float | None
    # Most device-used bytes seen, and when.
    peak: tuple[int, float] | None
    # Value at the end of the gauge and at the top of the graph.
    scale_bytes: int | None
    clock: str
    is_selected: bool
    # Training processes on it that report through the probe, in the order of their ranks.
    ranks: tuple[RankSample, ...] = ()
    # Servers of models that use it.
    servers: tuple[ServerSample, ...] = ()
    # What fills it, part by part; None where no training process reports, or not now.
    gap: MemoryGap | None = None
    # Whole seconds until memory is expected to run out; None without a forecast.
    time_left_s: float | None = None
    # How its used memory goes, where nothing but that is known, from the complete form to the word alone.
    trend_forms: tuple[str, ...] = ()
    # The most severe leak on it.
    leak: LeakWords | None = None
    # Its simulation, where the run has one.
    comparison: "RankComparison | None" = None
    fullness: Fullness = ""

    @property
    def allocator(self) -> AllocatorReading | None:
        """Sum of the allocators of its training processes, while all report."""
        return self.device.allocator if self.ranks and all(r.state == "ok" for r in self.ranks) else None

    @property
    def is_capacity_known(self) -> bool:
        """Whether the scale is the device's capacity, not only the most that was seen."""
        return self.device.memory.total_bytes is not None

    @property
    def is_fresh(self) -> bool:
        return self.state == "ok"

    @property
    def used_percent(self) -> float | None:
        memory = self.device.memory
        return share_percent(memory.used_bytes, memory.total_bytes)

    @property
    def fill_role(self) -> Role:
        """Role of the filled part: by the risk, else by how full the device is; grey where values are old."""
        if not self.is_fresh:
            return "muted"
        return _FILLS.get(self.risk.level, _FULLNESS_FILLS[self.fullness])

    @property
    def graph_role(self) -> Role:
        """Role of the history: by the risk alone, since how full the device was can be seen in it."""
        return _FILLS.get(self.risk.level, "fill") if self.is_fresh else "muted"

    @property
    def is_in_danger(self) -> bool:
        """Whether a forecast says that memory runs short."""
        return self.is_fresh and self.risk.level in _FILLS

    @property
    def risk_role(self) -> Role:
        trend = self.risk.trend
        return grade_trend(None if trend is None else trend.word) or self.risk.level

    @property
    def label(self) -> str:
        return spell_label(self.device)

    @property
    def name(self) -> str:
        """Name of the device without its maker's; a recorded rank and a plain simulated card have none."""
        name = self.device.name or ""
        if self.device.kind in ("trace", name):
            return ""
        return name.removeprefix("NVIDIA ").removeprefix("Tesla ").removeprefix("AMD Instinct ")


@dataclass(frozen=True, slots=True)
class SharedWidths:
    """Widths of columns, and which columns there are, over all devices."""

    label: int
    name: int
    rank: int
    # Cells of a rank without its coordinates.
    short_rank: int
    # Cells of a number of GiB.
    figures: int
    # Whether utilisation, temperature or power can be measured anywhere.
    has_metrics: bool
    has_processes: bool
    has_step: bool
    # Whether any training process reports through the probe.
    has_ranks: bool = False
    has_leak: bool = False
    # Whether the run has a simulation.
    has_comparison: bool = False
    # Cells of a power; of the widest with its limit, where any is known.
    power: int = 0


class FullnessLevels:
    """How full each device is: more so at once, less so only after a while."""

    def __init__(self) -> None:
        # The level of a device, and since when it asks for a lower one; None while it does not.
        self._levels: dict[str, tuple[Fullness, float | None]] = {}

    def grade(self, device: DeviceSample, time_s: float) -> Fullness:
        memory = device.memory
        if device.state != "ok" or memory.used_bytes is None or not memory.total_bytes:
            return ""
        share = memory.used_bytes / memory.total_bytes
        before, since_s = self._levels.get(device.uuid, ("", None))
        asked = _grade_fullness(share)
        if _FULLNESS.index(asked) >= _FULLNESS.index(before):
            self._levels[device.uuid] = asked, None
            return asked
        if _grade_fullness(share + FULLNESS_MARGIN) == before:
            self._levels[device.uuid] = before, None
            return before
        since_s = time_s if since_s is None else since_s
        if 0.0 <= time_s - since_s < FULLNESS_DWELL_S:
            self._levels[device.uuid] = before, since_s
            return before
        self._levels[device.uuid] = asked, None
        return asked

    def keep(self, uuids: Collection[str]) -> None:
        self._levels = {uuid: level for uuid, level in self._levels.items() if uuid in uuids}


_FULLNESS: tuple[Fullness, ...] = get_args(Fullness)


def _grade_fullness(share: float) -> Fullness:
    if share >= FULL_SHARE:
        return "full"
    return "nearly" if share >= NEARLY_SHARE else ""


def build_views(
    snapshot: Snapshot,
    devices: Sequence[DeviceSample],
    history: History,
    selected: str | None,
    levels: FullnessLevels | None = None,
) -> list[DeviceView]:
    """Build the view of each device; `selected` is a UUID, and `levels` remembers how full devices were.

    Devices whose capacity was not recorded share one scale, the most that was seen on any of them, so that
    they can be compared.
    """
    sample = snapshot.sample or Sample(node="", seq=0, time_s=0.0, interval_s=1.0)
    ranks = collect_ranks(sample.ranks) if sample.ranks else {}
    seen = [_find_most(history, it, sample.time_s, ranks.get(it.uuid, ())) for it in devices]
    scale_bytes = max(seen, default=0) or None
    known = doubt_silent(sample, snapshot.assessments)
    risks = assess_risks(devices, snapshot.findings, known, sample.ranks)
    levels = levels or FullnessLevels()
    views = []
    for device in devices:
        state, age_s = _freshness(device, snapshot)
        on_device = ranks.get(device.uuid, ())
        servers = _list_servers(sample.servers, device.uuid) if sample.servers else ()
        views.append(
            DeviceView(
                device=_without_age(device),
                risk=risks[device.uuid],
                state=state,
                age_s=age_s,
                peak=history.peak(device.uuid),
                scale_bytes=device.memory.total_bytes or scale_bytes,
                clock=sample.clock,
                is_selected=device.uuid == selected,
                ranks=_without_servers(on_device, servers, device.uuid) if servers else on_device,
                servers=servers,
                gap=_explain(device, on_device, servers),
                time_left_s=risks[device.uuid].time_left_s(sample.time_s),
                trend_forms=_word_trend(risks[device.uuid], sample.time_s),
                leak=describe_leak(snapshot.findings, device.uuid),
                fullness=levels.grade(device, sample.time_s),
            )
        )
    # Add the simulation of each rank, where the run has one.
    compared = None if snapshot.replay is None else snapshot.replay.comparison
    if compared is None:
        return views
    found = {it.uuid: it for it in compared.ranks}
    return [replace(view, comparison=found.get(view.device.uuid)) for view in views]


def _word_trend(risk: Risk, now_s: float) -> tuple[str, ...]:
    return () if risk.trend is None else word_trend(risk.trend, now_s)


def _find_most(history: History, device: DeviceSample, now_s: float, ranks: Sequence[RankSample]) -> int:
    """Return the most that was seen on a device without a recorded capacity, 0 for any other."""
    if device.memory.total_bytes is not None:
        return 0
    if has_only_allocator(device, ranks):
        return max(_most(device), find_most(history, device.uuid, now_s))
    return max(_most(device), (history.peak(device.uuid) or (0, 0.0))[0])


def _list_servers(servers: Iterable[ServerSample], uuid: str) -> tuple[ServerSample, ...]:
    """Return the servers on a device, without their ages, which change at every tick."""
    return tuple(
        msgspec.structs.replace(server, age_s=None)
        for server in servers
        if any(place.uuid == uuid for place in server.devices)
    )


def _without_servers(
    ranks: tuple[RankSample, ...], servers: Sequence[ServerSample], uuid: str
) -> tuple[RankSample, ...]:
    """Return the processes that train: a simulated server reports its device as they do."""
    serving = {pid for it in servers for place in it.devices if place.uuid == uuid for pid in place.pids}
    return tuple(rank for rank in ranks if rank.pid not in serving)


def _explain(
    device: DeviceSample, ranks: Sequence[RankSample], servers: Sequence[ServerSample]
) -> MemoryGap | None:
    """Return what fills a device; None where a process does not report, whose last values are old."""
    is_current = bool(ranks or servers) and all(rank.state == "ok" for rank in ranks)
    return explain_gap(device, ranks, servers) if is_current else None


def _without_age(device: DeviceSample) -> DeviceSample:
    """Remove the age of a device, which changes at every tick; that of its details in whole seconds."""
    if device.age_s is None and device.details_age_s is None:
        return device
    details_age_s = None if device.details_age_s is None else float(int(device.details_age_s))
    return msgspec.structs.replace(device, age_s=None, details_age_s=details_age_s)


def _most(device: DeviceSample) -> int:
    memory = device.memory
    return memory.used_max_bytes or memory.used_bytes or 0


def _freshness(device: DeviceSample, snapshot: Snapshot) -> tuple[DeviceState, float | None]:
    """Return the state to show, and the age of the values where they are old."""
    silent_s = snapshot.silent_s if snapshot.connection == "lost" else None
    if device.state == "ok":
        if snapshot.connection != "lost":
            return "ok", None
        return "stale", None if silent_s is None else float(int(silent_s))
    if device.age_s is None:
        return device.state, None
    return device.state, float(int(device.age_s + (silent_s or 0.0)))


def measure_widths(views: Sequence[DeviceView]) -> SharedWidths:
    """Return the widths at which the columns of all devices line up."""
    devices = [view.device for view in views]
    scale_bytes = max((view.scale_bytes or 0 for view in views), default=0)
    return SharedWidths(
        label=max((cell_len(view.label) for view in views), default=1),
        name=min(NAME_WIDTH, max((cell_len(view.name) for view in views), default=0)),
        rank=max((len(rank_text(view)) for view in views), default=0),
        short_rank=max((len(rank_text(view, is_long=False)) for view in views), default=0),
        figures=max(4, len(f"{scale_bytes / GIB:.1f}")),
        has_metrics=any(device.kind not in MODELLED or _is_measured(device) for device in devices),
        has_processes=any(device.kind != "trace" or device.processes for device in devices),
        has_step=any(device.step is not None for device in devices),
        has_ranks=any(view.ranks for view in views),
        has_leak=any(view.leak is not None for view in views),
        has_comparison=any(view.comparison is not None for view in views),
        power=max(
            (len(f" {limit:.0f}/{limit:.0f} W") for limit in map(find_limit, devices) if limit), default=0
        ),
    )


def find_limit(device: DeviceSample) -> float | None:
    """Return the power limit in watts; None where it is unknown."""
    return None if device.hardware is None else device.hardware.power_limit_w


def _is_measured(device: DeviceSample) -> bool:
    return any(
        value is not None for value in (device.utilization_percent, device.temperature_c, device.power_w)
    )


def rank_role(view: DeviceView) -> Role:
    """Return the role of the ranks' name: a warning where one of them does not report."""
    return "muted" if all(rank.state == "ok" for rank in view.ranks) else "medium"


def rank_text(view: DeviceView, *, is_long: bool = True) -> str:
    """Name the ranks that train on a device with their coordinates (`rank 5 tp1 pp2`), or nothing."""
    if view.ranks:
        # Of an ended device its own state says that its processes have ended.
        name = _name_all if view.state == "ended" else name_ranks
        return name(view.ranks, is_long=is_long)
    device = view.device
    place = view.device.rank
    if place is None:
        return ""
    is_labelled = device.kind == "trace" and device.label == str(place.rank)
    return name_coordinates(place, is_long=is_long, has_rank=not is_labelled)
