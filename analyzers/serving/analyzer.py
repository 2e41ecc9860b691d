"""Findings about servers of models: a pool that runs out, refused requests, little room outside of the pool,
a server that grows beyond its plan, and one that sleeps.

A full device is healthy where a server fills it on purpose; a full pool is what its users feel: sequences are
preempted and computed again. `docs/serving-watch.md` explains the thresholds.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...engine.model import (
    DeviceSample,
    EngineReading,
    Evidence,
    Finding,
    Sample,
    ServerDevice,
    ServerSample,
    Severity,
)
from ...engine.units import GIB, MIB, format_bytes
from ...engine.unmeasured import sum_all
from ..findings.evidence import CAPACITY, EvidenceKey
from ..findings.lifecycle import (
    Crossing,
    NodeClocks,
    OpenFinding,
    Passage,
    begin_finding,
    find_absence_s,
    is_visible,
    restate,
)
from ..findings.subjects import name_device
from ..sentence import count
from ..serving_places import POOL_KIND, find_rank_plan
from .advice import LEAST_OUTSIDE_BYTES, SPARE_BYTES, advise_outside, advise_pool
from .arrivals import PEAK_S, ArrivalTrack
from .forecast import PoolForecast, PoolTrack
from .load import name_server

PREEMPTION = POOL_KIND
REJECTION = "requests_refused"
OUTSIDE = "server_headroom"
BEYOND = "beyond_plan"
ASLEEP = "server_asleep"
KINDS = (PREEMPTION, REJECTION, OUTSIDE, BEYOND, ASLEEP)

# Rates are over so many seconds.
RATE_S = 60.0
# Less than this is said to be seconds: the use fluctuates by as much.
SOON_S = 10.0
# Without a preemption or a forecast for so long, the finding closes: load that grows does so unevenly.
CALM_S = 60.0
HOLD_S = 450.0
# As long as more than this is in use the pool may go on filling, and the finding stands.
STANDS_SHARE = 0.5
# Requests that wait, as a share of those that run and at least, while the pool has room: the engine has as
# much to compute as it can, and the pool fills no further.
BUSY_SHARE = 0.05
BUSY_LEAST = 3
ROOM_SHARE = 0.9
# Preemptions for each sequence that runs, a minute, from which most of them are computed twice.
SEVERE_PREEMPTIONS = 0.5
# What a rank may hold beyond what its plan names: a CUDA context, libraries, communication.
UNPLANNED_BYTES = 2 * GIB
# Without a plan: growth after the start, as a share of the device, and at least.
GROWN_SHARE = 0.03
GROWN_LEAST_BYTES = GIB
# Of this the start consists: graphs are captured, the first requests warm caches up.
START_S = 120.0
_NEWS_SHARE = 0.5

_SERVER = EvidenceKey("server")
_ENGINE = EvidenceKey("engine")
_TIME_LEFT = EvidenceKey("time to exhaustion", "s")
_TIME_LOW = EvidenceKey("lower end of 80 %", "s")
_TIME_HIGH = EvidenceKey("upper end of 80 %", "s")
_USED = EvidenceKey("KV pool in use", "%")
_GROWTH = EvidenceKey("growth a minute", "%")
_WINDOW = EvidenceKey("window", "s")
_PEAK = EvidenceKey("expected within two minutes", "%")
_ARRIVING = EvidenceKey("requests a minute")
_PREEMPTIONS = EvidenceKey("preemptions a minute")
_REFUSALS = EvidenceKey("refused a minute")
_RUNNING = EvidenceKey("running")
_WAITING = EvidenceKey("waiting")
_HITS = EvidenceKey("prefix-cache hits", "%")
_FREE = EvidenceKey("free outside of the server", "bytes")
_HELD = EvidenceKey("held by the server", "bytes")
_PLANNED = EvidenceKey("planned", "bytes")
_FREED = EvidenceKey("freed", "bytes")
_SINCE = EvidenceKey("since", "s")


class Counter:
    """How much a counter of a server rose over the last minute; a restart of the server begins again."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def add(self, time_s: float, value: int | None) -> None:
        if value is None:
            return
        if self._points and (value < self._points[-1][1] or time_s < self._points[-1][0]):
            self._points.clear()
        self._points.append((time_s, value))
        while len(self._points) > 2 and self._points[1][0] <= time_s - RATE_S:
            self._points.popleft()

    @property
    def risen(self) -> int:
        return self._points[-1][1] - self._points[0][1] if self._points else 0

    @property
    def per_minute(self) -> float:
        """Mean over the last minute; over less where less was seen, but at least ten seconds."""
        if len(self._points) < 2:
            return 0.0
        return 60.0 * self.risen / max(10.0, self._points[-1][0] - self._points[0][0])


