"""The memory of every pipeline stage of a training run, from sizes alone."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from ....engine.errors import UsageError
from .activations import STATISTIC_BYTES, RunFigures, count_tokens
from .shape import (
    ModelShape,
    ParallelLayout,
    TrainingSetup,
    check_layout,
    check_setup,
    check_shape,
    count_in_flight,
    split_layers,
)
from .weights import (
    StateBytes,
    WeightTensor,
    count_elements,
    count_retained,
    count_shared_buffers,
    count_trained,
    count_workspaces,
    list_outside_weights,
    sum_states,
)

# What one rank holds, part by part and moment by moment.


class MemoryPart(msgspec.Struct, frozen=True, gc=False):
    """One part of a rank's memory."""

    group: str
    """`states`, `activations`, `loss`, `communication`, `libraries` or `rounding`."""
    name: str
    size_bytes: int


class Moment(msgspec.Struct, frozen=True):
    # `between steps`, `backward`, `loss`, or `reduction`: of a layer's gradients to their shards.
    name: str
    parts: tuple[MemoryPart, ...]

    @property
    def total_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)

    def sum_group(self, group: str) -> int:
        return sum(part.size_bytes for part in self.parts if part.group == group)


class RankMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of any rank of one pipeline stage: all hold the same."""

    # Pipeline rank, from 0.
    stage: int
    # Layers that it holds, from 0.
    layers: tuple[int, ...]
    # Parameters on one rank, sharding over data ranks aside.
    parameters: int
    # Most pieces of forward work held at once: a micro-batch in one piece of the rank's layers.
    in_flight: int
    moments: tuple[Moment, ...]

    @property
    def allocated_bytes(self) -> int:
        """What stays allocated between steps."""
        return self.moments[0].total_bytes

    @property
    def peak(self) -> Moment:
        """The moment at which most is allocated; the first of equals."""
        return max(self.moments, key=lambda moment: moment.total_bytes)

    @property
    def peak_bytes(self) -> int:
        return self.peak.total_bytes

    @property
    def peak_moment(self) -> str:
        return self.peak.name


def make_parts(group: str, sizes: dict[str, int]) -> list[MemoryPart]:
    """Make parts of one group, leaving out those of no bytes."""
    return [MemoryPart(group, name, size) for name, size in sizes.items() if size]


def estimate_stages(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup
) -> tuple[RankMemory, ...]:
    """Estimate the memory of a rank of each pipeline stage.

    Raises:
        UsageError: Impossible degrees, sizes or numbers; one line says which and why.
    """
    check_all(shape, layout, setup)
    run = RunFigures(shape, layout, setup)
    pieces = split_layers(shape.layers, layout)
    return tuple(_Stage(run, stage, pieces[stage]).estimate() for stage in range(layout.pipeline))


def estimate_stage(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, stage: int) -> RankMemory:
    """Estimate the memory of a rank of one pipeline stage, from 0; -1 is the last.

    Raises:
        UsageError: Impossible degrees, sizes or numbers; one line says which and why.
    """
    check_all(shape, layout, setup)
    pieces = split_layers(shape.layers, layout)[stage]
    return _Stage(RunFigures(shape, layout, setup), stage % layout.pipeline, pieces).estimate()


def estimate_pieces(run: RunFigures, stage: int, pieces: Sequence[range]) -> RankMemory:
    """Estimate the memory of a rank of one pipeline stage, from 0, that holds some runs of layers.

    For searches that ask thousands of times: nothing is checked, and `run` remembers what its layers hold.
    """
    return _Stage(run, stage, pieces).estimate()


def check_all(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> None:
    check_shape(shape)
    check_setup(setup)
    check_layout(shape, layout, setup.seq_length)
    if 0 < shape.learned_positions < setup.seq_length:
        raise UsageError(
            f"a sequence has {setup.seq_length} tokens, but the model learns {shape.learned_positions} "
            f"positions; choose a sequence of at most {shape.learned_positions} tokens"
        )


class _Stage:
    """One pipeline rank, and what its moments have in common."""

    def __init__(self, run: RunFigures, stage: int, pieces: Sequence[range]) -> None:
        self.run = run
        self.stage = stage
        self.pieces = pieces
        self.shape = run.shape
        self.layout = run.layout
        self.setup = run.setup
        self.layers = [layer for piece in pieces for layer in piece]
        self.is_first = stage == 0
        self.is_last = stage == run.layout.pipeline - 1
        self.kinds = [
            (run.find_figures(layer), count) for layer, count in run.count_kinds(self.layers).items()
        ]
        self.outside = list_outside_weights(
            self.shape, self.layout, is_first=self.is_first, is_last=self.is_last
        )
        inside = sum(figures.parameters * count for figures, count in self.kinds)
        self.parameters = inside + count_elements(self.outside)
        self.in_flight = count_in_flight(self.layout, self.setup, stage)

    def estimate(self) -> RankMemory:
        return RankMemory(
            stage=self.stage,
            layers=tuple(self.layers),
            parameters=self.parameters,
            in_flight=self.in_flight,
            moments=tuple(self._list_moments()),
        )

    def _list_moments(self) -> Iterator[Moment]:
        outside = count_trained(self.outside, [], self.layout, self.setup)
        states = _name_states(
            sum_states([*((figures.states, count) for figures, count in self.kinds), (outside, 1)])
        )
        libraries = self._list_libraries()
        largest = max((figures.parameters for figures, _ in self.kinds), default=0)
        weights = count_gathered(self.outside, largest, self.parameters, self.setup)
        gathered = make_parts("communication", {"gathered weights": weights})
        kept = gathered if self.setup.keeps_gathered_weights else []
        routed = self._count_routed()
        left = count_left_by_experts(self.shape, self.layout, self.setup, routed)
        retained = self._list_retained(len(self.pieces), is_first_between_steps=self.is_first)
        rest = [*states, *libraries, *kept, *retained]
        rest += make_parts("activations", {"left by recomputed experts": sum(left)})
        yield Moment("between steps", tuple(rest))
        # Copies of gradients come with the optimizer's step, and are gone when the next step begins.
        common = [part for part in states if part.name != "gradient copies"]
        waiting = {"whole gradients of the stage": count_whole_gradients(self.parameters, self.setup)}
        common += [
            *libraries,
            *gathered,
            *make_parts("communication", waiting),
            *self._list_retained(1),
        ]
        held = list_held_activations(self.run, self.pieces, self.in_flight, is_first=self.is_first)
        held["batch"] = count_batch(self.layout, self.setup) if self.is_first or self.is_last else 0
        saved = make_parts("activations", held)
        if routed > 1:
            saved += make_parts(
                "activations", {"left by recomputed experts": left.gradients // routed * (routed - 1)}
            )
        ahead = self._list_predictions() if self.is_last else []
        yield Moment("backward", (*common, *saved, *self._list_backward(), *ahead))
        if self.setup.zero_stage >= 2 and self.layers:
            yield Moment("reduction", (*common, *self._list_reduction(held)))
        if self.is_last:
            yield Moment("loss", (*common, *saved, *self._list_loss(), *ahead))

    def _count_routed(self) -> int:
        """Return the layers of the rank that have experts and are recomputed with them."""
        setup = self.setup
        layers = [
            layer
            for piece in self.pieces
            for layer in (
                piece[: _count_recomputed_layers(setup, len(piece))] if setup.recompute == "full" else piece
            )
        ]
        is_whole = setup.recompute == "selective" and "moe" in setup.recomputed_modules
        if setup.recompute != "full" and not is_whole:
            return 0
        return sum(self.shape.is_expert_layer(layer) for layer in layers)

    def _list_retained(self, pieces: int, *, is_first_between_steps: bool = False) -> list[MemoryPart]:
        retained = count_retained(
            self.shape, self.layout, self.setup, pieces, is_first_between_steps=is_first_between_steps
        )
        return make_parts("communication", {"hidden states of neighbours": retained})

    def _list_reduction(self, held: dict[str, int]) -> list[MemoryPart]:
        """Return what is there when the last layer's gradients are reduced: its activations are gone.

        When its backward pass ends they are there twice, as autograd left them and as they are sent; while
        the next layer's runs, as they are sent. Whichever holds more.
        """
        figures = self.run.find_figures(self.layers[-1])
        left = dict(held)
        if self.setup.recompute != "full":
            left |= {name: held[name] - size for name, size in figures.saved.items()}
        whole = figures.parameters * self.setup.numbers.compute_bytes
        following = self._find_backward() if len(self.layers) > 1 else {}
        if sum(following.values()) > whole:
            left |= following
            whole = 0
        reduced = {"whole gradients of a layer": whole + count_reduction(figures.parameters, self.setup)}
        return [*make_parts("activations", left), *make_parts("communication", reduced)]

    def _list_loss(self) -> list[MemoryPart]:
        shape = self.shape
        layout = self.layout
        setup = self.setup
        head = list_head_activations(shape, layout, setup)
        sizes = {"logits and softmax": count_loss(shape, layout, setup)}
        if setup.is_gpipe:
            earlier = count_logits(shape, layout, setup) * 4 + sum(head.values())
            sizes["losses of other micro-batches"] = (setup.micro_batches - 1) * earlier
        return [*make_parts("activations", head), *make_parts("loss", sizes)]

    def _list_predictions(self) -> list[MemoryPart]:
        """Return what layers of multi-token prediction save: a layer each, and T 2h that enter it."""
        count = self.shape.predicted_tokens
        if not count:
            return []
        joined = 2 * count_checkpoint(self.shape, self.layout, self.setup)
        size = count * (joined + self.run.find_figures(self.shape.layers - 1).saved_bytes)
        return make_parts("activations", {"layers of multi-token prediction": size})

    def _list_backward(self) -> list[MemoryPart]:
        head = sum(tensor.elements for tensor in self.outside if tensor.part == "head")
        reduced = {"whole gradient of the head": count_reduction(head, self.setup)}
        sizes = self._find_backward() if self.layers else {}
        return [*make_parts("activations", sizes), *make_parts("communication", reduced)]

    def _find_backward(self) -> dict[str, int]:
        return {
            "recomputed layers": count_recomputed(self.run, self.pieces[-1]),
            "gradients of activations": self.run.find_figures(self.layers[-1]).backward_bytes,
        }

    def _list_libraries(self) -> list[MemoryPart]:
        size = count_shared_buffers(self.shape, self.layout, self.setup, has_head=self.is_last)
        workspaces = {"workspaces": count_workspaces(self.setup)}
        return [
            *make_parts("communication", {"shared buffers": size}),
            *make_parts("libraries", workspaces),
        ]


def _name_states(states: StateBytes) -> list[MemoryPart]:
    sizes = {name.replace("_", " "): getattr(states, name) for name in states.__struct_fields__}
    rounding = {"rounding to 512 bytes": sizes.pop("rounding")}
    return [*make_parts("states", sizes), *make_parts("rounding", rounding)]


# A unit is a layer; embedding and head are units of their own (torchtitan, models/llama3/parallelize.py;
# Megatron-FSDP). DeepSpeed reduces buckets of 5e8 elements by default (`reduce_bucket_size`), which may be
# more than a layer.

# Layers whose whole weights are there at once: the one that runs, and the next, which is being fetched.
GATHERED_UNITS = 2


def count_gathered(
    outside: Sequence[WeightTensor], largest_layer: int, parameters: int, setup: TrainingSetup
) -> int:
    """Return bytes of whole weights under ZeRO-3: the larger of embedding or head, and two layers.

    torchtitan gathers a pipeline stage once for all its micro-batches (models/llama3/parallelize.py,
    reshard_after_forward). `outside` are tensors that belong to no layer; `parameters` are all of the rank.
    """
    if setup.zero_stage < 3:
        return 0
    if setup.keeps_stage_whole:
        return parameters * setup.numbers.compute_bytes
    tables = (tensor.elements for tensor in outside if tensor.part in ("embedding", "head"))
    return max(max(tables, default=0), GATHERED_UNITS * largest_layer) * setup.numbers.compute_bytes


def count_whole_gradients(parameters: int, setup: TrainingSetup) -> int:
    """Return bytes of whole gradients that wait for the last micro-batch of a pipeline to be reduced.

    (PyTorch, torch/distributed/pipelining/stage.py, backward_maybe_with_nosync; FSDP adds them up in the
    format of the reduction.)
    """
    if setup.zero_stage < 3 or not setup.keeps_stage_whole or setup.adapter_rank:
        return 0
    return parameters * setup.numbers.gradient_bytes


def count_reduction(parameters: int, setup: TrainingSetup) -> int:
    """Return bytes of gradients on their way to their shards: the input of a reduce-scatter.

    It is in the format of gradients, and there until the next unit's begins (PyTorch,
    torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, foreach_reduce). `parameters` are those of one
    unit.
    """
    is_whole = setup.zero_stage >= 2 and not setup.adapter_rank
    return parameters * setup.numbers.gradient_bytes if is_whole else 0


class LeftByExperts(NamedTuple):
    """Bytes that live until the next forward pass of their layers."""

    inputs: int
    gradients: int


def count_left_by_experts(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layers: int
) -> LeftByExperts:
    """Return what recomputed layers with experts leave: the input of their checkpoint, and its gradient.

    The dispatcher keeps the probabilities of its last tokens, and so their graph, which ends at that input
    (Megatron-LM, core/transformer/moe/token_dispatcher.py, `self.probs` and `self.local_probs`). Without
    recomputation that graph ends at the input of the stage.
    """
    if not layers:
        return LeftByExperts(0, 0)
    size = count_tokens(layout, setup) // layout.norm_shards * shape.hidden * setup.numbers.compute_bytes
    return LeftByExperts(layers * size, layers * size)


def list_held_activations(
    run: RunFigures, pieces: Sequence[range], in_flight: int, *, is_first: bool
) -> dict[str, int]:
    """Return the bytes that wait for backward on one pipeline rank, by operation.

    Full recompute keeps the input of every checkpoint, s b h elements (Chen et al., arXiv 1604.06174), split
    over the tensor ranks where norms are, or on demand; layers beyond `recomputed_layers` are kept whole.

    Args:
        in_flight: Pieces of forward work held at once; they fill in the order of the interleaved schedule.
    """
    turns = share_turns(run.layout, run.setup, in_flight, len(pieces))
    checkpoints = 0
    kept = dict[int, int]()
    for layers, times in zip(pieces, turns, strict=True):
        recomputed = _count_recomputed_layers(run.setup, len(layers))
        checkpoints += times * -(-recomputed // run.setup.recompute_unit_layers)
        for layer, count in run.count_kinds(layers[recomputed:]).items():
            kept[layer] = kept.get(layer, 0) + times * count
    held: dict[str, int] = {}
    if checkpoints:
        held["checkpoints"] = checkpoints * count_checkpoint(run.shape, run.layout, run.setup)
    for layer, times in kept.items():
        for name, size in run.find_figures(layer).saved.items():
            held[name] = held.get(name, 0) + times * size
    if is_first:
        for name, size in list_embedding_activations(run.shape, run.layout, run.setup).items():
            held[name] = turns[0] * size
    return held


def share_turns(layout: ParallelLayout, setup: TrainingSetup, in_flight: int, pieces: int) -> list[int]:
    """Return how much of the forward work in flight belongs to each piece of the rank.

    A piece runs a group of micro-batches, then the next piece runs it; no piece runs more than there are.
    """
    most = setup.micro_batches if layout.pipeline > 1 else 1
    group = min(setup.micro_batch_group or layout.pipeline, most)
    rounds, rest = divmod(in_flight, group * pieces)
    shares = [rounds * group + min(group, max(0, rest - piece * group)) for piece in range(pieces)]
    turns = [min(share, most) for share in shares]
    left = in_flight - sum(turns)
    for piece, turn in enumerate(turns):
        more = min(left, most - turn)
        turns[piece] += more
        left -= more
    return turns


def _count_recomputed_layers(setup: TrainingSetup, layers: int) -> int:
    """Return how many of the layers of a piece are recomputed in full: the first ones, or every n-th."""
    if setup.recompute != "full":
        return 0
    if setup.recompute_every > 1:
        return layers // setup.recompute_every
    return layers if setup.recomputed_layers is None else min(setup.recomputed_layers, layers)


def count_checkpoint(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> int:
    """Return the bytes of the input of one checkpoint: s b h / CP elements, whole or split."""
    shards = layout.tensor if setup.is_checkpoint_sharded else layout.norm_shards
    return count_tokens(layout, setup) // shards * shape.hidden * setup.numbers.compute_bytes


def count_recomputed(run: RunFigures, layers: Sequence[int]) -> int:
    """Return the bytes that one checkpoint's layers save while their backward pass runs."""
    recomputed = _count_recomputed_layers(run.setup, len(layers))
    if not recomputed or (run.setup.recompute_every == 1 and recomputed < len(layers)):
        return 0
    unit = layers[-run.setup.recompute_unit_layers :]
    kinds = run.count_kinds(unit)
    return sum(run.find_figures(layer).saved_bytes * count for layer, count in kinds.items())


