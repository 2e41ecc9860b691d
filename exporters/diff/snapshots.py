"""The difference of two snapshots as text, and as annotations of a code review."""

from collections.abc import Iterator

from ...analyzers.sentence import count, cut_words
from ...analyzers.snapshot_summary.comparison import (
    ComparedDevice,
    ComparedMoment,
    SnapshotDifference,
    SnapshotFacts,
)
from ...engine.text import make_printable
from ...engine.units import format_bytes
from ..annotations import MOST_SHOWN, Annotation, Level
from ..inspect.moment import describe_changes, describe_levels
from ..text import show_bytes, wrap

_WHEN = {"peak": "when most was allocated", "end": "when the snapshots were made"}


def describe_snapshot_difference(difference: SnapshotDifference, width: int) -> str:
    lines = [
        line
        for run, facts in (("A", difference.a), ("B", difference.b))
        for line in _describe_file(run, facts, width)
    ]
    lines += ["", *wrap(make_printable(difference.verdict), width)]
    for device in difference.devices:
        for moment in _list_different(device):
            lines += ["", cut_words(f"device {device.device}, {_WHEN[moment.when]}", width)]
            lines += describe_levels((moment.a, moment.b), width, ("", "A", "B", "B - A"))
            if not any(changes.rows for changes in moment.changes):
                lines += ["", "lines, modules and kinds of allocations: no difference"]
                continue
            for changes in moment.changes:
                lines += describe_changes(changes, width, "B - A, A, B", absent=("new", "gone"))
    lines.append("")
    lines += [
        line for sentence in _describe_rest(difference) for line in wrap(make_printable(sentence), width)
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _list_different(device: ComparedDevice) -> tuple[ComparedMoment, ...]:
    """Return the moments to describe: one, where both snapshots were made at their peaks."""
    if device.peak is not None and all(
        getattr(device.peak, run).event == getattr(device.end, run).event for run in "ab"
    ):
        return (device.peak,)
    return device.moments


def _describe_file(run: str, facts: SnapshotFacts, width: int) -> list[str]:
    made = ", simulated device: values are modelled, not measured" if facts.is_simulated else ""
    history = count(facts.events, "event") if facts.events else "no history"
    return wrap(f"{run}  {make_printable(facts.file)}: memory snapshot, {history}{made}", width)


def _describe_rest(difference: SnapshotDifference) -> Iterator[str]:
    for device in difference.devices:
        if device.peak is None:
            yield f"device {device.device}: only the ends are compared, as one has no history"
        if device.ooms_a or device.ooms_b:
            ooms = ("unknown" if it is None else f"{it:,}" for it in (device.ooms_a, device.ooms_b))
            yield "device {}: out-of-memory errors: {} in A, {} in B".format(device.device, *ooms)
    for run, devices in (("A", difference.only_in_a), ("B", difference.only_in_b)):
        if devices:
            yield f"only in {run}, and not compared: device {', '.join(map(str, devices))}"
    for run, facts in (("A", difference.a), ("B", difference.b)):
        yield from (f"{run}: {note}" for note in facts.notes)


def annotate_snapshot_difference(difference: SnapshotDifference, *, is_crossed: bool) -> Iterator[Annotation]:
    """Yield the verdict, then each line that holds more at the peak, or at the end without a history.

    Args:
        is_crossed: Whether they differ by more than was allowed: the verdict and what grew are errors.
    """
    level: Level = "error" if is_crossed else "warning"
    grown = [
        (device, row, row.change_bytes)
        for device in difference.devices
        for row in device.moments[0].changes[0].rows
        if row.change_bytes is not None and row.change_bytes > 0 and device.moments[0].difference_bytes > 0
    ]
    failed = [device for device in difference.devices if device.has_failed_in_b_only]
    is_shown = is_crossed or grown or failed
    yield Annotation(
        level if is_shown else "notice",
        f"{difference.b.file} against {difference.a.file}",
        difference.verdict,
    )
    for device, row, change_bytes in grown[: MOST_SHOWN - 1]:
        yield Annotation(
            level,
            f"device {device.device}: grew by {format_bytes(change_bytes)}",
            f"{row.name}: {show_bytes(row.first_bytes)} in {difference.a.file}, "
            f"{show_bytes(row.second_bytes)} in {difference.b.file}, {_WHEN[device.moments[0].when]}",
            file=None if row.frame is None else row.frame.filename,
            line=None if row.frame is None else row.frame.line,
        )
