"""What analyzers conclude: findings, assessments, headroom; what they ask for, and the status of a node."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, Protocol, TypeVar, runtime_checkable

import msgspec

from ..units import KIB, MIB, format_bytes, format_share
from .sample import DeviceSample, HostSample, RankSample, Sample, SegmentMap
from .serving import ServerSample

Severity = Literal["low", "medium", "high", "critical"]
SEVERITIES: tuple[Severity, ...] = ("low", "medium", "high", "critical")
"""Severities from mild to severe."""


class Evidence(msgspec.Struct, frozen=True):
    """One measured number behind a finding."""

    name: str
    value: float | int | str | None
    unit: str = ""


class Finding(msgspec.Struct, frozen=True):
    """One conclusion: opens once per crossing, is updated, and closes."""

    id: str
    kind: str
    """What it is about: `pressure`, `oom`, `leak`, `fragmentation`, …"""
    node: str
    device_uuid: str | None
    device: str | None
    """Label of the device (`DeviceSample.label`)."""
    severity: Severity
    title: str
    """The finding in one sentence."""
    opened_s: float
    """Time of the sample that opened it, in the samples' own clock."""
    updated_s: float
    closed_s: float | None = None
    evidence: tuple[Evidence, ...] = ()
    method: str = ""
    """How it was concluded, in one sentence."""
    advice: str = ""
    """What to do, in one sentence."""

    @property
    def is_open(self) -> bool:
        """Whether it still holds."""
        return self.closed_s is None


CLOSED_BECAUSE = "closed because"
FOLLOWED_BY = "followed by process"
"""Evidence that a closed finding has."""
PROCESS_ENDED = "the process has ended"


def is_last_word(finding: Finding) -> bool:
    """Return whether it is closed and still the last that is known of its device.

    So is an error that ended its process, until another process trains there.
    """
    found = {evidence.name: evidence.value for evidence in finding.evidence}
    is_error = finding.kind == "oom_met" and found.get(CLOSED_BECAUSE) == PROCESS_ENDED
    return not finding.is_open and is_error and FOLLOWED_BY not in found


