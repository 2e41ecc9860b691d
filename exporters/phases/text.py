"""A training by phase as plain text: how it ended, its peak, ranks side by side, phases, advice."""

from collections.abc import Iterator, Sequence
from typing import Literal

from ...analyzers.planning.phases import AdviceTrial, PhaseAdvice, PhaseChange, advise_phases
from ...analyzers.sentence import count, count_cells
from ...engine.model.phase_memory import (
    UNKNOWN,
    MemoryLevels,
    PhaseDevice,
    PhaseFile,
    PhaseMemory,
    PhaseRecord,
    PhaseRun,
    PhaseTraining,
)
from ...engine.text import make_printable
from ...engine.units import MIB, format_age, format_bytes, format_share
from ...engine.unmeasured import most_known
from ..text import format_rows, show_number, wrap

_CLIPPING = {
    "hooks": "DP-SGD with per-sample gradients by hooks",
    "functorch": "DP-SGD with per-sample gradients by torch.func",
    "ghost": "DP-SGD by ghost clipping",
    "none": "without differential privacy",
}
_NO_ADVICE = (
    "No advice on the CPU: resident memory does not shrink when a tensor is freed. --device simulate "
    "follows tensors."
)
OPTIMIZER_WORDS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}
_STRATEGIES = {"ddp": "DDP", "fsdp2": "FSDP2"}


def describe_phases(runs: Sequence[PhaseRun], width: int, trials: Sequence[AdviceTrial] = ()) -> str:
    """Return the text; `runs` are the ranks of one training."""
    if not runs:
        return "nothing was trained\n"
    lines = [*_describe(sorted(runs, key=lambda run: run.rank), width)]
    if trials:
        lines += ["", *describe_trials(trials, width)]
    notes = list(dict.fromkeys(note for run in runs for note in run.notes))
    if notes:
        lines += ["", *(line for note in notes for line in wrap(make_printable(note), width))]
    return "\n".join(lines) + "\n"


def _describe(runs: Sequence[PhaseRun], width: int) -> Iterator[str]:
    fullest = pick_fullest(runs)
    simulated = "Simulated. " if fullest.device.kind == "simulated" else ""
    yield from wrap(f"{simulated}{_describe_ends(runs)} {describe_peak(fullest)}", width)
    yield from wrap(_describe_training(fullest.training, fullest.model, len(runs)), width)
    yield from wrap(_describe_device(fullest.device), width)
    if len(runs) > 1:
        yield from ("", *describe_ranks(runs, width))
    if fullest.phases:
        yield ""
        yield from _describe_table(fullest, width)
    yield from _describe_losses(fullest, width)
    advice = advise_phases(runs)
    if advice is not None:
        yield from ("", *describe_advice(advice, width))
    elif fullest.device.kind == "cpu":
        yield from ("", *wrap(_NO_ADVICE, width))


def _describe_table(run: PhaseRun, width: int) -> Iterator[str]:
    steps = {phase.step for phase in run.phases if phase.step is not None}
    heads = [f"rank {run.rank}, which uses most"] if run.world_size > 1 else []
    heads += [f"the last of {len(steps)} steps"] if len(steps) > 1 else []
    yield from wrap("; ".join(heads), width)
    yield from format_phases(
        run.phases, width, allocated="resident" if run.device.kind == "cpu" else "allocated"
    )


def pick_fullest(runs: Sequence[PhaseRun]) -> PhaseRun:
    """Return the run with the highest peak; one that ran out of memory before all others."""
    return max(runs, key=lambda run: (run.end == "out_of_memory", run.peak.allocated_bytes or 0, -run.rank))


def _describe_ends(runs: Sequence[PhaseRun]) -> str:
    """Return how all ranks ended, or how each did where that differs."""
    if len({describe_end(run) for run in runs}) == 1:
        return describe_end(runs[0])
    return " ".join(f"Rank {run.rank}: {describe_end(run)}" for run in runs)


