"""What a file of another phase profiler tells, as one JSON object."""

import msgspec

from ...engine.model.phase_memory import PhaseFile, PhaseRecord

SCHEMA = "vramscope.phase-records/1"


class PhaseRecordReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramscope phases --read FILE --json` prints of such a file."""

    schema: str = SCHEMA
    file: str
    records: tuple[PhaseRecord, ...]
    """One a run, in the order of the file."""
    notes: tuple[str, ...]
    """Sentences about what the figures are and what was left out."""


def report_phase_records(file: PhaseFile) -> PhaseRecordReport:
    """Return the report of a file.

    Args:
        file: What was read.
    """
    return PhaseRecordReport(file=file.file, records=file.records, notes=file.notes)
