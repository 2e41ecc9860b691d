"""Plans as the files that training frameworks read: one encoder for each of them."""

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby

import msgspec

from ...analyzers.planning.graph import LayerType, ModelGraph
from ...analyzers.planning.joint import JointConfiguration
from ...analyzers.planning.partition import PartitionResult
from ...analyzers.planning.theory import ParallelLayout, TrainingSetup, split_layers
from ...engine.errors import UsageError

# What a framework needs of a plan: the layers of each stage, the degrees, the batch.


class PipelineSplit(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline: stages in the order of the model, and how each of them is run."""

    stages: tuple[tuple[LayerType, ...], ...]
    """Kinds of the layers of each stage; with an interleaved schedule of each piece."""
    layout: ParallelLayout
    setup: TrainingSetup
    has_degrees: bool
    """Whether data and tensor parallelism were planned; else their degrees are 1."""

    @property
    def blocks(self) -> tuple[int, ...]:
        """Transformer blocks of each stage."""
        return tuple(stage.count("transformer_block") for stage in self.stages)

    @property
    def parts(self) -> tuple[int, ...]:
        """First layer of each stage, and the number of all layers."""
        return tuple(accumulate(map(len, self.stages), initial=0))

    @property
    def global_batch(self) -> int:
        """Sequences of one step."""
        return self.setup.micro_batch_size * self.setup.micro_batches * self.layout.data


def take_partition(
    graph: ModelGraph, result: PartitionResult, micro_batch: int, micro_batches: int
) -> PipelineSplit:
    """Return a partition of a graph as a split; nothing but the pipeline is planned."""
    kinds = {layer.layer_id: layer.layer_type for layer in graph.layers}
    stages = tuple(tuple(kinds[each] for each in stage.layer_ids) for stage in result.partitions)
    return PipelineSplit(
        stages=stages,
        layout=ParallelLayout(pipeline=len(stages)),
        setup=TrainingSetup(
            seq_length=graph.layers[0].seq_length, micro_batch_size=micro_batch, micro_batches=micro_batches
        ),
        has_degrees=False,
    )


def take_configuration(configuration: JointConfiguration) -> PipelineSplit:
    """Return a configuration of a joint plan as a split: embedding first, norm and head last."""
    layout = configuration.layout
    layers = sum(len(stage.layers) for stage in configuration.stages)
    ranks = split_layers(layers, layout)
    pieces = [ranks[rank][piece] for piece in range(layout.virtual_stages) for rank in range(layout.pipeline)]
    block: tuple[LayerType, ...] = ("transformer_block",)
    stages = [block * len(piece) for piece in pieces]
    stages[0] = ("embedding", *stages[0])
    stages[-1] = (*stages[-1], "layer_norm", "output_head")
    return PipelineSplit(stages=tuple(stages), layout=layout, setup=configuration.setup, has_degrees=True)


def check_decoder(split: PipelineSplit, framework: str) -> None:
    """Refuse a model that is no embedding, blocks, norm and head.

    Raises:
        UsageError: The text says what the framework builds.
    """
    kinds = [kind for stage in split.stages for kind in stage]
    expected = ["embedding", *["transformer_block"] * sum(split.blocks), "layer_norm", "output_head"]
    if kinds != expected or not any(split.blocks):
        raise UsageError(
            f"{framework} builds an embedding, transformer blocks, a norm and a head in this order, "
            "and this model is made of other layers"
        )


def list_recomputed(split: PipelineSplit) -> list[bool]:
    """Return for each transformer block, in order, whether its activations are recomputed.

    Megatron-LM's method `block` recomputes the first layers of each piece.
    """
    if split.setup.recompute != "full":
        return [False] * sum(split.blocks)
    most = split.setup.recomputed_layers
    return [most is None or place < most for count in split.blocks for place in range(count)]


def join_words(values: Sequence[object]) -> str:
    """Return values with commas between them."""
    return ",".join(map(str, values))


# The bounds of DeepSpeed's `PipelineModule`: what it keeps in `parts`.
#
# It makes them itself by a `partition_method` and takes no list (deepspeedai/DeepSpeed, issue 2974). Where
# `uniform` makes the same bounds, that is named; else a subclass has to set them, and docs/plan.md has its
# few lines.


def encode_deepspeed(split: PipelineSplit) -> bytes:
    """Return the bounds as JSON: stage i holds the layers from `parts[i]` up to `parts[i + 1]`.

    Layers are counted as the graph has them, for a `PipelineModule` that lists the same.

    Raises:
        UsageError: `PipelineModule` runs one piece on each device, and the plan has several.
    """
    if split.layout.virtual_stages > 1:
        raise UsageError("DeepSpeed gives each device one stage, and the plan gives it several pieces")
    parts = list(split.parts)
    content = {
        "num_stages": len(split.stages),
        "num_layers": parts[-1],
        "parts": parts,
        "partition_method": "uniform" if parts == split_by_count(parts[-1], len(split.stages)) else None,
    }
    return json.dumps(content, indent=2).encode() + b"\n"


def split_by_count(layers: int, stages: int) -> list[int]:
    """Return the bounds that `partition_method="uniform"` makes: the first stages get the rest."""
    share, rest = divmod(layers, stages)
    return [number * share + min(number, rest) for number in range(stages + 1)]


# Strategies of Galvatron: `galvatron_config_*.json` of its release 2.4 and of 3.0.
#
# Both releases list the degrees of every transformer layer, in words with a comma between two. `pp_division`
# counts transformer layers alone: the embedding goes to the first stage, norm and head to the last. 2.4 reads
# `embed_sdp`; 3.0 writes it, and reads `vocab_sdp`: both are given. 3.0 wants `world_size` and has degrees of
# context and expert parallelism besides (galvatron/core/runtime/hybrid_parallel_config.py,
# galvatron/utils/strategy_utils.py).

_DATA_TYPES = {0: "ddp", 1: "zero2", 2: "zero2", 3: "zero3"}
"""By ZeRO stage. There is no ZeRO-1: `zero2` shards what it shards, and gradients too."""


def encode_galvatron_2(split: PipelineSplit) -> bytes:
    """Return the strategy for Galvatron 2.4.

    Raises:
        UsageError: It knows no context or expert parallelism, no interleaved stages, none without a block.
    """
    layout = split.layout
    if layout.context > 1 or layout.expert > 1:
        raise UsageError("Galvatron 2.4 has neither context nor expert parallelism; 3.0 has both")
    return _encode(_describe(split))


def encode_galvatron_3(split: PipelineSplit) -> bytes:
    """Return the strategy for Galvatron 3.0.

    Raises:
        UsageError: It knows no interleaved stages, and none without a transformer block.
    """
    layout = split.layout
    layers = sum(split.blocks)
    shards = layout.expert_shards if layout.expert > 1 else 1
    added = {
        "cp_sizes_enc": join_words([layout.context] * layers),
        "ep_sizes_enc": join_words([layout.expert] * layers),
        "tp_of_ep_sizes_enc": join_words([shards] * layers),
        "vcp": layout.context,
        "world_size": layout.world_size,
    }
    return _encode(_describe(split) | added)


def _describe(split: PipelineSplit) -> dict[str, object]:
    layout = split.layout
    setup = split.setup
    layers = sum(split.blocks)
    if layout.virtual_stages > 1:
        raise UsageError("Galvatron gives each device one stage, and the plan gives it several pieces")
    if not all(split.blocks):
        empty = split.blocks.index(0)
        raise UsageError(
            f"Galvatron divides transformer layers, and stage {empty} has none: it holds an embedding, norm "
            "or head alone"
        )
    is_sharded = int(setup.zero_stage == 3)
    return {
        "pp_deg": layout.pipeline,
        "tp_sizes_enc": join_words([layout.tensor] * layers),
        "tp_consecutive_flags": join_words([1] * layers),
        "dp_types_enc": join_words([is_sharded] * layers),
        "use_sp": join_words([0] * layers),
        "checkpoint": join_words([int(each) for each in list_recomputed(split)]),
        "global_bsz": split.global_batch,
        "chunks": setup.micro_batches,
        "pp_division": join_words(split.blocks),
        "pipeline_type": "gpipe" if setup.is_gpipe else "pipedream_flush",
        "default_dp_type": _DATA_TYPES[setup.zero_stage],
        "vtp": layout.tensor,
        "vsp": 0,
        "embed_sdp": is_sharded,
        "vocab_sdp": is_sharded,
    }


def _encode(content: dict[str, object]) -> bytes:
    return json.dumps(content, indent=4).encode() + b"\n"


# Arguments of Megatron-LM: the layout of the pipeline, and flags of uneven stages that say the same.
#
# A layout such as `Et*11|(t*13|)*2,t*11L` lists stages in the order of the model: E the embedding, t a
# transformer layer, L norm, head and loss (megatron/core/transformer/pipeline_parallel_layer_layout.py).
# The older flags know three kinds of split: all stages alike; the embedding or the loss counted as a layer;
# the first and the last stage of any size and those between alike (megatron/training/arguments.py).


def encode_megatron(split: PipelineSplit) -> bytes:
    """Return arguments for a command line, one a line; what follows `#` is for people.

    Raises:
        UsageError: The model is no decoder of like layers.
    """
    check_decoder(split, "Megatron-LM")
    lines = [
        f"--num-layers {sum(split.blocks)}",
        f"--pipeline-model-parallel-size {split.layout.pipeline}",
        f"--pipeline-model-parallel-layout '{write_layout(split)}'",
        *_list_batch(split),
        *(_list_degrees(split) if split.has_degrees else ()),
        "",
        *_describe_flags(split),
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def write_layout(split: PipelineSplit) -> str:
    letters = {"embedding": "E", "transformer_block": "t", "output_head": "L"}
    words = []
    for stage in split.stages:
        runs = [(letters[kind], len(list(run))) for kind, run in groupby(stage) if kind in letters]
        words.append("".join(letter if times == 1 else f"{letter}*{times}" for letter, times in runs))
    *before, last = words
    text = ""
    for word, same in groupby(before):
        times = len(list(same))
        text += f"{word}|" if times == 1 else f"({word}|)*{times},"
    return text + last


def write_uneven_flags(split: PipelineSplit) -> tuple[str, ...] | None:
    """Return the flags that make this split without a layout, none where it is even; None where none can."""
    blocks = split.blocks
    pieces = split.layout.virtual_stages
    if split.stages[0][0] != "embedding" or split.stages[-1][-2:] != ("layer_norm", "output_head"):
        return None
    interleaved = (f"--num-virtual-stages-per-pipeline-rank {pieces}",) if pieces > 1 else ()
    share = max(blocks)
    missing = [share - count for count in blocks]
    if not any(missing[1:-1]) and max(missing) <= 1 and min(blocks[0], blocks[-1]) > 0:
        counted = ("embedding",) * missing[0] + ("loss",) * (missing[-1] if len(blocks) > 1 else 0)
        return interleaved + tuple(f"--account-for-{each}-in-pipeline-split" for each in counted)
    if pieces > 1 or len({*blocks[1:-1]}) > 1 or not all(blocks):
        return None
    return (
        f"--decoder-first-pipeline-num-layers {blocks[0]}",
        f"--decoder-last-pipeline-num-layers {blocks[-1]}",
    )


def _describe_flags(split: PipelineSplit) -> Iterator[str]:
    flags = write_uneven_flags(split)
    if flags is None:
        yield "# No flags of uneven stages make this split: it takes the layout."
    elif flags:
        yield "# Without the layout these make the same split:"
        yield f"# {' '.join(flags)}"
    else:
        yield "# The split is even: without the layout it is the same."


def _list_batch(split: PipelineSplit) -> Iterator[str]:
    yield f"--seq-length {split.setup.seq_length}"
    yield f"--micro-batch-size {split.setup.micro_batch_size}"
    yield f"--global-batch-size {split.global_batch}"


def _list_degrees(split: PipelineSplit) -> Iterator[str]:
    """Yield the degrees that are not 1, sharding and recomputation."""
    layout = split.layout
    setup = split.setup
    degrees = {"tensor": layout.tensor, "expert": layout.expert}
    yield from (f"--{name}-model-parallel-size {degree}" for name, degree in degrees.items() if degree > 1)
    if layout.context > 1:
        yield f"--context-parallel-size {layout.context}"
    if layout.expert > 1:
        yield f"--expert-tensor-parallel-size {layout.expert_shards}"
    if layout.is_sequence_parallel and layout.tensor > 1:
        yield "--sequence-parallel"
    yield from _list_sharding(setup.zero_stage)
    if setup.recompute == "selective":
        yield f"--recompute-granularity selective --recompute-modules {' '.join(setup.recomputed_modules)}"
    elif setup.recompute == "full":
        method = "uniform" if setup.recomputed_layers is None else "block"
        layers = setup.recompute_unit_layers if setup.recomputed_layers is None else setup.recomputed_layers
        yield f"--recompute-granularity full --recompute-method {method} --recompute-num-layers {layers}"


def _list_sharding(zero_stage: int) -> Iterator[str]:
    """Yield what shards states over data ranks: ZeRO-1 is the distributed optimizer."""
    if zero_stage == 1:
        yield "--use-distributed-optimizer"
    elif zero_stage:
        kinds = {2: "optim_grads", 3: "optim_grads_params"}
        yield f"--use-megatron-fsdp --data-parallel-sharding-strategy {kinds[zero_stage]}"


# Sections of a torchtitan configuration that say who holds what: `module_fqns_per_model_part`, degrees.
#
# Names are those of its own decoders (`tok_embeddings`, `layers.0`, `norm`, `output`); keys are those of
# torchtitan/config/job_config.py, which reads TOML. Later versions, whose configurations are Python, have
# the same fields and call the head `lm_head`.

_NAMES = {"embedding": "tok_embeddings", "layer_norm": "norm", "output_head": "output"}
_RECOMPUTE = {"none": "none", "selective": "none", "full": "full"}
"""Megatron-LM's selective recomputation drops scores of attention, which torchtitan's kernels never keep."""


def encode_torchtitan(split: PipelineSplit) -> bytes:
    """Return TOML to be put into a configuration.

    Raises:
        UsageError: The model is no decoder of like layers.
    """
    check_decoder(split, "torchtitan")
    setup = split.setup
    lines = [
        "[training]",
        f"seq_len = {setup.seq_length}",
        f"local_batch_size = {setup.micro_batch_size * setup.micro_batches}",
        f"global_batch_size = {split.global_batch}",
        "",
        "[parallelism]",
        *_list_titan_degrees(split),
        f'pipeline_parallel_schedule = "{_name_schedule(split)}"',
        f"pipeline_parallel_microbatch_size = {setup.micro_batch_size}",
        "module_fqns_per_model_part = [",
        *_list_parts(split),
        "]",
    ]
    if split.has_degrees:
        lines += ["", "[activation_checkpoint]", f'mode = "{_RECOMPUTE[setup.recompute]}"']
    return "".join(f"{line}\n" for line in lines).encode()


def _list_parts(split: PipelineSplit) -> Iterator[str]:
    block = 0
    for stage in split.stages:
        names = []
        for kind in stage:
            names.append(_NAMES.get(kind, f"layers.{block}"))
            block += kind == "transformer_block"
        quoted = (f'"{name}"' for name in names)
        yield f"    [{', '.join(quoted)}],"


def _list_titan_degrees(split: PipelineSplit) -> Iterator[str]:
    layout = split.layout
    zero_stage = split.setup.zero_stage
    yield f"pipeline_parallel_degree = {layout.pipeline}"
    if not split.has_degrees:
        return
    yield f"tensor_parallel_degree = {layout.tensor}"
    yield f"context_parallel_degree = {layout.context}"
    yield f"expert_parallel_degree = {layout.expert}"
    if zero_stage == 0:
        yield f"data_parallel_replicate_degree = {layout.data}"
        yield "data_parallel_shard_degree = 1"
        return
    yield f"data_parallel_shard_degree = {layout.data}"
    if zero_stage < 3:  # weights stay whole after the forward pass; gradients and states are sharded
        yield 'fsdp_reshard_after_forward = "never"'


def _name_schedule(split: PipelineSplit) -> str:
    if split.setup.is_gpipe:
        return "GPipe"
    return "Interleaved1F1B" if split.layout.virtual_stages > 1 else "1F1B"


ENCODERS = {
    "galvatron_2.4_strategy.json": encode_galvatron_2,
    "galvatron_3.0_strategy.json": encode_galvatron_3,
    "megatron_arguments.txt": encode_megatron,
    "torchtitan.toml": encode_torchtitan,
    "deepspeed_parts.json": encode_deepspeed,
}
"""By the name of the file. Each raises `UsageError` if its framework cannot express a split."""
