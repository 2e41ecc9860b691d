"""What files of other phase profilers tell, as plain text."""

from collections.abc import Iterator

from ...engine.model.phase_memory import UNKNOWN, PhaseFile, PhaseRecord
from ...engine.text import make_printable
from ...engine.units import format_age
from ..text_table import count, format_rows, wrap
from .table import format_phases, show_mib
from .text import describe_phases

_FORMATS = {
    "phase profiler log": "output of the phase profiler of Opacus's examples, or in its words",
    "FSDP profiler": "result of the FSDP profiler of Opacus's examples",
    "single-GPU profiler": "result of the single-GPU profiler of Opacus's examples",
    "profiler summary": "summary of a profiler of Opacus's examples",
}


def describe_phase_file(file: PhaseFile, width: int) -> str:
    """Return the text.

    Args:
        file: What was read.
        width: Cells of a line.
    """
    return "\n".join(_describe(file, width)) + "\n"


def _describe(file: PhaseFile, width: int) -> Iterator[str]:
    blocks = [describe_phases(runs, width).splitlines() for runs in file.trainings]
    if len(file.records) > 1:
        blocks.append(list(_compare(file.records, width)))
    # A table of several rows says all of those that have no phases.
    blocks += [
        list(_describe_record(record, width))
        for record in file.records
        if record.phases or len(file.records) == 1
    ]
    blocks.append([line for note in file.notes for line in wrap(make_printable(note), width)])
    for number, block in enumerate(filter(None, blocks)):
        yield from ("", *block) if number else block


def _compare(records: tuple[PhaseRecord, ...], width: int) -> Iterator[str]:
    """Yield one row a run: what it was, its peak, and the sums by phase as far as they fit."""
    stages = list(dict.fromkeys(name for record in records for name in record.breakdown))
    rows = [["run", "length", "batch", "at once", "LoRA", "peak MiB", "time", *map(make_printable, stages)]]
    for number, record in enumerate(records, 1):
        rows.append(
            [
                str(number),
                *map(_show, (record.seq_length, record.batch_size, record.physical_batch_size)),
                _show_lora(record),
                show_mib(record.peak.allocated_bytes),
                "—" if record.duration_s is None else format_age(record.duration_s),
                *(show_mib(record.breakdown.get(stage)) for stage in stages),
            ]
        )
    sums = "; the profiler's own sums by phase, in MiB" if stages else ""
    yield from wrap(f"{count(len(records), 'run')}: {_FORMATS[records[0].format]}{sums}", width)
    yield from format_rows(rows, "r" * len(rows[0]), width)


def _describe_record(record: PhaseRecord, width: int) -> Iterator[str]:
    yield from wrap(_describe_end(record), width)
    yield from wrap(_describe_run(record), width)
    steps = {each.step for each in record.phases if each.step is not None}
    if any({each.before, each.after, each.peak} != {UNKNOWN} for each in record.phases):
        yield ""
        if len(steps) > 1:
            yield f"the last of {len(steps)} steps"
        yield from format_phases(record.phases, width)
    elif record.phases:
        names = ", ".join(make_printable(each.phase) for each in record.phases)
        yield from wrap(f"without figures, as on the CPU: {names}", width)
    if record.breakdown:
        yield ""
        rows = [[make_printable(name), show_mib(size)] for name, size in record.breakdown.items()]
        yield from format_rows([["the profiler's own sums", "MiB"], *rows], "lr", width)
    if record.losses:
        losses = ", ".join("—" if loss is None else f"{loss:.4f}" for loss in record.losses)
        yield from ("", *wrap(f"loss by step: {losses}", width))


def _describe_end(record: PhaseRecord) -> str:
    simulated = "simulated: " if record.is_simulated else ""
    at = next(
        (each for each in record.phases if each.peak.allocated_bytes == record.peak.allocated_bytes), None
    )
    where = "" if at is None else f", in {make_printable(at.phase)}"
    where += "" if at is None or at.step is None else f" of step {at.step}"
    peak = record.peak.allocated_bytes
    text = (
        f"{simulated}Peak: {show_mib(peak)} MiB allocated{where}." if peak is not None else "No peak is told."
    )
    if record.end == "out_of_memory":
        asked = (
            "" if record.requested_bytes is None else f": {show_mib(record.requested_bytes)} MiB asked for"
        )
        text = f"Out of memory in {make_printable(record.failed_phase or 'an unknown phase')}{asked}. {text}"
    return text


def _describe_run(record: PhaseRecord) -> str:
    facts = [_FORMATS[record.format]]
    if record.device is not None:
        facts.append(f"on {make_printable(record.device)}")
    if record.model_size is not None:
        facts.append(f"model {make_printable(record.model_size)}")
    if record.batch_size is not None or record.seq_length is not None:
        facts.append(f"batch {_show(record.batch_size)} x {_show(record.seq_length)} tokens")
    if record.physical_batch_size is not None:
        facts.append(f"{record.physical_batch_size} at once")
    if record.is_lora:
        facts.append(f"LoRA of rank {_show(record.lora_rank)}")
    if record.duration_s is not None:
        facts.append(format_age(record.duration_s))
    return "; ".join(facts)


def _show(value: int | None) -> str:
    return "—" if value is None else f"{value:,}"


def _show_lora(record: PhaseRecord) -> str:
    if record.is_lora is None:
        return "—"
    return _show(record.lora_rank) if record.is_lora else "no"