class _Moment(NamedTuple):
    """One server in one sample."""

    sample: Sample
    server: ServerSample
    devices: dict[str, DeviceSample]

    @property
    def time_s(self) -> float:
        return self.sample.time_s

    @property
    def place(self) -> DeviceSample | None:
        """The first of its devices, which a finding about all of the server is shown on."""
        return next((self.devices[it.uuid] for it in self.server.devices if it.uuid in self.devices), None)


def _begin(kind: str, moment: _Moment, about: str, device: DeviceSample | None) -> Finding:
    return begin_finding(
        kind,
        moment.sample.node,
        moment.time_s,
        device_uuid=None if device is None else device.uuid,
        device=None if device is None else device.label,
        about=f"{moment.server.name}#{about}",
        evidence=(),
    )


class _PoolTrack(OpenFinding):
    """The pool of one engine: when it runs out, and what happens when it has."""

    def __init__(self) -> None:
        super().__init__()
        self._pool = PoolTrack()
        self._arrivals = ArrivalTrack()
        self._preemptions = Counter()
        self._asked = 0
        # Since when nothing asks for the finding, and since when it may close.
        self._lapsed_s: float | None = None
        self._calm_since_s: float | None = None
        self._forecast: PoolForecast | None = None

    def restart(self) -> None:
        self._pool.restart()
        self._arrivals.restart()
        self._preemptions = Counter()
        self._asked = 0

    def observe(self, moment: _Moment, engine: EngineReading) -> Sequence[Finding]:
        time_s = moment.time_s
        self._preemptions.add(time_s, engine.preemptions)
        is_due = engine.used_share is not None and self._pool.add(time_s, round(engine.used_share, 6))
        has_arrived = self._arrivals.add(time_s - (moment.server.age_s or 0.0), engine)
        if self._arrivals.is_known:
            is_due = has_arrived
        is_preempting = self._preemptions.risen > 0
        if is_due:
            self._look(moment.server, engine)
        if self.is_settled(time_s):
            return ()
        if is_preempting:
            self._lapsed_s = self._calm_since_s = None
            return self._state(moment, engine, None)
        if self._forecast is not None and is_due:
            self._asked += 1
            self._lapsed_s = self._calm_since_s = None
            if self._asked >= self._forecast.looks or self.finding is not None:
                return self._state(moment, engine, self._forecast)
            return ()
        if is_due:
            self._asked = 0
            return self._calm(moment, engine)
        return ()

    def _look(self, server: ServerSample, engine: EngineReading) -> None:
        self._forecast = None
        if find_limit(server, engine) < 1.0:
            return
        if self._arrivals.is_known:
            self._forecast = self._arrivals.forecast()
            return
        is_busy = (engine.waiting or 0) > max(BUSY_LEAST, BUSY_SHARE * (engine.running or 0))
        level = self._pool.level
        if not (is_busy and level is not None and level < ROOM_SHARE):
            self._forecast = self._pool.forecast()

    def _calm(self, moment: _Moment, engine: EngineReading) -> Sequence[Finding]:
        """Close the finding if nothing asks for it any more; until then it says so."""
        finding = self.finding
        time_s = moment.time_s
        if finding is None:
            return ()
        is_forecast = _PREEMPTIONS.read(finding) is None
        if self._lapsed_s is None:
            self._lapsed_s = time_s
        if self._calm_since_s is None or (is_forecast and (self._pool.level or 0.0) >= STANDS_SHARE):
            self._calm_since_s = time_s
        if time_s - self._calm_since_s >= (HOLD_S if is_forecast else CALM_S):
            self._calm_since_s = self._lapsed_s = None
            because = "the pool no longer fills" if is_forecast else "no sequence was preempted for a minute"
            return self.close(time_s, because)
        if _WINDOW.read(finding) is None or time_s - self._lapsed_s < CALM_S:
            return ()
        used = engine.used_share or 0.0
        evidence = (_SERVER(moment.server.name), _ENGINE(engine.name), _USED(100 * used))
        name = self._name(moment.server, engine)
        title = f"{name} filled its KV pool up to {100 * used:.0f} % and pauses there"
        return self.state(restate(finding, time_s, severity="low", title=title, evidence=evidence))

    def _name(self, server: ServerSample, engine: EngineReading) -> str:
        return name_server(server) + ("" if len(server.engines) == 1 else f", engine {engine.name}")

    def _state(
        self, moment: _Moment, engine: EngineReading, forecast: PoolForecast | None
    ) -> Sequence[Finding]:
        server = moment.server
        per_minute = self._preemptions.per_minute
        finding = self.finding
        if finding is not None and not self._is_news(finding, forecast, per_minute, moment.time_s):
            return ()
        opened = finding or _begin(PREEMPTION, moment, engine.name, moment.place)
        name = self._name(server, engine)
        used = engine.used_share or 0.0
        severity: Severity = "medium"
        if forecast is None:
            rate = count(max(1, round(per_minute)), "sequence")
            # The count is of a minute, the use of now.
            full = (
                f"is full ({100 * used:.0f} %)"
                if used >= ROOM_SHARE
                else f"was full, {100 * used:.0f} % is in use now"
            )
            title = f"{name} preempts {rate} a minute: its KV pool {full}"
            if per_minute >= SEVERE_PREEMPTIONS * max(1, engine.running or 0):
                severity = "high"
        else:
            title = f"{name} {_describe_end(forecast, used)}"
        return self.state(
            restate(
                opened,
                moment.time_s,
                severity=severity,
                title=title,
                evidence=tuple(self._list_evidence(server, engine, forecast, per_minute)),
                method=_describe_method(forecast),
                advice=advise_pool(server, engine, moment.devices),
            )
        )

    def _is_news(
        self, finding: Finding, forecast: PoolForecast | None, per_minute: float, time_s: float
    ) -> bool:
        """Return whether what a finding says has changed by more than a person overlooks."""
        was_forecast = _WINDOW.read(finding) is not None
        if forecast is None:
            return was_forecast or is_visible(_PREEMPTIONS.read_number(finding), per_minute, _NEWS_SHARE)
        stated_s = _TIME_LEFT.read_number(finding)
        if not was_forecast or forecast.in_s is None or stated_s is None:
            return not was_forecast or (stated_s is None and forecast.in_s is not None)
        return is_visible(max(1.0, stated_s - (time_s - finding.updated_s)), forecast.in_s, _NEWS_SHARE)

    def _list_evidence(
        self, server: ServerSample, engine: EngineReading, forecast: PoolForecast | None, per_minute: float
    ) -> Iterator[Evidence]:
        yield _SERVER(server.name)
        yield _ENGINE(engine.name)
        if forecast is not None:
            # A small pool ends by chance: its mean use says no time.
            times = (forecast.in_s, forecast.low_s, forecast.high_s) if forecast.few is None else ()
            for key, seconds in zip((_TIME_LEFT, _TIME_LOW, _TIME_HIGH), times, strict=False):
                if seconds is not None:
                    yield key(seconds)
            if forecast.peak_share is not None:
                yield _PEAK(100 * forecast.peak_share)
            if forecast.arriving_per_s is not None:
                yield _ARRIVING(60 * forecast.arriving_per_s)
            yield _GROWTH(6000 * forecast.growth_per_s)
            yield _WINDOW(forecast.window_s)
        else:
            yield _PREEMPTIONS(per_minute)
        if engine.used_share is not None:
            yield _USED(100 * engine.used_share)
        if engine.running is not None:
            yield _RUNNING(engine.running)
        if engine.waiting is not None:
            yield _WAITING(engine.waiting)
        if engine.prefix_queries and engine.prefix_hits is not None:
            yield _HITS(100 * engine.prefix_hits / engine.prefix_queries)


