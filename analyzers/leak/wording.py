"""What a leak finding says: title, evidence, method and advice."""

from typing import NamedTuple

import msgspec

from ...engine.model import Evidence, Finding, Severity
from ...engine.units import format_bytes
from ..finding_evidence import PROCESS, STARTED, read_number, read_process
from ..floors.beat import BeatKind
from ..floors.episode import Episode
from . import host_words
from .owner import HOST_LEAK, Owner, OwnerKey

ONSET = "onset"
ONSET_STEP = "step at onset"
FLOOR_AT_ONSET = "floor at onset"
WINDOW = "window"
RATE = "growth a second"
RATE_PER_STEP = "growth a step"
GROWN = "grown since onset"
FLOOR = "floor"
LIMIT = "capacity"
TIME_LEFT = "time to out of memory"
MEASURE = "memory"

SEVERITY_S: tuple[tuple[float, Severity], ...] = ((600.0, "critical"), (3600.0, "high"), (86400.0, "medium"))
"""Seconds to out of memory below which a leak is so grave."""
NEWS_SHARE = 0.25
"""Change of growth or rate, as a share, that a person would see."""

_MEASURES: dict[BeatKind, str] = {
    "step": "allocated, least of each step",
    "sample": "allocated",
    "device": "device used",
    "host": "resident host memory",
}


class Leak(NamedTuple):
    """What is known of one leak at one moment."""

    owner: Owner
    time_s: float
    episode: Episode
    floor_bytes: int
    limit_bytes: int | None
    headroom_bytes: float | None
    steps_per_s: float | None
    source: BeatKind

    @property
    def grown_bytes(self) -> int:
        """What it grew since its onset."""
        return self.floor_bytes - self.episode.onset_bytes

    @property
    def time_left_s(self) -> float | None:
        """Seconds until the headroom is gone at this rate; None without a known limit."""
        if self.headroom_bytes is None or self.source == "device":
            return None
        return self.headroom_bytes / self.episode.bytes_per_s

    @property
    def severity(self) -> Severity:
        """How soon it will have consequences."""
        left_s = self.time_left_s
        if left_s is None:
            return "low"
        return next((severity for limit_s, severity in SEVERITY_S if left_s < limit_s), "low")


def state_leak(finding: Finding, leak: Leak) -> Finding:
    """Return a finding with what is known of its leak now."""
    return msgspec.structs.replace(
        finding,
        device=leak.owner.device,
        severity=leak.severity,
        title=_word_title(leak),
        updated_s=max(leak.time_s, finding.opened_s),
        evidence=_list_evidence(leak),
        method=_explain(leak),
        advice=_advise(leak),
    )


def is_news(finding: Finding, leak: Leak) -> bool:
    """Return whether a person would see what has changed since a finding was last stated."""
    grown = read_number(finding, GROWN)
    rate = read_number(finding, RATE)
    is_grown = abs(leak.grown_bytes - grown) > NEWS_SHARE * max(grown, 1.0)
    return (
        finding.severity != leak.severity
        or is_grown
        or abs(leak.episode.bytes_per_s - rate) > NEWS_SHARE * rate
    )


def read_episode(finding: Finding) -> Episode:
    """Return the growth that a finding tells of."""
    return Episode(
        onset_s=read_number(finding, ONSET),
        onset_bytes=int(read_number(finding, FLOOR_AT_ONSET)),
        onset_step=int(read_number(finding, ONSET_STEP)) or None,
        window_s=read_number(finding, WINDOW),
        bytes_per_s=read_number(finding, RATE),
    )


def read_key(finding: Finding) -> OwnerKey:
    """Return who a finding is about."""
    return finding.kind, finding.node, finding.device_uuid, *read_process(finding)


def _per_step(leak: Leak) -> float | None:
    return None if not leak.steps_per_s else leak.episode.bytes_per_s / leak.steps_per_s


def _word_title(leak: Leak) -> str:
    if leak.owner.is_host:
        return host_words.word_title(leak.episode.bytes_per_s, leak.grown_bytes)
    per_step = _per_step(leak)
    pace = (
        f"{format_bytes(round(per_step))} a step"
        if per_step is not None
        else f"{format_bytes(round(leak.episode.bytes_per_s * 60))} a minute"
    )
    since = f" since step {leak.episode.onset_step:,}" if leak.episode.onset_step is not None else ""
    what = " of host memory" if leak.owner.kind == HOST_LEAK else ""
    what = " of device memory" if leak.source == "device" else what
    return f"{leak.owner.name} leaks {pace}{what}{since} ({format_bytes(leak.grown_bytes)})"


def _list_evidence(leak: Leak) -> tuple[Evidence, ...]:
    owner = leak.owner
    per_step = _per_step(leak)
    left_s = leak.time_left_s
    return (
        Evidence(PROCESS, owner.pid),
        Evidence(STARTED, owner.started_s, "s"),
        Evidence(MEASURE, host_words.MEASURE if owner.is_host else _MEASURES[leak.source]),
        Evidence(RATE, leak.episode.bytes_per_s, "bytes/s"),
        Evidence(RATE_PER_STEP, None if per_step is None else round(per_step), "bytes"),
        Evidence(GROWN, leak.grown_bytes, "bytes"),
        Evidence(ONSET, leak.episode.onset_s, "s"),
        Evidence(ONSET_STEP, leak.episode.onset_step),
        Evidence(FLOOR_AT_ONSET, leak.episode.onset_bytes, "bytes"),
        Evidence(FLOOR, leak.floor_bytes, "bytes"),
        Evidence(LIMIT, leak.limit_bytes, "bytes"),
        Evidence(TIME_LEFT, None if left_s is None else round(left_s), "s"),
        Evidence(WINDOW, leak.episode.window_s, "s"),
    )


def _explain(leak: Leak) -> str:
    return (
        f"Floors of equal blocks over {leak.episode.window_s:.0f} s rose steadily and without slowing down, "
        "by a share of the headroom that bears a forecast of its end (horizon ratio); the rate is the "
        "median of all slopes (Theil-Sen)"
    )


def _advise(leak: Leak) -> str:
    if leak.owner.is_host:
        return host_words.ADVICE
    if leak.source == "host":
        return (
            "Look for lists that keep batches or results, data loader workers whose Python objects are "
            "copied on write, and caches without a bound"
        )
    if leak.source == "device":
        return (
            "Device memory alone does not tell who holds it: start the job with `vramscope run` to see the "
            "floor of each step"
        )
    return (
        "Look for tensors that outlive their step: losses kept without .item() or .detach(), hooks and "
        "lists that hold activations, evaluation without torch.no_grad(), a cache without a bound, "
        "per-sample gradients kept"
    )