def order_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return open findings first, then last words, then other closed ones; newest first within each."""
    return tuple(sorted(findings, key=lambda f: (not f.is_open, not is_last_word(f), -f.opened_s)))


def make_finding_id(kind: str, node: str, device_uuid: str | None, opened_s: float) -> str:
    """Return the id of a finding: the same facts give the same id in every process.

    Args:
        kind: Kind of the finding.
        node: Node it is about.
        device_uuid: Device it is about, or None for the node as a whole.
        opened_s: Time of the sample that opened it.
    """
    import hashlib  # loads OpenSSL, 3 MiB that a hub, which makes no findings, does without

    text = f"{kind}\n{node}\n{device_uuid or ''}\n{opened_s:.6f}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class HeadroomEstimate(msgspec.Struct, frozen=True):
    """What the steps of one process show; None where there is no answer."""

    unit: str
    """What sizes count, in the plural: `tokens` or `samples`."""
    limit_bytes: int
    """Most that live tensors can take."""
    steps: int
    sizes: int
    """Distinct sizes."""
    largest_seen: float | None
    confidence: float
    """Probability that a step of `largest_size` fits, and that one of `too_large_size` does not."""
    sampled_sizes: int = 0
    """Number of sizes whose peak was only sampled, and so is itself an estimate."""
    reason: str | None = None
    """Why there is no answer, in a clause."""
    per_unit_bytes: float | None = None
    base_bytes: int | None = None
    """Peak of a step of size 0 by the line: what does not depend on the size."""
    expected_size: int | None = None
    """Size whose peak is at the limit by the line, halfway between the sure case and the best case."""
    largest_size: int | None = None
    """Largest size that fits with that confidence; 0 where not even the smallest does."""
    too_large_size: int | None = None
    """Smallest size that does not fit with that confidence; None where it is too far from the sizes seen."""
    is_extrapolated: bool = False
    """Whether `largest_size` is beyond the largest size seen."""
    is_bounded: bool = False
    """Whether larger sizes might fit, but are too far beyond those seen to estimate."""

    @property
    def sentence(self) -> str:
        """The answer for people."""
        if self.reason is not None or self.largest_size is None:
            return f"Headroom in {self.unit} is unknown: {self.reason}"
        return (
            f"Estimate: {self.per_unit} over {format_bytes(self.base_bytes)}; {self.fitting} would fit "
            f"{format_bytes(self.limit_bytes)} with {format_share(self.confidence)} "
            f"confidence{self._beyond}; largest seen: {self.largest_seen:,.0f}"
        )

    @property
    def per_unit(self) -> str:
        """Memory for each token or sample, for people."""
        each = self.per_unit_bytes or 0.0
        amount = f"{each / MIB:,.2f} MiB" if each >= MIB else f"{each / KIB:,.1f} KiB"
        return f"{amount} a {self.unit.removesuffix('s')}"

    @property
    def fitting(self) -> str:
        """The largest size that fits, for people."""
        least = "at least " if self.is_bounded else ""
        noun = self.unit.removesuffix("s") if self.largest_size == 1 else self.unit
        return f"{least}{self.largest_size or 0:,} {noun}"

    @property
    def _beyond(self) -> str:
        if self.too_large_size is None or self.expected_size is None:
            return ""
        return f", {self.expected_size:,} as likely as not, {self.too_large_size:,} would not"


# A finding reports a crossing; an assessment is there from the first forecast on, and says too that all is
# well.

RiskLevel = Literal["unknown", "low", "medium", "high", "critical"]
"""`unknown` is an answer too: device memory alone cannot forecast out-of-memory."""


TrendWord = Literal["steady", "rising", "filling", "full"]
"""`filling`: it would be full if it went on so; `rising`: it grows, and nothing says yet that it fills. None
of them says that memory runs out: what fills a card may be cache.
"""


class DeviceTrend(msgspec.Struct, frozen=True, gc=False):
    """How the used memory of a device goes, where nothing but that is known; None is unknown."""

    word: TrendWord
    time_s: float
    """Time of the sample that it is based on, in the samples' own clock."""
    since_s: float
    """When the growth began; without growth, when the word became what it is."""
    grown_bytes: int | None = None
    """By how much the least used has grown since then."""
    rate_bytes_per_s: float | None = None
    rate_low_bytes_per_s: float | None = None
    """Lower end of the 80 % interval."""
    rate_high_bytes_per_s: float | None = None
    full_in_s: float | None = None
    """Time until the device is full at this rate, from `time_s` on; None where it does not fill."""
    full_in_low_s: float | None = None
    """Lower end of the 80 % interval."""
    full_in_high_s: float | None = None


# Least probability that growth goes on until an error for a time without a proviso.
BELIEVED = 0.5