def _describe_end(forecast: PoolForecast, used: float) -> str:
    growth = f"{100 * used:.0f} % in use, +{6000 * forecast.growth_per_s:.1f} % a minute"
    if forecast.few is not None:
        few = f"about {forecast.few} sequences fill it"
        share = f"{100 * used:.0f} % in use"
        return f"may run out of its KV pool at any time at the present arrival rate: {few} ({share})"
    if forecast.in_s is None:
        peak = (
            ""
            if forecast.peak_share is None
            else f", about {100 * forecast.peak_share:.0f} % in {PEAK_S:.0f} s"
        )
        return f"is about to fill its KV pool at the present arrival rate ({100 * used:.0f} % in use{peak})"
    when = f"in about {forecast.in_s:,.0f} s" if forecast.in_s >= SOON_S else "within seconds"
    return f"fills its KV pool {when} at the present arrival rate ({growth})"


def _describe_method(forecast: PoolForecast | None) -> str:
    if forecast is None:
        return "The server's own counter of preemptions, over the last minute"
    if forecast.arriving_per_s is None:
        return "A line through the pool's use over the last minutes, averaged over 10 s"
    if forecast.few is not None:
        return (
            "Requests that arrive, the length of their outputs and the time of a step over the last minutes, "
            "computed ahead, with the scatter by long sequences"
        )
    return (
        "Requests that arrive, the length of their outputs and the time of a step over the last minutes, "
        "computed ahead"
    )


