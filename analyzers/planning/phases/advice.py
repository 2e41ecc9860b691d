"""`advise_phases`: which phase to attack, and what each change would make of the highest peak."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from ....engine.files.framework.oom_text import parse_oom_text
from ....engine.model.phase_memory import STEP_PHASES, PhaseMemory, PhaseRun
from .model import PartName, Parts, PeakPart, PhaseAdvice, PhaseChange, find_needed, find_parts

# A peak is the larger of both levels and what comes on top in between: temporary tensors, of which a run by
# phase reports only the sum. Phases that a run did not reach are computed from those that it did.

# If more than this share of the gradients is still held when the forward pass begins, they were not set to
# None.
_KEPT_SHARE = 0.9


class PhaseLevel(msgspec.Struct, frozen=True, kw_only=True):
    """One phase, in the step where it held most."""

    phase: str
    step: int | None
    before_bytes: int
    after_bytes: int
    peak_bytes: int
    # Parts that are held when it begins.
    before: frozenset[PartName]
    after: frozenset[PartName]
    is_predicted: bool = False

    @property
    def fullest(self) -> frozenset[PartName]:
        return self.after if self.after_bytes >= self.before_bytes else self.before

    @property
    def excess_bytes(self) -> int:
        """Temporary bytes on top of both levels."""
        return max(0, self.peak_bytes - max(self.before_bytes, self.after_bytes))


def list_levels(run: PhaseRun, parts: Parts) -> list[PhaseLevel]:
    """Return the phases in their order; those not reached are computed."""
    is_kept = are_gradients_kept(run, parts)
    measured: dict[str, PhaseLevel] = {}
    for phase in run.phases:
        level = _measure(run, phase, parts, is_kept=is_kept)
        if level is not None and (
            phase.phase not in measured or level.peak_bytes > measured[phase.phase].peak_bytes
        ):
            measured[phase.phase] = level
    missing = [name for name in STEP_PHASES if name not in measured]
    if run.end == "out_of_memory" and run.failed_phase in STEP_PHASES:
        missing += [] if run.failed_phase in missing else [run.failed_phase]
    predicted = {name: _predict(name, run, measured, parts, is_kept=is_kept) for name in missing}
    measured |= {name: level for name, level in predicted.items() if level is not None}
    return list(measured.values())


def are_gradients_kept(run: PhaseRun, parts: Parts) -> bool:
    """Return whether the forward pass of a later step begins with the gradients of the one before.

    Needs a run of at least two steps; False for shorter ones.
    """
    gradients = parts.get("gradients")
    state = parts.get("optimizer state")
    later = [each for each in run.phases if each.phase == "Forward" and _is_later(run, each)]
    if gradients is None or not later:
        return False
    begun = later[-1].before.allocated_bytes
    setup_bytes = _find_setup(run)
    if begun is None or setup_bytes is None:
        return False
    held_bytes = begun - setup_bytes - (0 if state is None else state.size_bytes)
    return held_bytes >= _KEPT_SHARE * gradients.size_bytes


def _find_setup(run: PhaseRun) -> int | None:
    """Return what was allocated before the first step."""
    return next((each.after.allocated_bytes for each in reversed(run.phases) if each.step is None), None)


def _is_later(run: PhaseRun, phase: PhaseMemory) -> bool:
    """Return whether a step came before: the optimizer makes its state in the first."""
    return phase.step is not None and (phase.step > 1 or run.training.warmup_steps > 0)


def _measure(run: PhaseRun, phase: PhaseMemory, parts: Parts, *, is_kept: bool) -> PhaseLevel | None:
    before, after, peak = (each.allocated_bytes for each in (phase.before, phase.after, phase.peak))
    has_failed = (run.end, run.failed_phase, run.failed_step) == ("out_of_memory", phase.phase, phase.step)
    if before is None or after is None or peak is None or has_failed:
        return None
    is_later = _is_later(run, phase)
    held_before, held_after = name_parts(
        phase.phase, has_state=is_later, is_kept=is_kept and (is_later or phase.phase == "Zero Gradients")
    )
    return PhaseLevel(
        phase=phase.phase,
        step=phase.step,
        before_bytes=before,
        after_bytes=after,
        peak_bytes=peak,
        before=held_before & parts.keys(),
        after=held_after & parts.keys(),
    )


def name_parts(
    phase: str, *, has_state: bool, is_kept: bool
) -> tuple[frozenset[PartName], frozenset[PartName]]:
    """Return the parts that are held when a phase begins, and when it ends.

    `has_state`: the optimizer's state exists already; `is_kept`: gradients outlive their step.
    """
    model: set[PartName] = {"parameters", "optimizer state"} if has_state else {"parameters"}
    kept: set[PartName] = model | ({"gradients"} if is_kept else set())
    running: set[PartName] = {*kept, "activations"}
    updating: set[PartName] = {*model, "gradients", "per-sample gradients"}
    updated: set[PartName] = {*updating, "optimizer state"}
    sets: dict[str, tuple[set[PartName], set[PartName]]] = {
        "Model Creation": (set(), {"parameters"}),
        "DP Setup": ({"parameters"}, {"parameters"}),
        "Forward": (kept, running),
        "Loss": (running, running),
        "Backward": (running, updating),
        "Optimizer Step": (updating, updated),
        "Zero Gradients": (updated, {*kept, "optimizer state"}),
    }
    before, after = sets.get(phase, (set(), set()))
    return frozenset(before), frozenset(after)


def _predict(
    name: str, run: PhaseRun, measured: dict[str, PhaseLevel], parts: Parts, *, is_kept: bool
) -> PhaseLevel | None:
    """Compute what a phase needs at least: its parts, and on top of them whatever else the run held."""
    start = _find_start(run, measured)
    if start is None:
        return None
    start_bytes, started = start
    other_bytes = start_bytes - add_up(started & parts.keys(), parts)
    has_state = "optimizer state" in started or (run.failed_step or 1) > 1
    before, after = name_parts(name, has_state=has_state, is_kept=is_kept)
    before_bytes = other_bytes + add_up(before & parts.keys(), parts)
    after_bytes = other_bytes + add_up(after & parts.keys(), parts)
    peak_bytes = max(before_bytes, after_bytes)
    if name == run.failed_phase:
        peak_bytes = max(peak_bytes, find_needed(run) or 0)
    return PhaseLevel(
        phase=name,
        step=run.failed_step,
        before_bytes=before_bytes,
        after_bytes=after_bytes,
        peak_bytes=peak_bytes,
        before=before & parts.keys(),
        after=after & parts.keys(),
        is_predicted=True,
    )


def _find_start(run: PhaseRun, measured: dict[str, PhaseLevel]) -> tuple[int, frozenset[PartName]] | None:
    """Return what is held when a step begins, and which parts are in it."""
    forward = measured.get("Forward")
    if forward is not None:
        return forward.before_bytes, forward.before
    setup_bytes = _find_setup(run)
    return None if setup_bytes is None else (setup_bytes, frozenset({"parameters"}))


def add_up(names: Collection[PartName], parts: Parts) -> int:
    return sum(parts[name].size_bytes for name in names)


# Sources: ghost clipping keeps no per-sample gradients, holds activations and gradients together at the end
# of its first backward pass, and goes backward twice (Lee and Kifer 2021; Opacus, fast gradient clipping).
# Virtual steps add up gradients over smaller batches, which are kept meanwhile (Opacus, BatchMemoryManager).
# Checkpointing keeps the inputs of blocks and recomputes one block at a time (Chen et al. 2016).
_RUNNING = ("Forward", "Loss", "Backward")
# Bytes of one element of an activation.
_BYTES = {"fp32": 4, "amp": 2, "bf16": 2}
_LEAST_LENGTH = 16


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    flags: tuple[str, ...]
    # The part that it mainly changes.
    part: PartName
    # What is left of each part, as a share; 1 where it is not named.
    shares: Mapping[PartName, float] = {}
    cost: str
    # What comes on top in a phase, from its beginning to its end.
    added_bytes: Mapping[str, int] = {}
    # What the backward pass recomputes at once; at least this much comes on top of its parts.
    recomputed_bytes: int = 0
    # Parts that are no longer held while the model runs forward.
    dropped: frozenset[PartName] = frozenset()
    # Phases in which temporary tensors shrink as activations do, where those are what it holds most of.
    shrunk: frozenset[str] = frozenset()
    # Parts that are held together at some time of the backward pass, and were not before.
    overlap: frozenset[PartName] = frozenset()
    # Whether the sizes that it depends on are known.
    is_sized: bool = True


def list_effects(run: PhaseRun, parts: Parts) -> Iterator[Effect]:
    """Yield the changes that this training leaves room for."""
    yield from (effect for effect in _list(run, parts) if effect.part in parts)


def _list(run: PhaseRun, parts: Parts) -> Iterator[Effect]:
    training = run.training
    if training.privacy in {"hooks", "functorch"} and "per-sample gradients" in parts:
        yield Effect(
            name="ghost clipping",
            flags=("--dp-mode", "ghost"),
            part="per-sample gradients",
            shares={"per-sample gradients": 0.0},
            cost="a second backward pass",
            overlap=frozenset({"gradients"}),
        )
    for share in _halve(training.batch_size, 1):
        yield _shrink_batch(run, parts, share)
    if training.privacy == "none" and not training.is_checkpointed and "activations" in parts:
        yield _checkpoint(run, parts)
    if training.precision == "fp32" and parts:
        yield _halve_precision(parts)
    if training.optimizer != "sgd" and "optimizer state" in parts:
        yield Effect(
            name="SGD without momentum",
            flags=("--optimizer", "sgd"),
            part="optimizer state",
            shares={"optimizer state": 0.0},
            cost="another optimizer, with another learning rate",
        )
    if are_gradients_kept(run, parts):
        yield Effect(
            name="gradients set to None between steps",
            flags=(),
            part="gradients",
            dropped=frozenset({"gradients"}),
            cost="nothing: zero_grad(set_to_none=True), which PyTorch does by itself and Opacus does not",
        )
    if training.strategy == "ddp" and training.privacy == "none" and run.world_size > 1:
        yield _shard(run, parts)
    for length in _halve(training.seq_length, _LEAST_LENGTH):
        yield _shorten(run, length)


def apply_effect(effect: Effect, run: PhaseRun, parts: Parts) -> dict[str, int]:
    """Return the peak of each phase with a change.

    What came on top of the parts stays as it was, unless it was of activations and those become smaller.
    """
    return {level.phase: _apply(effect, level, parts) for level in list_levels(run, parts)}


def _apply(effect: Effect, level: PhaseLevel, parts: Parts) -> int:
    ends = [level.before_bytes - _count_lost(effect, level.before, parts)]
    ends.append(level.after_bytes - _count_lost(effect, level.after, parts))
    if level.phase in _RUNNING:
        ends[0] -= add_up(effect.dropped & level.before, parts)
    if level.phase in _RUNNING[:2]:
        ends[1] -= add_up(effect.dropped & level.after, parts)
    if level.phase == "Backward":
        ends.append(ends[0] + add_up((effect.overlap & parts.keys()) - level.before, parts))
    share = 1.0
    if level.phase in effect.shrunk and (
        level.phase != "Backward" or level.after_bytes <= level.before_bytes
    ):
        share = effect.shares.get("activations", 1.0)
    excess_bytes = round(share * level.excess_bytes)
    if level.phase == "Backward":
        excess_bytes = max(excess_bytes, effect.recomputed_bytes)
    return max(0, *ends) + excess_bytes + effect.added_bytes.get(level.phase, 0)


def _count_lost(effect: Effect, held: frozenset[PartName], parts: Parts) -> int:
    return sum(
        round((1 - share) * parts[name].size_bytes)
        for name, share in effect.shares.items()
        if name in held and name in parts
    )


def _halve(value: int, least: int) -> Iterator[int]:
    """Yield halves of halves, rounded down, down to the least."""
    while value // 2 >= least:
        value //= 2
        yield value


def _shrink_batch(run: PhaseRun, parts: Parts, batch_size: int) -> Effect:
    training = run.training
    share = batch_size / training.batch_size
    kept = parts["gradients"].size_bytes if "gradients" in parts else 0
    # Opacus keeps the sum in addition to the gradients of the current batch; PyTorch adds to the gradients in
    # place.
    phases = _RUNNING if training.privacy != "none" else _RUNNING[:2]
    part: PartName = "per-sample gradients" if "per-sample gradients" in parts else "activations"
    passes = -(-training.batch_size // batch_size)
    return Effect(
        name=f"virtual steps of {batch_size} at a time",
        flags=("--batch-size", str(batch_size)),
        part=part,
        shares={"per-sample gradients": share, "activations": share},
        shrunk=frozenset(_RUNNING),
        cost=f"{passes} smaller passes for each step of {training.batch_size}; the sum of gradients is kept",
        added_bytes=dict.fromkeys(phases, kept),
    )


def _shorten(run: PhaseRun, length: int) -> Effect:
    return Effect(
        name=f"sequences of {length} tokens",
        flags=("--seq", str(length)),
        part="activations",
        shares={"activations": length / run.training.seq_length},
        # Gradients by sample are as large as before, whatever the length.
        shrunk=frozenset(_RUNNING if run.training.privacy == "none" else _RUNNING[:2]),
        cost="the model sees less context",
    )


def _halve_precision(parts: Parts) -> Effect:
    names: tuple[PartName, ...] = (
        "parameters",
        "gradients",
        "per-sample gradients",
        "optimizer state",
        "activations",
    )
    largest = max(parts.values(), key=lambda part: part.size_bytes)
    return Effect(
        name="bf16 for weights and arithmetic",
        flags=("--precision", "bf16"),
        part=largest.name,
        shares={name: 0.5 for name in names if name in parts},
        cost="updates are rounded to 8 bits of mantissa",
    )


def _shard(run: PhaseRun, parts: Parts) -> Effect:
    share = 1 / run.world_size
    layers = run.model.get("num_layers")
    gathered = round(parts["parameters"].size_bytes / layers) if layers else 0
    return Effect(
        name=f"shards on {run.world_size} ranks (FSDP2)",
        flags=("--strategy", "fsdp2"),
        part="parameters",
        shares=dict.fromkeys(("parameters", "gradients", "optimizer state"), share),
        cost="weights are gathered in each pass",
        added_bytes=dict.fromkeys(_RUNNING, gathered),
        is_sized=bool(layers),
    )


def _checkpoint(run: PhaseRun, parts: Parts) -> Effect:
    kept, block = _size_checkpoints(run, parts["activations"].size_bytes)
    share = 1.0 if kept is None else min(1.0, kept / parts["activations"].size_bytes)
    return Effect(
        name="checkpointing of each block",
        flags=("--checkpoint",),
        part="activations",
        shares={"activations": share},
        cost="each block goes forward twice, about a third more arithmetic",
        recomputed_bytes=block,
        is_sized=kept is not None,
    )


def _size_checkpoints(run: PhaseRun, activation_bytes: int) -> tuple[int | None, int]:
    """Return what checkpointing keeps and what one block takes while it is recomputed.

    Kept are the inputs of the blocks, and what is outside blocks: the final norm's input and output, and the
    logarithms of the loss. None where the sizes of the model are not known.
    """
    sizes = run.model
    training = run.training
    if not {"num_layers", "hidden_size", "vocab_size"} <= sizes.keys():
        return None, 0
    tokens = training.batch_size * training.seq_length
    layers = sizes["num_layers"]
    hidden_bytes = tokens * sizes["hidden_size"] * _BYTES[training.precision]
    logarithms = tokens * sizes["vocab_size"] * (2 if training.precision == "bf16" else 4)
    outside = 2 * hidden_bytes + logarithms
    blocks = max(0, activation_bytes - outside)
    return min(activation_bytes, layers * hidden_bytes + outside), round(blocks / layers)


# A change that saves less than this share of the peak is not advised.
LEAST_SHARE = 0.01
# Share of what the device had for this run: an estimate below it fits, one above all of it does not.
FIT_SHARE = 0.95


def advise_phases(runs: Sequence[PhaseRun]) -> PhaseAdvice | None:
    """Advise on the rank whose peak is highest; None where nothing was measured, or on the CPU.

    On the CPU freed tensors stay resident, so that levels say nothing about parts.
    """
    measured = [run for run in runs if run.device.kind != "cpu"]
    advised = [advice for run in measured if (advice := _advise(run)) is not None]
    return max(
        advised, key=lambda advice: (advice.missing_bytes is not None, advice.peak_bytes), default=None
    )


def _advise(run: PhaseRun) -> PhaseAdvice | None:
    parts = find_parts(run)
    levels = sorted(list_levels(run, parts), key=lambda level: -level.peak_bytes)
    if not levels:
        return None
    # The phase in which memory ran out, else the one with the highest peak.
    failed = run.failed_phase if run.end == "out_of_memory" else None
    attacked = next((level for level in levels if level.phase == failed), levels[0])
    rest = [level for level in levels if level is not attacked]
    needed = find_needed(run)
    room = _find_room(run)
    missing = None if needed is None or room is None else max(0, attacked.peak_bytes - room)
    # The failed allocation shows that not all of the device is available.
    limit = room if needed is None or room is None else min(needed, room)
    is_open = failed is not None and not _has_activations(run)
    return PhaseAdvice(
        rank=run.rank,
        phase=attacked.phase,
        step=attacked.step,
        peak_bytes=attacked.peak_bytes,
        is_predicted=attacked.is_predicted,
        parts=tuple(_list_parts(attacked, parts)),
        next_phase=rest[0].phase if rest else None,
        next_peak_bytes=rest[0].peak_bytes if rest else None,
        missing_bytes=missing,
        stranded_bytes=_find_stranded(run) if missing == 0 else None,
        is_open=is_open,
        changes=tuple(_list_changes(run, parts, levels[0].peak_bytes, limit, is_open=is_open)),
    )


def _has_activations(run: PhaseRun) -> bool:
    """Return whether a forward pass and its loss came to their end, or memory ran out after them."""
    if run.failed_phase not in ("Model Creation", "DP Setup", "Forward", "Loss"):
        return True
    return any(each.phase == "Loss" and each.step != run.failed_step for each in run.phases)


def _find_room(run: PhaseRun) -> int | None:
    """Return what the device had for this run where memory ran out: what it held, and what was free."""
    if run.end != "out_of_memory":
        return None
    said = parse_oom_text(run.error or "")
    if said is not None and said.reserved_bytes is not None and said.free_bytes is not None:
        return said.reserved_bytes + said.free_bytes
    reserved = None if run.held is None else run.held.reserved_bytes
    return reserved if reserved is None or said is None else reserved + (said.free_bytes or 0)


def _find_stranded(run: PhaseRun) -> int | None:
    """Return what was reserved and not allocated when memory ran out."""
    said = parse_oom_text(run.error or "")
    if said is not None and said.reserved_bytes is not None and said.allocated_bytes is not None:
        return said.reserved_bytes - said.allocated_bytes
    return None


def _list_parts(level: PhaseLevel, parts: Parts) -> Iterable[PeakPart]:
    named = [part for name, part in parts.items() if name in level.fullest]
    yield from sorted(named, key=lambda part: -part.size_bytes)
    rest = level.peak_bytes - add_up(level.fullest, parts)
    if rest > 0:
        yield PeakPart(name="everything else", size_bytes=rest, basis="remainder")


def _list_changes(
    run: PhaseRun, parts: Parts, peak_bytes: int, room: int | None, *, is_open: bool
) -> list[PhaseChange]:
    found: dict[str, PhaseChange] = {}
    for effect in list_effects(run, parts):
        change = _judge(effect, run, parts, peak_bytes, room)
        if is_open and change.does_fit:
            change = msgspec.structs.replace(change, does_fit=None)
        # For each kind keep the mildest change that fits, else the strongest; without a limit, the half.
        kind = effect.flags[0] if effect.flags else effect.name
        held = found.get(kind)
        if held is None or (room is not None and held.does_fit is not True):
            found[kind] = change
    return sorted(found.values(), key=lambda change: -(change.saved_bytes or 0))


def _judge(effect: Effect, run: PhaseRun, parts: Parts, peak_bytes: int, room: int | None) -> PhaseChange:
    part = parts[effect.part]
    peaks = apply_effect(effect, run, parts) if effect.is_sized else {}
    phase = max(peaks, key=lambda name: peaks[name], default=None)
    changed = None if phase is None else peaks[phase]
    saved = None if changed is None else max(0, peak_bytes - changed)
    share = effect.shares.get(effect.part, 1.0) if effect.shares else 0.0
    does_fit = None
    if changed is not None and room is not None:
        # Between the two an estimate is too close to say.
        does_fit = True if changed <= FIT_SHARE * room else False if changed > room else None
    return PhaseChange(
        name=effect.name,
        flags=effect.flags,
        part=effect.part,
        part_saved_bytes=round((1 - share) * part.size_bytes) if effect.is_sized else None,
        basis=part.basis,
        cost=effect.cost,
        peak_bytes=changed,
        peak_phase=phase,
        saved_bytes=saved if saved is None or saved >= LEAST_SHARE * peak_bytes else 0,
        does_fit=does_fit,
    )
