"""The sentence on a fleet: the device that is nearest to running out, and how much of the fleet is seen."""

from collections.abc import Iterator, Sequence

from ...engine.units import format_age
from ..findings.subjects import drop_name
from ..sentence import Sentence
from ..trend_words import word_trend
from ..verdict import Remedy, Verdict
from .fleet import Census, Coverage
from .model import FleetDevice, find_worst

# How a person of a fleet gets to know more of processes without a probe, in full and in few words.
_REMEDIES: dict[Remedy, tuple[str, str]] = {
    "key": ("open a device and press a to attach", "open one, press a"),
    "command": ("vramscope attach PID on its node adds it", "vramscope attach PID"),
}


def judge_fleet(census: Census, coverage: Coverage, remedy: Remedy | None = None) -> Verdict:
    """Return the verdict on a fleet; less than full coverage is always reported.

    Devices of lost nodes are counted apart: only a high risk in their last message is reported, and named so.

    Args:
        remedy: What to name where nothing but the driver is known of the devices whose risk is unknown.
    """
    seen = ((coverage.text, coverage.text.removesuffix(" nodes")),) if coverage.is_partial else ()
    seen = (*seen, *_count_followed(census, coverage))
    lead = find_worst(census.grave)
    if lead is None:
        return _judge_calm(census, coverage, seen, remedy)
    others = [device for device in census.grave if device is not lead]
    return Verdict(lead.level, Sentence((_describe_lead(lead), *_count_others(others), *seen)))


def _count_others(others: Sequence[FleetDevice]) -> tuple[tuple[str, ...], ...]:
    """Return how many other devices are at risk now, and how many were when their nodes were lost."""
    past = sum(device.is_node_lost for device in others)
    now = len(others) - past
    more = ((f"{now:,} more at risk", f"+{now:,}", ""),) if now else ()
    words = "last reports" if past > 1 else "last report"
    return (*more, (f"{past:,} more by {words}", f"{past:,} {words}", "")) if past else more


def _count_followed(census: Census, coverage: Coverage) -> Iterator[tuple[str, ...]]:
    """Yield how many devices and nodes are followed, where others are known."""
    if coverage.devices_left_out:
        followed = f"{census.total:,}"
        known = f"{census.total + coverage.devices_left_out:,}"
        yield f"{followed} of {known} devices followed", f"{followed}/{known} devices"
    if coverage.nodes_left_out:
        yield coverage.followed_text, coverage.followed_text.replace(" of ", "/").removesuffix(" followed")


def _judge_calm(
    census: Census, coverage: Coverage, seen: tuple[tuple[str, ...], ...], remedy: Remedy | None
) -> Verdict:
    """Return the verdict where no risk is medium or above, on the devices whose nodes are not lost."""
    known = census.present
    unknown = census.unknown
    if not known:
        text = "No current data" if census.total else "No device is known yet"
        if not census.total and coverage.devices_left_out:
            text = "No device matches --devices"
        return Verdict(
            "unknown", Sentence(((text if coverage.total else "Waiting for the first data",), *seen))
        )
    if not unknown:
        is_chosen = coverage.nodes_left_out or coverage.devices_left_out
        of_them = " seen" if coverage.is_partial else " followed" if is_chosen else ""
        whole = f"all {known:,} devices{of_them}"
        return Verdict("low", Sentence(((f"OOM risk low on {whole}", "OOM risk low"), *seen)))
    told = f"OOM risk unknown on {unknown:,} of {known:,} devices"
    short = "OOM risk unknown"
    counted: tuple[str, ...] = (told, f"{short}: {unknown:,}/{known:,}", short)
    if remedy is not None and census.lacking == unknown:
        complete, brief = _REMEDIES[remedy]
        # How to change that stays longer than on how many devices.
        counted = (f"{told} without a probe: {complete}", f"{told}: {brief}", f"{short}: {brief}", short)
    clauses = (counted, *_describe_filling(census), *seen)
    return Verdict("unknown", Sentence(clauses))


def _describe_filling(census: Census) -> Iterator[tuple[str, ...]]:
    """Yield the device that is full first if it goes on filling, and how many others fill."""
    lead = census.worst
    trend = None if lead is None else lead.device_trend
    if lead is None or trend is None or trend.word != "filling":
        return
    forms = [f"{lead.name} of {lead.node} {words}" for words in word_trend(trend, trend.time_s)]
    yield (*forms, f"{lead.node}/{lead.label} filling", "")
    if census.filling > 1:
        yield f"{census.filling - 1:,} more filling", f"{census.filling - 1:,} more", ""


def _describe_lead(lead: FleetDevice) -> tuple[str, ...]:
    """Name the device and what threatens it, from the complete form to the shortest."""
    whose = f"{lead.name} of {lead.node}"
    short = f"{lead.node}/{lead.label}"
    old, was = (" (last report)", " (last)") if lead.is_old else ("", "")
    if lead.oom_in_s is not None:
        left = format_age(lead.oom_in_s)
        brief = left.replace(" ", "")
        return (
            f"{whose}: out of memory in {left}{old}",
            f"{whose}: OOM in {brief}{old}",
            f"{short}: OOM {brief}{was}",
        )
    reason = drop_name(lead.reason, lead.name)
    return f"{whose}: {reason}{old}", f"{whose}: {lead.level} risk{old}", f"{short}: {lead.level}{was}"