def describe_end(run: PhaseRun) -> str:
    where = run.failed_phase or "an unknown phase"
    where += "" if run.failed_step is None else f" of step {run.failed_step}"
    if run.end == "out_of_memory":
        asked = "more" if run.requested_bytes is None else f"{show_mib(run.requested_bytes)} MiB"
        return f"Out of memory in {where}: {asked} requested{_describe_held(run.held)}."
    if run.end == "interrupted":
        reason = f" ({make_printable(run.error)})" if run.error else ""
        return f"Interrupted in {where}{reason}: this is what was measured until then."
    if run.end == "failed":
        return f"Failed in {where}: {make_printable(run.error or 'for an unknown reason')}."
    done = len({phase.step for phase in run.phases if phase.step is not None})
    return f"Trained {count(done, 'step')}."


def _describe_held(held: MemoryLevels | None) -> str:
    if held is None or held.allocated_bytes is None:
        return ""
    reserved = "" if held.reserved_bytes is None else f" and {show_mib(held.reserved_bytes)} MiB reserved"
    return f" when {show_mib(held.allocated_bytes)} MiB were allocated{reserved}"


def describe_peak(run: PhaseRun) -> str:
    """Return the highest levels of all phases, and in which they were."""
    whose = f" on rank {run.rank}" if run.world_size > 1 else ""
    allocated = run.peak.allocated_bytes
    reserved = run.peak.reserved_bytes
    at = next((each for each in run.phases if each.peak.allocated_bytes == allocated), None)
    if allocated is None or at is None:
        return f"No phase was measured{whose}."
    what = "resident" if run.device.kind == "cpu" else "allocated"
    head = "Peak" if run.end == "finished" else "Peak of the phases that ended"
    text = f"{head}{whose}: {show_mib(allocated)} MiB {what}, in {_name_place(at)}"
    if reserved is not None:
        of_total = (
            ""
            if not run.device.total_bytes
            else f", {format_share(reserved / run.device.total_bytes, 1)} of the card"
        )
        held = next(each for each in run.phases if each.peak.reserved_bytes == reserved)
        text += f"; {show_mib(reserved)} MiB reserved, first in {_name_place(held)}{of_total}"
    return f"{text}."


def _name_place(phase: PhaseMemory) -> str:
    return phase.phase if phase.step is None else f"{phase.phase} of step {phase.step}"


def _describe_training(training: PhaseTraining, model: dict[str, int], ranks: int) -> str:
    name = training.model_size or training.factory or training.hugging_face or "a model"
    named = (("num_layers", "layers"), ("hidden_size", "hidden"), ("vocab_size", "tokens of vocabulary"))
    sizes = [f"{model[key]:,} {word}" for key, word in named if key in model]
    head = make_printable(name) + (f" ({', '.join(sizes)})" if sizes else "")
    facts = [
        f"batch {training.batch_size} x {training.seq_length} tokens",
        _CLIPPING[training.privacy],
        OPTIMIZER_WORDS[training.optimizer],
        training.precision,
    ]
    facts += ["checkpointed blocks"] if training.is_checkpointed else []
    if training.strategy is not None:
        facts.append(f"{_STRATEGIES[training.strategy]} on {count(ranks, 'rank')}")
    if training.warmup_steps:
        facts.append(f"{count(training.warmup_steps, 'step')} of warm-up left out")
    return f"{head}; {', '.join(facts)}"


def _describe_device(device: PhaseDevice) -> str:
    is_told = device.total_bytes is None or device.kind == "simulated"
    total = "" if is_told else f", {format_bytes(device.total_bytes)}"
    text = f"{make_printable(device.name)}{total}"
    if device.kind == "simulated":
        text += ": all values are simulated, not measured on a GPU"
    if device.is_fake:
        text += "; without storage, no tensor values are computed"
    return f"{text} ({make_printable(device.note)})" if device.note else text


def _describe_losses(run: PhaseRun, width: int) -> Iterator[str]:
    if run.losses:
        losses = ", ".join(show_number(loss, ".4f") for loss in run.losses)
        yield from ("", *wrap(f"loss by step: {losses}", width))


_CELLS = 12
"""Cells of a column: a size in MiB, and the gap to the next."""
_NAME_CELLS = 18


