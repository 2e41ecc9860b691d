"""What each stage of a partition holds while it trains, kind by kind."""

from collections.abc import Mapping

import msgspec

from ..graph import LayerNode, ModelGraph
from .result import PartitionResult
from .stages_of_graph import InFlight


class StageMemory(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Bytes of one stage under 1F1B, by kind."""

    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int | None
    """Of all micro-batches in flight; None where a layer does not tell its own."""
    in_flight: int
    """Micro-batches whose activations are held at once."""

    @property
    def total_bytes(self) -> int | None:
        """Bytes of all kinds, as in `training_bytes`; None where activations are not known."""
        if self.activations_bytes is None:
            return None
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes + self.activations_bytes


def list_stage_memory(
    graph: ModelGraph, result: PartitionResult, training: InFlight
) -> tuple[StageMemory, ...]:
    """Return what each stage of a partition of a graph holds."""
    layers = {layer.layer_id: layer for layer in graph.layers}
    return tuple(
        _add_up(layers, stage.layer_ids, training, min(result.total_stages - number, training.micro_batches))
        for number, stage in enumerate(result.partitions)
    )


def _add_up(
    layers: Mapping[int, LayerNode], ids: tuple[int, ...], training: InFlight, in_flight: int
) -> StageMemory:
    parameters = sum(layers[each].held_parameters for each in ids)
    kept = [layers[each].activation_bytes for each in ids]
    known = [size for size in kept if size is not None]
    return StageMemory(
        weights_bytes=training.weights * parameters,
        gradients_bytes=training.gradients * parameters,
        optimizer_bytes=training.optimizer * parameters,
        activations_bytes=in_flight * sum(known) if len(known) == len(kept) else None,
        in_flight=in_flight,
    )