def find_limit(server: ServerSample, engine: EngineReading) -> float:
    """Return the share of the pool that as many sequences as may run would use, by their present length."""
    if server.most_sequences is None or not engine.running or not engine.used_share:
        return 1.0
    # Sequences of the next minutes may be longer than those of now.
    longer = 1.15
    return min(1.0, longer * engine.used_share * server.most_sequences / engine.running)


class _RefusalTrack(OpenFinding):
    """Requests that an engine refuses because its queue is full."""

    def __init__(self) -> None:
        super().__init__()
        self._refusals = Counter()

    def observe(self, moment: _Moment, engine: EngineReading) -> Sequence[Finding]:
        self._refusals.add(moment.time_s, engine.rejections)
        if self.is_settled(moment.time_s):
            return ()
        per_minute = self._refusals.per_minute
        if not self._refusals.risen:
            return self.close(moment.time_s, "no request was refused for a minute")
        finding = self.finding
        if finding is not None and not is_visible(_REFUSALS.read_number(finding), per_minute, _NEWS_SHARE):
            return ()
        server = moment.server
        opened = finding or _begin(REJECTION, moment, engine.name, moment.place)
        waiting = "" if engine.waiting is None else f" with {engine.waiting:,} waiting"
        rate = count(max(1, round(per_minute)), "request")
        return self.state(
            restate(
                opened,
                moment.time_s,
                severity="high",
                title=f"{name_server(server)} refuses {rate} a minute{waiting}",
                evidence=(
                    _SERVER(server.name),
                    _ENGINE(engine.name),
                    _REFUSALS(per_minute),
                    *(() if engine.waiting is None else (_WAITING(engine.waiting),)),
                ),
                method="The server's own counter of refused requests, over the last minute",
                advice=advise_pool(server, engine, moment.devices),
            )
        )


class _OutsideTrack(OpenFinding):
    """What is free on a device outside of a server's pool: there servers run out of memory."""

    def __init__(self) -> None:
        super().__init__()
        self._scarce = Crossing()

    def observe(self, moment: _Moment, place: ServerDevice) -> Sequence[Finding]:
        device = moment.devices.get(place.uuid)
        free = None if device is None or device.state != "ok" else device.memory.free_bytes
        if device is None or free is None:
            return ()
        most = device.memory.used_max_bytes
        used = device.memory.used_bytes
        if most is not None and used is not None:
            free = max(0, free - (most - used))
        self._scarce.observe(moment.time_s, is_beyond=free < LEAST_OUTSIDE_BYTES, is_back=free >= SPARE_BYTES)
        if self._scarce.is_due:
            self._scarce.flip()
            if not self._scarce.is_active:
                return self.close(moment.time_s, f"{format_bytes(SPARE_BYTES)} are free again")
        if not self._scarce.is_active or self.is_settled(moment.time_s):
            return ()
        finding = self.finding
        if finding is not None and (_FREE.read_count(finding) or 0) <= 2 * free:
            return ()
        opened = finding or _begin(OUTSIDE, moment, place.uuid, device)
        return self.state(
            restate(
                opened,
                moment.time_s,
                severity="high" if free < 128 * MIB else "medium",
                title=(
                    f"{name_device(device)} has {format_bytes(free)} free outside of "
                    f"{name_server(moment.server)}"
                ),
                evidence=(
                    _SERVER(moment.server.name),
                    _FREE(free),
                    *(() if device.memory.total_bytes is None else (CAPACITY(device.memory.total_bytes),)),
                ),
                method=(
                    f"Less than {format_bytes(LEAST_OUTSIDE_BYTES)} were free in every sample of 10 s; the "
                    "pool itself was taken at the start and does not grow"
                ),
                advice=advise_outside(moment.server, place, device),
            )
        )