def describe_ranks(runs: Sequence[PhaseRun], width: int) -> Iterator[str]:
    """Yield tables of allocated and of reserved memory, one column a rank, as many as fit."""
    fitting = max(1, (width - _NAME_CELLS) // _CELLS)
    names = list(dict.fromkeys(phase.phase for run in runs for phase in run.phases))
    is_first = True
    for kind in ("allocated", "reserved"):
        if all(get_level(run.peak, kind) is None for run in runs):
            continue
        for begin in range(0, len(runs), fitting):
            if not is_first:
                yield ""
            is_first = False
            yield from _format_ranks(runs[begin : begin + fitting], names, kind, width)


def _format_ranks(
    runs: Sequence[PhaseRun], names: Sequence[str], kind: Literal["allocated", "reserved"], width: int
) -> list[str]:
    rows = [[f"peak {kind}, MiB", *(f"rank {run.rank}" for run in runs)]]
    for name in names:
        peaks = [_find_peak(run, name, kind) for run in runs]
        rows.append([make_printable(name), *map(show_mib, peaks)])
    return format_rows(rows, "l" + "r" * len(runs), width)


def _find_peak(run: PhaseRun, name: str, kind: Literal["allocated", "reserved"]) -> int | None:
    """Return the highest peak of a phase over the steps of a rank."""
    return most_known(get_level(phase.peak, kind) for phase in run.phases if phase.phase == name)


_BASES = {
    "counted": "counted tensor by tensor",
    "measured": "measured, as a difference",
    "computed": "computed from sizes: not reached",
    "remainder": "temporary and unnamed tensors",
}
_LEAST_BYTES = MIB // 200
"""What is shown as 0.00 MiB is not shown."""
_FITS = {True: "would fit", False: "would still not fit", None: "too close to be sure"}


def describe_advice(advice: PhaseAdvice, width: int) -> Iterator[str]:
    """Yield the lines: the phase to reduce, its parts, and the saving of each change."""
    yield from wrap(_describe_attack(advice), width)
    rows = [
        [
            part.name,
            show_mib(part.size_bytes),
            format_share(part.size_bytes / advice.peak_bytes, 1),
            _BASES[part.basis],
        ]
        for part in advice.parts
        if part.size_bytes >= _LEAST_BYTES
    ]
    yield from format_rows([["at its peak", "MiB", "share", ""], *rows] if rows else [], "lrrl", width)
    helping = [change for change in advice.changes if change.saved_bytes]
    others = [change for change in advice.changes if not change.saved_bytes]
    if helping:
        least = ", which the forward pass would have added to" if advice.is_open else ""
        yield from wrap(f"changes that lower the peak, estimated from these parts{least}:", width)
    for change in helping:
        yield from wrap(f"- {_describe_change(change, advice)}", width, "  ")
    if others:
        yield from wrap("changes that do not lower it, or by an unknown amount:", width)
    for change in others:
        yield from wrap(f"- {_describe_other(change, advice)}", width, "  ")


def _describe_attack(advice: PhaseAdvice) -> str:
    step = "" if advice.step is None else f" of step {advice.step}"
    kind = "would need" if advice.is_predicted else "peaks at"
    text = f"Reduce {advice.phase}{step}: it {kind} {show_mib(advice.peak_bytes)} MiB"
    if advice.is_predicted or advice.missing_bytes is not None:
        text += " at least"
    if advice.missing_bytes is not None:
        text += _describe_shortage(advice)
    if advice.next_phase is None or advice.next_peak_bytes is None:
        return f"{text}."
    after = f"{advice.next_phase} with {show_mib(advice.next_peak_bytes)} MiB"
    if advice.next_peak_bytes > advice.peak_bytes:
        return f"{text}. {after[:1].upper()}{after[1:]} is higher still."
    return f"{text}. Next is {after}: savings in {advice.phase} alone lower the peak only to there."


def _describe_shortage(advice: PhaseAdvice) -> str:
    if advice.missing_bytes:
        return f", {show_mib(advice.missing_bytes)} MiB more than the device had available"
    stranded = "" if advice.stranded_bytes is None else f" ({show_mib(advice.stranded_bytes)} MiB)"
    return (
        "; there was room for the request, but in pieces: reserved memory without tensors"
        f"{stranded} could not serve it; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True may help"
    )


def _describe_change(change: PhaseChange, advice: PhaseAdvice) -> str:
    flags = f" ({' '.join(change.flags)})" if change.flags else ""
    where = "" if change.peak_phase == advice.phase else f", then in {change.peak_phase}"
    fits = "" if advice.missing_bytes is None else f"; {_FITS[change.does_fit]}"
    if advice.is_open and change.does_fit is None:
        fits = "; cannot be said whether it would fit"
    return (
        f"{change.name}{flags}: peak {show_mib(change.peak_bytes)} MiB{where}, "
        f"{show_mib(change.saved_bytes)} MiB less{fits}. Costs: {change.cost}."
    )


def _describe_other(change: PhaseChange, advice: PhaseAdvice) -> str:
    flags = f" ({' '.join(change.flags)})" if change.flags else ""
    if change.part_saved_bytes is None or change.peak_bytes is None:
        return f"{change.name}{flags}: saves {change.part}; the amount depends on unknown sizes of the model."
    if change.part_saved_bytes == 0:
        return f"{change.name}{flags}: does not change the {change.part}."
    return (
        f"{change.name}{flags}: {show_mib(change.part_saved_bytes)} MiB of {change.part} would be saved, "
        f"but the peak would stay, in {change.peak_phase}."
    )


def describe_trials(trials: Sequence[AdviceTrial], width: int) -> Iterator[str]:
    """Yield what changes really saved, next to the estimates."""
    rows = [["tried, MiB", "estimated", "peak", "reserved", "saved", ""]]
    for trial in trials:
        sizes = (trial.estimated_peak_bytes, trial.peak_bytes, trial.reserved_peak_bytes, trial.saved_bytes)
        ended = {"finished": "", "out_of_memory": "out of memory", None: "refused"}.get(trial.end, trial.end)
        rows.append([" ".join(trial.flags), *map(show_mib, sizes), ended or ""])
    yield from format_rows(rows, "lrrrrl", width)
    for trial in trials:
        if trial.error is not None:
            yield from wrap(f"{' '.join(trial.flags)}: {make_printable(trial.error)}", width)
    if any("--batch-size" in trial.flags for trial in trials):
        yield from wrap(
            "--batch-size was tried alone: virtual steps need the sum of gradients in addition", width
        )


# Phases as a table: before, after, peak and change of allocated and of reserved memory.

_GAP = "    "
_Kind = Literal["allocated", "reserved"]


def format_phases(
    phases: Sequence[PhaseMemory], width: int, *, allocated: str = "allocated"
) -> Iterator[str]:
    """Yield the lines of the table: of the steps the last one, and where steps differ, least and most.

    Reserved bytes are next to allocated ones if both fit, else below.

    Args:
        allocated: Name of the first columns, if not an allocator's.
    """
    shown = pick_last(phases)
    left = format_rows(_list_rows(shown, phases, "allocated", allocated), "lrrrrr", width)
    if not any(each.after.reserved_bytes is not None or each.peak.reserved_bytes for each in shown):
        yield from left
        return
    right = format_rows(_list_rows(shown, phases, "reserved", "reserved"), "lrrrrr", width)
    rows = _list_rows(shown, phases, "reserved", "reserved")
    rows[0][1] = "reserved before"
    beside = _join(left, format_rows([row[1:5] for row in rows], "rrrr", width))
    if max(map(count_cells, beside)) <= width:
        yield from beside
    else:
        yield from (*left, "", *right)


def show_mib(size_bytes: int | None, *, has_sign: bool = False) -> str:
    """Return bytes as a number of MiB with two decimals, or `—` where unmeasured."""
    return show_number(size_bytes, "+,.2f" if has_sign else ",.2f", per=MIB)


def pick_last(phases: Sequence[PhaseMemory]) -> list[PhaseMemory]:
    """Return each phase as it was in the last step that had it, in the order in which phases first came."""
    last: dict[str, PhaseMemory] = {}
    for phase in phases:
        last[phase.phase] = phase
    return list(last.values())


def _list_rows(
    shown: Sequence[PhaseMemory], phases: Sequence[PhaseMemory], kind: _Kind, name: str
) -> list[list[str]]:
    ranges = {phase.phase: _find_range(phase.phase, phases, kind) for phase in shown}
    is_varied = any(low != high for low, high in ranges.values())
    steps = len({phase.step for phase in phases if phase.step is not None})
    last = max((phase.step or 0 for phase in shown), default=0)
    head = [f"{name}, MiB", "before", "after", "peak", "change"]
    rows = [[*head, f"peak of {count(steps, 'step')}" if is_varied else ""]]
    for phase in shown:
        low, high = ranges[phase.phase]
        label = make_printable(phase.phase)
        label += f" (step {phase.step})" if phase.step not in {None, last} else ""
        varied = f"{show_mib(low)} to {show_mib(high)}" if low != high else ""
        rows.append([label, *_list_figures(phase, kind), varied])
    return rows


def _list_figures(phase: PhaseMemory, kind: _Kind) -> list[str]:
    is_allocated = kind == "allocated"
    change = phase.allocated_difference_bytes if is_allocated else phase.reserved_difference_bytes
    levels = [get_level(each, kind) for each in (phase.before, phase.after, phase.peak)]
    return [*map(show_mib, levels), show_mib(change, has_sign=True)]


def get_level(levels: MemoryLevels, kind: _Kind) -> int | None:
    return levels.allocated_bytes if kind == "allocated" else levels.reserved_bytes


def _find_range(name: str, phases: Sequence[PhaseMemory], kind: _Kind) -> tuple[int | None, int | None]:
    peaks = [
        peak for phase in phases if phase.phase == name and (peak := get_level(phase.peak, kind)) is not None
    ]
    return min(peaks, default=None), max(peaks, default=None)


def _join(left: Sequence[str], right: Sequence[str]) -> list[str]:
    widest = max(map(count_cells, left))
    return [
        f"{line}{' ' * (widest - count_cells(line))}{_GAP}{more.removeprefix('  ')}"
        for line, more in zip(left, right, strict=True)
    ]


# Files of other phase profilers as plain text.

_FORMATS = {
    "phase profiler log": "output of the phase profiler of Opacus's examples, or of the same form",
    "FSDP profiler": "result of the FSDP profiler of Opacus's examples",
    "single-GPU profiler": "result of the single-GPU profiler of Opacus's examples",
    "profiler summary": "summary of a profiler of Opacus's examples",
}


def describe_phase_file(file: PhaseFile, width: int) -> str:
    return "\n".join(_describe_file(file, width)) + "\n"


def _describe_file(file: PhaseFile, width: int) -> Iterator[str]:
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
                *map(show_number, (record.seq_length, record.batch_size, record.physical_batch_size)),
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
        yield from wrap(f"without values, as on the CPU: {names}", width)
    if record.breakdown:
        yield ""
        rows = [[make_printable(name), show_mib(size)] for name, size in record.breakdown.items()]
        yield from format_rows([["the profiler's own sums", "MiB"], *rows], "lr", width)
    if record.losses:
        losses = ", ".join(show_number(loss, ".4f") for loss in record.losses)
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
        f"{simulated}Peak: {show_mib(peak)} MiB allocated{where}."
        if peak is not None
        else "No peak was recorded."
    )
    if record.end == "out_of_memory":
        asked = (
            "" if record.requested_bytes is None else f": {show_mib(record.requested_bytes)} MiB requested"
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
        facts.append(f"batch {show_number(record.batch_size)} x {show_number(record.seq_length)} tokens")
    if record.physical_batch_size is not None:
        facts.append(f"{record.physical_batch_size} at once")
    if record.is_lora:
        facts.append(f"LoRA of rank {show_number(record.lora_rank)}")
    if record.duration_s is not None:
        facts.append(format_age(record.duration_s))
    return "; ".join(facts)


def _show_lora(record: PhaseRecord) -> str:
    if record.is_lora is None:
        return "—"
    return show_number(record.lora_rank) if record.is_lora else "no"
