"""Changes of a training that could lower its peak, as what they make of each part. All of it is estimated.

Sources: ghost clipping keeps no per-sample gradients, holds activations and gradients together at the end of
its first backward pass, and goes backward twice (Lee and Kifer 2021; Opacus, fast gradient clipping).
Virtual steps add up gradients over smaller batches, which are kept meanwhile (Opacus, BatchMemoryManager).
Checkpointing keeps the inputs of blocks and computes one block at a time anew (Chen et al. 2016).
"""

from collections.abc import Iterator, Mapping

import msgspec

from ...engine.model.phase_memory import PhaseRun
from .levels import PhaseLevel, are_gradients_kept, list_levels
from .model import PartName
from .parts import Parts

_RUNNING = ("Forward", "Loss", "Backward")
_BYTES = {"fp32": 4, "amp": 2, "bf16": 2}
"""Of an element of an activation."""
_LEAST_LENGTH = 16


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What a change makes of a step."""

    name: str
    flags: tuple[str, ...]
    part: PartName
    """The one that it is about."""
    shares: Mapping[PartName, float] = {}
    """What is left of each part; 1 where it is not named."""
    cost: str
    added_bytes: Mapping[str, int] = {}
    """What comes on top in a phase, from its beginning to its end."""
    recomputed_bytes: int = 0
    """What the backward pass computes anew at once, after what was on top of its parts before."""
    dropped: frozenset[PartName] = frozenset()
    """Parts that are not held any more while the model runs forward."""
    shrunk: frozenset[str] = frozenset()
    """Phases in which temporary tensors shrink as activations do, where those are what it holds most of."""
    overlap: frozenset[PartName] = frozenset()
    """Parts that are held together at some time of the backward pass, and were not before."""
    is_sized: bool = True
    """Whether the sizes that it depends on are known."""


def list_effects(run: PhaseRun, parts: Parts) -> Iterator[Effect]:
    """Yield the changes that this training leaves room for.

    Args:
        run: What is trained, and how.
        parts: Of its steps.
    """
    yield from (effect for effect in _list(run, parts) if effect.part in parts)


def _list(run: PhaseRun, parts: Parts) -> Iterator[Effect]:
    training = run.training
    if training.privacy in {"hooks", "functorch"} and "per-sample gradients" in parts:
        yield _clip_by_norms()
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

    Args:
        effect: The change.
        run: The run as it was.
        parts: Of its steps.
    """
    return {level.phase: _apply(effect, level, parts) for level in list_levels(run, parts)}


def _apply(effect: Effect, level: PhaseLevel, parts: Parts) -> int:
    ends = [level.before_bytes - _count_lost(effect, level.before, parts)]
    ends.append(level.after_bytes - _count_lost(effect, level.after, parts))
    if level.phase in _RUNNING:
        ends[0] -= _sum(effect.dropped & level.before, parts)
    if level.phase in _RUNNING[:2]:
        ends[1] -= _sum(effect.dropped & level.after, parts)
    if level.phase == "Backward":
        ends.append(ends[0] + _sum((effect.overlap & parts.keys()) - level.before, parts))
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


def _sum(names: frozenset[PartName], parts: Parts) -> int:
    return sum(parts[name].size_bytes for name in names)


def _halve(value: int, least: int) -> Iterator[int]:
    """Yield halves of halves, rounded down, down to the least."""
    while value // 2 >= least:
        value //= 2
        yield value


def _clip_by_norms() -> Effect:
    return Effect(
        name="ghost clipping",
        flags=("--dp-mode", "ghost"),
        part="per-sample gradients",
        shares={"per-sample gradients": 0.0},
        cost="a second backward pass",
        overlap=frozenset({"gradients"}),
    )


def _shrink_batch(run: PhaseRun, parts: Parts, batch_size: int) -> Effect:
    training = run.training
    share = batch_size / training.batch_size
    kept = parts["gradients"].size_bytes if "gradients" in parts else 0
    # Opacus keeps the sum beside the gradients of the batch at hand; PyTorch adds to the gradients in place.
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
    """Return what checkpointing keeps and what one block takes while it is computed anew.

    Kept are the inputs of the blocks, and what does not lie in blocks: the final norm's input and output, and
    the logarithms of the loss. None where the sizes of the model are not known.
    """
    sizes, training = run.model, run.training
    if not {"num_layers", "hidden_size", "vocab_size"} <= sizes.keys():
        return None, 0
    tokens, layers = training.batch_size * training.seq_length, sizes["num_layers"]
    hidden_bytes = tokens * sizes["hidden_size"] * _BYTES[training.precision]
    logarithms = tokens * sizes["vocab_size"] * (2 if training.precision == "bf16" else 4)
    outside = 2 * hidden_bytes + logarithms
    blocks = max(0, activation_bytes - outside)
    return min(activation_bytes, layers * hidden_bytes + outside), round(blocks / layers)