class Assessment(msgspec.Struct, frozen=True, gc=False):
    """The forecast for one training process, or for one device where no process reports; None is unknown."""

    node: str
    device_uuid: str | None
    device: str | None
    """Label of the device (`DeviceSample.label`)."""
    time_s: float
    """Time of the sample that it is based on, in the samples' own clock."""
    level: RiskLevel
    reason: str
    """Why the level is what it is, in a few words."""
    pid: int | None = None
    """None where it is about the device as a whole."""
    started_s: float | None = None
    rank: int | None = None
    memory_source: Literal["allocator", "device"] = "allocator"
    """What it is based on: live tensors, or device used where nothing better is known."""
    confidence: float | None = None
    """Probability that growth goes on until the error; without growth, how sure the level is. 0 to 1."""
    horizon_s: float | None = None
    probability: float | None = None
    """Probability of an out-of-memory error within `horizon_s`, 0 to 1."""
    steps_ahead: int | None = None
    probability_within_steps: float | None = None
    """Probability of an error within the next `steps_ahead` training steps, 0 to 1."""
    oom_in_s: float | None = None
    """Median time to the error from `time_s` on; None where none is forecast."""
    oom_in_low_s: float | None = None
    """Lower end of the 80 % interval."""
    oom_in_high_s: float | None = None
    capacity_bytes: int | None = None
    """Most that its live tensors can take."""
    floor_bytes: int | None = None
    """Live bytes at step ends."""
    peak_bytes: int | None = None
    """Most live bytes within recent steps."""
    growth_bytes_per_s: float | None = None
    """Robust rate at which the floor rises, or peaks do over a floor that does not."""
    growth_bytes_per_step: float | None = None
    is_growth_of_peaks: bool = False
    """Whether steps take more and more, and nothing is kept between them."""
    watched_s: float | None = None
    watched_steps: int | None = None
    headroom: tuple[HeadroomEstimate, ...] = ()
    """The largest step that would fit, in tokens and in samples, where the program reports its sizes."""
    device_trend: DeviceTrend | None = None
    """How used memory goes where only the driver's number is known: its level stays `unknown`."""

    @property
    def is_doubted(self) -> bool:
        """Whether growth is not believed to go on until the error that is forecast."""
        return self.confidence is not None and self.confidence < BELIEVED


Timed = TypeVar("Timed", Assessment, DeviceTrend)
"""A conclusion whose times count from the sample that it is based on."""

_TIMES: Final[dict[type, tuple[str, ...]]] = {
    Assessment: ("oom_in_s", "oom_in_low_s", "oom_in_high_s"),
    DeviceTrend: ("full_in_s", "full_in_low_s", "full_in_high_s"),
}


def bring_forward(conclusion: Timed, now_s: float) -> Timed:
    """Return a conclusion whose times count from now, where a newer sample has changed nothing else."""
    passed_s = max(0.0, now_s - conclusion.time_s)
    changed: dict[str, object] = {"time_s": conclusion.time_s + passed_s}
    for name in _TIMES[type(conclusion)]:
        time_s = getattr(conclusion, name)
        if time_s is not None:
            changed[name] = max(0.0, time_s - passed_s)
    if isinstance(conclusion, Assessment) and conclusion.device_trend is not None:
        changed["device_trend"] = bring_forward(conclusion.device_trend, now_s)
    return msgspec.structs.replace(conclusion, **changed)


class Analyzer(Protocol):
    """Turns samples into findings, for plug-ins in the group `vramscope.analyzers`.

    It is a pure streaming object, without input, output or clock: live, replayed and imported samples take
    the same path.
    """

    name: str
    """Name of the analyzer, as in its entry point."""

    def observe(self, sample: Sample) -> Sequence[Finding]:
        """Process one sample and return the findings it opened, updated or closed.

        Called in a worker process, once for each sample, in order. Time comes from `sample.time_s` only.
        Decide only by fields that the history ring keeps, so that a restarted worker, which is fed the ring,
        concludes the same: `engine/history/block.py` lists those of devices and of processes. Bytes of
        processes are rounded up to 512 there.

        Raises:
            Exception: Any error stops this analyzer; the worker continues with the others and notes it.
        """
        ...

    def restore(self, findings: Sequence[Finding]) -> None:
        """Adopt the open findings of a predecessor, before the first `observe`."""
        ...


@runtime_checkable
class Assessor(Protocol):
    """An analyzer that also says how near each process is to running out of memory."""

    def assess(self) -> Sequence[Assessment]:
        """Return the assessments that changed visibly since the last call."""
        ...


@runtime_checkable
class Annotator(Protocol):
    """An analyzer that adds what it knows to the assessments of others."""

    def annotate(self, changed: Sequence[Assessment]) -> Sequence[Assessment]:
        """Return the changed assessments with additions, and others whose additions changed.

        Args:
            changed: Assessments that changed since the last call.
        """
        ...