class _BeyondTrack(OpenFinding):
    """What a server holds on a device beyond its plan, or beyond what it held after its start."""

    def __init__(self) -> None:
        super().__init__()
        self._over = Crossing()
        self._first_s: float | None = None
        # Most that it held while it started.
        self._start_bytes: int | None = None

    def observe(self, moment: _Moment, place: ServerDevice) -> Sequence[Finding]:
        held = place.used_bytes
        device = moment.devices.get(place.uuid)
        total = None if device is None else device.memory.total_bytes
        if held is None or device is None or not total or moment.server.state != "ok":
            self._over.restart()
            return ()
        allowed, planned = self._find_allowed(moment, place, held, total)
        if allowed is None:
            return ()
        self._over.observe(
            moment.time_s, is_beyond=held > allowed, is_back=held <= allowed - GROWN_LEAST_BYTES // 4
        )
        if self._over.is_due:
            self._over.flip()
            if not self._over.is_active:
                return self.close(moment.time_s, "it holds no more than planned again")
        if not self._over.is_active or self.is_settled(moment.time_s):
            return ()
        finding = self.finding
        held_before = None if finding is None else _HELD.read_count(finding)
        if held_before is not None and held - held_before < 0.01 * total:
            return ()
        opened = finding or _begin(BEYOND, moment, place.uuid, device)
        over = held - planned
        return self.state(
            restate(
                opened,
                moment.time_s,
                severity="medium",
                title=(
                    f"{name_server(moment.server)} holds {format_bytes(held)} of {name_device(device)}, "
                    f"{format_bytes(over)} more than {'planned' if moment.server.plan else 'after its start'}"
                ),
                evidence=(_SERVER(moment.server.name), _HELD(held), _PLANNED(planned), CAPACITY(total)),
                method=(
                    "What the driver says the server's processes hold, against the plan in its start-up log "
                    "or metrics and what contexts and libraries take"
                    if moment.server.plan
                    else "What the driver says the server's processes hold, against the first minutes"
                ),
                advice=advise_outside(moment.server, place, device),
            )
        )

    def _find_allowed(
        self, moment: _Moment, place: ServerDevice, held: int, total: int
    ) -> tuple[int | None, int]:
        """Return what the server may hold, and what was planned; None while it starts."""
        plan = find_rank_plan(moment.server, place)
        if plan is not None and plan.weights_bytes is not None and plan.cache_bytes is not None:
            parts = (
                plan.weights_bytes,
                plan.cache_bytes,
                plan.activations_bytes or 0,
                plan.libraries_bytes or 0,
                plan.states_bytes or 0,
                plan.graphs_bytes or 0,
            )
            planned = max(sum(parts), (plan.share_bytes or 0) + (plan.graphs_bytes or 0))
            return planned + UNPLANNED_BYTES, planned
        if self._first_s is None or moment.time_s < self._first_s:
            self._first_s = moment.time_s
            self._start_bytes = None
        if moment.time_s - self._first_s < START_S or self._start_bytes is None:
            self._start_bytes = max(held, self._start_bytes or 0)
            return None, 0
        return self._start_bytes + max(GROWN_LEAST_BYTES, round(GROWN_SHARE * total)), self._start_bytes


class _SleepTrack(OpenFinding):
    """That a server sleeps, as an event with a beginning and an end: its memory is free for a trainer."""

    def __init__(self) -> None:
        super().__init__()
        self._awake_bytes: int | None = None

    def observe(self, moment: _Moment) -> Sequence[Finding]:
        server = moment.server
        held = sum_all(it.used_bytes for it in server.devices) if server.devices else None
        if server.state == "ok":
            self._awake_bytes = held
            return () if self.is_settled(moment.time_s) else self.close(moment.time_s, "it is awake again")
        if server.state != "asleep" or self.is_settled(moment.time_s):
            return ()
        freed = None if held is None or self._awake_bytes is None else max(0, self._awake_bytes - held)
        # The driver shows what a server gave back a moment after the server says that it sleeps.
        if self.finding is not None and not (freed or 0) > (_FREED.read_count(self.finding) or 0):
            return ()
        gave = "" if not freed else f" and has given {format_bytes(freed)} back"
        opened = self.finding or _begin(ASLEEP, moment, "sleep", moment.place)
        return self.state(
            restate(
                opened,
                moment.time_s,
                severity="low",
                title=f"{name_server(server)} sleeps{gave}",
                evidence=(
                    _SERVER(server.name),
                    _SINCE(opened.opened_s),
                    *(() if freed is None else (_FREED(freed),)),
                ),
                method="The server says so (vLLM's engine_sleep_state)",
                advice=(
                    "When it wakes it needs this memory again: whoever uses the device meanwhile must have "
                    "given it back by then"
                ),
            )
        )


