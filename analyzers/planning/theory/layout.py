"""Which rank holds what: degrees of parallelism, stages of the pipeline, and what of them is impossible."""

from itertools import accumulate

import msgspec

from ....engine.errors import UsageError
from .shape import ModelShape


class ParallelLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Degrees of parallelism. World size = tensor x pipeline x context x data."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    expert: int = 1
    """Ranks that the routed experts are spread over."""
    expert_tensor: int | None = None
    """Ranks that share one routed expert; None: as many as `tensor`."""
    is_sequence_parallel: bool = False
    """Whether norms and dropout are split along the sequence over the tensor ranks."""
    virtual_stages: int = 1
    """Pieces of the model on each pipeline rank (interleaved schedule)."""
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    counts_embedding: bool = False
    """Whether the embedding counts as a layer when layers are split."""
    counts_loss: bool = False
    """Whether the head counts as a layer when layers are split."""
    stage_layers: tuple[int, ...] | None = None
    """Layers of each stage in order of the model, where they are chosen one by one."""

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return self.tensor * self.pipeline * self.context * self.data

    @property
    def expert_shards(self) -> int:
        """Return over how many ranks one routed expert is split."""
        return self.tensor if self.expert_tensor is None else self.expert_tensor

    @property
    def expert_data(self) -> int:
        """Return how many copies of each routed expert there are."""
        return max(1, self.world_size // (self.pipeline * self.expert * self.expert_shards))

    @property
    def norm_shards(self) -> int:
        """Return over how many ranks norms and dropout are split."""
        return self.tensor if self.is_sequence_parallel else 1


def check_layout(shape: ModelShape, layout: ParallelLayout, seq_length: int) -> None:
    """Refuse degrees that the model cannot be split by.

    Raises:
        UsageError: Which degree, what it must divide, and which value would do.
    """
    for name in ("tensor", "pipeline", "data", "context", "expert", "virtual_stages"):
        if getattr(layout, name) < 1:
            raise UsageError(f"the {name} degree is {getattr(layout, name)}; expected at least 1")
    tensor = layout.tensor
    _check_divides("TP", tensor, shape.heads, "heads")
    if shape.latent is None and shape.kv_groups >= tensor:
        _check_divides("TP", tensor, shape.kv_groups, "groups of keys and values")
    _check_divides("TP", tensor, shape.ffn, "inner columns of the MLP")
    if layout.context > 1:
        _check_divides("2 x CP", 2 * layout.context, seq_length, "tokens of a sequence")
    if layout.is_sequence_parallel:
        _check_divides("TP x CP", tensor * layout.context, seq_length, "tokens of a sequence")
    _check_experts(shape, layout)
    split_layers(shape.layers, layout)


def _check_experts(shape: ModelShape, layout: ParallelLayout) -> None:
    if shape.experts is None:
        if layout.expert > 1:
            raise UsageError(f"EP is {layout.expert}, and the model has no experts; use --ep 1")
        return
    _check_divides("EP", layout.expert, shape.experts.experts, "experts")
    _check_divides("expert TP", layout.expert_shards, shape.experts.ffn, "inner columns of an expert")
    ranks = layout.world_size // layout.pipeline
    _check_divides("EP x expert TP", layout.expert * layout.expert_shards, ranks, "ranks of a pipeline stage")


def _check_divides(name: str, degree: int, amount: int, what: str) -> None:
    if degree < 1 or amount % degree:
        raise UsageError(
            f"{name} = {degree} does not divide the {amount} {what}; choose a divisor of {amount}"
        )


def split_layers(layers: int, layout: ParallelLayout) -> tuple[tuple[range, ...], ...]:
    """Return, for each pipeline rank, the layers of each of its pieces; layers count from 0.

    Interleaved pieces go round: piece c of rank r is stage c x PP + r of the model (Narayanan et al.,
    arXiv 2104.04473, section 2.2).

    Raises:
        UsageError: The layers cannot be split so.
    """
    sizes = _size_stages(layers, layout)
    if sum(sizes) != layers:
        raise UsageError(f"the stages hold {sum(sizes)} layers, and the model has {layers}; make them add up")
    ends = accumulate(sizes)
    pieces = [range(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    return tuple(tuple(pieces[rank :: layout.pipeline]) for rank in range(layout.pipeline))


def _size_stages(layers: int, layout: ParallelLayout) -> list[int]:
    stages = layout.pipeline * layout.virtual_stages
    if stages > layers + 2:
        raise UsageError(f"PP x pieces = {stages} is more than the {layers} layers; choose fewer stages")
    if layout.stage_layers is not None:
        if len(layout.stage_layers) != stages:
            raise UsageError(
                f"{len(layout.stage_layers)} stages are listed; expected PP x pieces = {stages} of them"
            )
        return list(layout.stage_layers)
    if layout.first_stage_layers is not None or layout.last_stage_layers is not None:
        return _size_uneven_stages(layers, layout)
    counted = layers + layout.counts_embedding + layout.counts_loss
    if counted % stages:
        raise UsageError(
            f"{layers} layers do not divide over PP = {layout.pipeline}"
            + (f" with {layout.virtual_stages} pieces each" if layout.virtual_stages > 1 else "")
            + "; choose a divisor, or the layers of the first and last stage"
        )
    sizes = [counted // stages] * stages
    sizes[0] -= layout.counts_embedding
    sizes[-1] -= layout.counts_loss
    return sizes


def _size_uneven_stages(layers: int, layout: ParallelLayout) -> list[int]:
    """Return stage sizes where the first or last pipeline rank holds its own number of layers."""
    pieces = layout.virtual_stages
    ends = (layout.first_stage_layers, layout.last_stage_layers)
    rest = layers - sum(size for size in ends if size is not None)
    middle = layout.pipeline - sum(size is not None for size in ends)
    per_rank = [ends[0] if ends[0] is not None else 0] if ends[0] is not None else []
    if middle < 0 or rest < 0 or (middle == 0 and rest) or (middle and rest % middle):
        raise UsageError(
            f"{rest} layers remain for {middle} middle stages; choose other sizes of the first and last stage"
        )
    per_rank += [rest // middle] * middle if middle else []
    per_rank += [ends[1]] if ends[1] is not None else []
    if any(size % pieces for size in per_rank):
        raise UsageError(
            f"stages of {per_rank} layers do not divide into {pieces} pieces; choose multiples of {pieces}"
        )
    return [size // pieces for _ in range(pieces) for size in per_rank]