class Inquiry(msgspec.Struct, frozen=True):
    """One question to one process; the answer, if any, is a segment map."""

    verb: Literal["history", "segments"]
    """`history`: record allocations with their stacks for some time; `segments`: send a segment map."""
    pid: int
    seconds: float | None = None
    """For `history`: how long. For `segments`: how long the process may wait for the end of a step, to take
    the map there; None to take it at once."""
    is_on: bool = True
    """For `history`: record, or stop."""


@runtime_checkable
class Inquirer(Protocol):
    """Looks closer at findings: findings in, questions out, segment maps in, evidence out.

    Pure like an analyzer: it has no clock and sends nothing itself. It adds evidence to findings; it neither
    opens nor closes any.
    """

    name: str
    """Name of the inquirer, as in its entry point."""

    def restore(self, findings: Sequence[Finding]) -> None:
        """Read from a predecessor's open findings what it had added to them."""
        ...

    def follow(self, sample: Sample, findings: Sequence[Finding]) -> Sequence[Inquiry]:
        """Process one sample and its findings; return the questions to ask now."""
        ...

    def awaits_map(self, node: str, pid: int) -> bool:
        """Return whether a map of this process would be an answer."""
        ...

    def take_map(self, segment_map: SegmentMap) -> None:
        """Process an answer."""
        ...

    def enrich(self, finding: Finding) -> Finding:
        """Return a finding with what is known about it by now; the same object where nothing is new."""
        ...


STATUS_SCHEMA: Final = "vramscope.status/1"


class WorkerStatus(msgspec.Struct, frozen=True):
    """One analyzer worker process as its hub sees it."""

    name: str
    pid: int | None
    state: Literal["starting", "running", "restarting", "failed"]
    restarts: int = 0
    samples_dropped: int = 0
    """Samples that this worker missed: dropped on the way, or older than the ring."""
    analyzers: tuple[str, ...] = ()
    reason: str | None = None
    """Why it is not running, in one sentence."""


class HookStatus(msgspec.Struct, frozen=True):
    """One alert hook of a hub, and what became of its alerts."""

    name: Literal["command", "webhook"]
    target: str
    """The program, or the host of the address, without secrets."""
    delivered: int = 0
    failed: int = 0
    dropped: int = 0
    """Alerts dropped because too many were waiting."""
    waiting: int = 0
    reason: str | None = None
    """Why the newest alert did not arrive, in one sentence; None where it did."""


class HubStatus(msgspec.Struct, frozen=True):
    """State of a hub, published every tick."""

    hub_id: str
    """Random per start; a new one means the hub was restarted."""
    pid: int
    version: str
    started_s: float
    interval_s: float
    last_seq: int | None = None
    """Sequence number of the newest sample it published."""
    cpu_percent: float | None = None
    """CPU time of the hub and its workers over the last tick, percent of one core."""
    rss_bytes: int | None = None
    viewers: int | None = None
    workers: tuple[WorkerStatus, ...] = ()
    ticks_late: int = 0
    """Ticks published more than half an interval late."""
    hooks: tuple[HookStatus, ...] = ()
    """Alert hooks, from `[alerts]` in its settings."""
    notes: tuple[str, ...] = ()
    """What the hub could not do, in sentences."""
    root: str | None = None
    """Folder that stands for `/` when it reads devices and the host; None where its version does not say."""


class NodeStatus(msgspec.Struct, frozen=True):
    """The object that `--json` prints, one a line."""

    schema: Literal["vramscope.status/1"]
    time: float
    node: str
    host: HostSample | None
    devices: tuple[DeviceSample, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    agent: HubStatus | None = None
    ranks: tuple[RankSample, ...] = ()
    assessments: tuple[Assessment, ...] = ()
    """How near each process is to running out of memory, by device and process."""
    devices_left_out: int = 0
    """Devices of the node that are not followed because they were not asked for; nothing is concluded about
    them.
    """
    servers: tuple[ServerSample, ...] = ()
    """Servers of models on the node, such as vLLM."""
