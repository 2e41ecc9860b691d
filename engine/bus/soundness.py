"""What others tell is taken only where it can be: times of a calendar, finite figures.

Types are the decoder's; these are the values that it lets through and no screen could show.
"""

from collections.abc import Iterable

from ..alerts.state import AlertState
from ..errors import WireError
from ..model import Assessment, Finding, HubStatus, Sample

LATEST_S = 253_402_300_799.0
"""The end of the year 9999, after which no date can be written."""


def check_sample(sample: Sample) -> Sample:
    """Return a sample that has a place in time.

    Raises:
        WireError: Its times cannot be of any clock.
    """
    if not (_can_be(sample.time_s) and 0.0 < sample.interval_s <= LATEST_S):
        raise WireError(f"a sample was refused: time {sample.time_s} s, interval {sample.interval_s} s")
    return sample


def check_status(status: HubStatus) -> HubStatus:
    """Return the state of a hub that ticks.

    Raises:
        WireError: Its times are none.
    """
    if not (_can_be(status.started_s) and 0.0 < status.interval_s <= LATEST_S):
        raise WireError(f"the state of an agent was refused: an interval of {status.interval_s} s")
    return status


def check_told(findings: Iterable[Finding], assessments: Iterable[Assessment]) -> None:
    """Refuse what analyzers cannot have said.

    Raises:
        WireError: A time or a figure is none.
    """
    for finding in findings:
        if not all(_can_be(it) for it in (finding.opened_s, finding.updated_s, finding.closed_s)):
            raise WireError(f"a finding of kind {finding.kind[:40]!r} was refused: its times are none")
    for each in assessments:
        times = (each.time_s, each.oom_in_s, each.oom_in_low_s, each.oom_in_high_s, each.horizon_s)
        figures = (each.started_s, each.watched_s, each.growth_bytes_per_s, each.growth_bytes_per_step)
        shares = (each.confidence, each.probability, each.probability_within_steps)
        if sum(map(abs, filter(None, (*times, *figures, *shares)))) <= LATEST_S:
            continue  # then each of them is: a viewer reads thousands a second
        if not all(_can_be(it) for it in (*times, *shares)) or not all(_is_finite(it) for it in figures):
            raise WireError("a forecast was refused: its times or figures are none")


def check_alerts(alerts: AlertState) -> AlertState:
    """Return what people decided, at times that can be.

    Raises:
        WireError: A time is none.
    """
    times = [each.time_s for each in alerts.acknowledged]
    times += [each.time_s for each in alerts.mutes] + [each.time_s for each in alerts.changes]
    if not all(_can_be(it) for it in (*times, *(mute.until_s for mute in alerts.mutes))):
        raise WireError("decisions about findings were refused: their times are none")
    return alerts


def _can_be(time_s: float | None) -> bool:
    return time_s is None or abs(time_s) <= LATEST_S


def _is_finite(figure: float | None) -> bool:
    return figure is None or abs(figure) < float("inf")