def list_head_activations(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> dict[str, int]:
    """Return what norm and head of the last stage save: two tensors of T h elements, split as norms are.

    BERT saves three more: output of a projection, of its activation function, and of a norm. Its pooler reads
    one token of each sequence, of a view that keeps all T h elements where they were gathered for it
    (Megatron-LM, core/models/bert/bert_lm_head.py and pooler.py).
    """
    tokens = count_tokens(layout, setup)
    own = tokens // layout.norm_shards
    size = setup.numbers.compute_bytes
    hidden = own * shape.hidden * size
    statistics = own * STATISTIC_BYTES * 2
    saved = {
        "final norm input": hidden,
        "head input": hidden,
        "final norm statistics": statistics,
    }
    if shape.has_masked_head:
        saved["masked head"] = 3 * hidden + statistics
        saved["pooler input"] = tokens * shape.hidden * size if layout.norm_shards > 1 else 0
    return saved


def count_loss(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> int:
    """Return the bytes of logits and loss at their worst moment.

    One of T V / t logits costs 2 bytes, and 4 for its softmax in fp32, which is kept for backward and turned
    there into a gradient of 2 more bytes. Compiled: 4 more, for exponentials in a tensor of their own.
    In place: 2, the gradient replaces the logit. Eager: 12, three tensors in fp32 when PyTorch's own cross
    entropy runs backward: logarithms, their gradient and that of the logits. (Megatron-LM,
    core/tensor_parallel/cross_entropy.py and core/fusions/; Transformer Engine, cross_entropy.)
    """
    logits = count_logits(shape, layout, setup)
    size = setup.numbers.compute_bytes
    plain = size + 4 if size < 4 else 8
    per_logit = {"plain": plain, "compiled": plain + 4, "in_place": size, "eager": 12}[setup.loss]
    kept = 4 if setup.loss != "in_place" else size
    deferred = setup.deferred_gradients * size
    return logits * (per_logit + shape.predicted_tokens * kept + deferred)


def count_logits(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> int:
    # T V / t elements, V padded.
    return count_tokens(layout, setup) * (shape.pad_vocab(layout.tensor) // layout.tensor)


def list_embedding_activations(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup
) -> dict[str, int]:
    """Return what the embedding of the first stage saves: token ids of 8 bytes, and the mask of dropout."""
    tokens = count_tokens(layout, setup)
    dropout = tokens // layout.norm_shards * shape.hidden if setup.has_hidden_dropout else 0
    return {"token ids": 8 * tokens, "embedding dropout": dropout}


def count_batch(layout: ParallelLayout, setup: TrainingSetup) -> int:
    """Return the bytes of the batch on the device: ids, labels and positions of 8 bytes, a loss mask of 4.

    A mask of attention, where the loader makes one, is b s^2 / CP bytes.
    """
    tokens = count_tokens(layout, setup)
    mask = tokens * setup.seq_length if setup.has_attention_mask else 0
    return tokens * (3 * 8 + 4) + mask
