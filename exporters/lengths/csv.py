"""A study by length as CSV: one row for each algorithm, length and phase, in bytes."""

import csv
from collections.abc import Iterator
from io import StringIO

from ...analyzers.planning.lengths import PHASES
from ...engine.model.phase_memory import LengthPoint, LengthStudy, PhaseMemory

COLUMNS = (
    "dp_mode",
    "batch_size",
    "seq_length",
    "phase",
    "step",
    "allocated_difference_bytes",
    "reserved_difference_bytes",
    "peak_allocated_bytes",
    "peak_reserved_bytes",
    "end",
    "is_simulated",
)


def encode_study(study: LengthStudy) -> bytes:
    """Return the file: each phase as in the last step that had it; an empty cell is unmeasured.

    A point without any phase has one row, without a phase, that says how it ended.
    """
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for point in study.points:
        writer.writerows(_list_rows(study, point))
    return text.getvalue().encode()


def _list_rows(study: LengthStudy, point: LengthPoint) -> Iterator[tuple[str | int | None, ...]]:
    run = point.run
    end = "not_started" if run is None else run.end
    head = (point.privacy, study.training.batch_size, point.seq_length)
    is_simulated = "" if run is None else str(run.device.kind == "simulated").lower()
    last: dict[str, PhaseMemory] = {} if run is None else {each.phase: each for each in run.phases}
    if run is None or not last:
        yield (*head, None, None, None, None, None, None, end, is_simulated)
        return
    for name in PHASES:
        if name in last:
            phase = last[name]
            yield (
                *head,
                name,
                phase.step,
                phase.allocated_difference_bytes,
                phase.reserved_difference_bytes,
                phase.peak.allocated_bytes,
                phase.peak.reserved_bytes,
                end,
                is_simulated,
            )
