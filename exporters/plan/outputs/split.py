"""What a framework has to be told of a plan: the layers of each stage, the degrees, the batch."""

from collections.abc import Sequence
from itertools import accumulate

import msgspec

from ....analyzers.planning.graph import LayerType, ModelGraph
from ....analyzers.planning.joint import JointConfiguration
from ....analyzers.planning.partition import PartitionResult
from ....analyzers.planning.theory import ParallelLayout, TrainingSetup, split_layers
from ....engine.errors import UsageError


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
    """Return a partition of a graph as a split; nothing but the pipeline is planned.

    Args:
        graph: The model.
        result: Its partition.
        micro_batch: Sequences of a micro-batch.
        micro_batches: Of a step.
    """
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