class _Tracks:
    """Everything that is watched of one server."""

    def __init__(self) -> None:
        self.pools: dict[str, _PoolTrack] = {}
        self.refusals: dict[str, _RefusalTrack] = {}
        self.outside: dict[str, _OutsideTrack] = {}
        self.beyond: dict[str, _BeyondTrack] = {}
        self.sleep = _SleepTrack()
        self.seen_s = 0.0

    def all(self) -> list[OpenFinding]:
        groups: tuple[dict[str, OpenFinding], ...] = (
            dict(self.pools),
            dict(self.refusals),
            dict(self.outside),
            dict(self.beyond),
        )
        return [*(track for group in groups for track in group.values()), self.sleep]

    def observe(self, moment: _Moment) -> Iterator[Finding]:
        server = moment.server
        if server.state == "ok":
            for engine in server.engines:
                yield from self.pools.setdefault(engine.name, _PoolTrack()).observe(moment, engine)
                yield from self.refusals.setdefault(engine.name, _RefusalTrack()).observe(moment, engine)
        elif server.state == "asleep":
            for track in (*self.pools.values(), *self.refusals.values()):
                yield from track.close(moment.time_s, "the server sleeps")
        for place in server.devices:
            yield from self.outside.setdefault(place.uuid, _OutsideTrack()).observe(moment, place)
            yield from self.beyond.setdefault(place.uuid, _BeyondTrack()).observe(moment, place)
        yield from self.sleep.observe(moment)

    def restart(self) -> None:
        for pool in self.pools.values():
            pool.restart()

    def adopt(self, finding: Finding) -> None:
        engine = _ENGINE.read(finding)
        uuid = finding.device_uuid
        if finding.kind == PREEMPTION and isinstance(engine, str):
            self.pools.setdefault(engine, _PoolTrack()).adopt(finding)
        elif finding.kind == REJECTION and isinstance(engine, str):
            self.refusals.setdefault(engine, _RefusalTrack()).adopt(finding)
        elif finding.kind == ASLEEP:
            self.sleep.adopt(finding)
        elif uuid is not None and finding.kind == OUTSIDE:
            self.outside.setdefault(uuid, _OutsideTrack()).adopt(finding)
        elif uuid is not None and finding.kind == BEYOND:
            self.beyond.setdefault(uuid, _BeyondTrack()).adopt(finding)


class ServingAnalyzer:
    """Watches every server of every node.

    Servers are not in the history ring: a restarted worker adopts what is open, and watches afresh.
    """

    name = "serving"

    def __init__(self) -> None:
        self._clocks = NodeClocks()
        self._tracks: dict[tuple[str, str], _Tracks] = {}

    def observe(self, sample: Sample) -> Sequence[Finding]:
        if not sample.servers and not self._tracks:
            return ()
        passage = self._clocks.note(sample)
        if passage is Passage.LATE:
            return ()
        node = sample.node
        if passage is not Passage.NEXT:
            for key, tracks in self._tracks.items():
                if key[0] == node:
                    tracks.restart()
        devices = {device.uuid: device for device in sample.devices}
        found: list[Finding] = []
        for server in sample.servers:
            tracks = self._tracks.setdefault((node, server.name), _Tracks())
            tracks.seen_s = sample.time_s
            found += tracks.observe(_Moment(sample, server, devices))
        found += self._close_absent(sample)
        return found

    def restore(self, findings: Sequence[Finding]) -> None:
        """Adopt open findings of these kinds; samples up to their last update change nothing about them."""
        for finding in findings:
            name = _SERVER.read(finding)
            if finding.kind in KINDS and finding.is_open and isinstance(name, str):
                tracks = self._tracks.setdefault((finding.node, name), _Tracks())
                tracks.seen_s = finding.updated_s
                tracks.adopt(finding)

    def _close_absent(self, sample: Sample) -> Iterator[Finding]:
        """Close what is open about servers that are no longer listed.

        A sample of the history ring lists neither servers nor processes, and is no evidence.
        """
        if not sample.servers and all(device.processes is None for device in sample.devices):
            return
        listed = {server.name for server in sample.servers}
        absent_s = find_absence_s(sample.interval_s)
        for key in [key for key in self._tracks if key[0] == sample.node and key[1] not in listed]:
            tracks = self._tracks[key]
            if 0.0 <= sample.time_s - tracks.seen_s < absent_s:
                continue
            for track in tracks.all():
                yield from track.close(sample.time_s, "the server is no longer there")
            del self._tracks[key]
