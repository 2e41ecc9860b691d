"""The memory of every pipeline stage of a training run, from sizes alone."""

from collections.abc import Sequence

from .activations import list_layer_activations
from .layout import ParallelLayout, check_layout, split_layers
from .loss import count_batch, count_logits, count_loss, list_head_activations
from .rank_memory import MemoryPart, Moment, RankMemory, make_parts
from .saved import count_checkpoint, count_recomputed, list_held_activations
from .schedule import count_in_flight
from .shape import ModelShape, check_shape
from .states import StateBytes, count_states
from .training import TrainingSetup, check_setup
from .transient import count_backward
from .weights import WeightTensor, count_elements, list_layer_weights, list_stage_weights
from .workspaces import count_retained, count_shared_buffers, count_workspaces


def estimate_stages(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup
) -> tuple[RankMemory, ...]:
    """Return the memory of a rank of each pipeline stage.

    Raises:
        UsageError: Degrees, sizes or numbers that cannot be; one line says which and why.
    """
    check_all(shape, layout, setup)
    return tuple(_Stage(shape, layout, setup, stage).estimate() for stage in range(layout.pipeline))


def estimate_stage(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, stage: int) -> RankMemory:
    """Return the memory of a rank of one pipeline stage, from 0; -1 is the last.

    Raises:
        UsageError: Degrees, sizes or numbers that cannot be; one line says which and why.
    """
    check_all(shape, layout, setup)
    return _Stage(shape, layout, setup, stage % layout.pipeline).estimate()


def check_all(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> None:
    """Refuse what cannot be.

    Raises:
        UsageError: What, and what would do.
    """
    check_shape(shape)
    check_setup(setup)
    check_layout(shape, layout, setup.seq_length)


class _Stage:
    """One pipeline rank, and what its moments have in common."""

    def __init__(self, shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, stage: int) -> None:
        self.shape, self.layout, self.setup, self.stage = shape, layout, setup, stage
        self.pieces = split_layers(shape.layers, layout)[stage]
        self.layers = [layer for piece in self.pieces for layer in piece]
        self.is_first, self.is_last = stage == 0, stage == layout.pipeline - 1
        self.weights = list_stage_weights(
            shape, layout, self.layers, is_first=self.is_first, is_last=self.is_last
        )
        self.states = count_states(self.weights, layout, setup)
        self.in_flight = count_in_flight(layout, setup, stage)

    def estimate(self) -> RankMemory:
        """Return what the rank holds."""
        ahead = self._list_predictions() if self.is_last else []
        moments = [self._rest(), self._compute("backward", [*self._list_backward(), *ahead])]
        if self.is_last:
            moments.append(self._compute("loss", [*self._list_loss(), *ahead]))
        return RankMemory(
            stage=self.stage,
            layers=tuple(self.layers),
            parameters=count_elements(self.weights),
            in_flight=self.in_flight,
            moments=tuple(moments),
        )

    def _rest(self) -> Moment:
        retained = count_retained(self.shape, self.layout, self.setup, len(self.pieces))
        parts = [*_list_states(self.states), *self._list_libraries()]
        parts += make_parts("communication", {"hidden states of neighbours": retained})
        return Moment("between steps", tuple(parts))

    def _compute(self, name: str, parts: Sequence[MemoryPart]) -> Moment:
        """Return a moment within forward and backward: copies of gradients are not there yet."""
        states = [part for part in _list_states(self.states) if part.name != "gradient copies"]
        retained = count_retained(self.shape, self.layout, self.setup, 1)
        shared = make_parts("communication", {"hidden states of neighbours": retained})
        held = list_held_activations(
            self.shape, self.layout, self.setup, self.pieces, self.in_flight, is_first=self.is_first
        )
        held["batch"] = count_batch(self.layout, self.setup) if self.is_first or self.is_last else 0
        activations = make_parts("activations", held)
        return Moment(name, (*states, *self._list_libraries(), *shared, *activations, *parts))

    def _list_loss(self) -> list[MemoryPart]:
        shape, layout, setup = self.shape, self.layout, self.setup
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
        layer = list_layer_activations(self.shape, self.layout, self.setup, self.shape.layers - 1)
        joined = 2 * count_checkpoint(self.shape, self.layout, self.setup)
        size = count * (joined + sum(layer.values()))
        return make_parts("activations", {"layers of multi-token prediction": size})

    def _list_backward(self) -> list[MemoryPart]:
        if not self.layers:
            return []
        shape, layout, setup = self.shape, self.layout, self.setup
        again = count_recomputed(shape, layout, setup, self.pieces[-1])
        gradients = count_backward(shape, layout, setup, self.layers[-1])
        return make_parts("activations", {"recomputed layers": again, "gradients of activations": gradients})

    def _list_libraries(self) -> list[MemoryPart]:
        buffers = {
            "shared buffers": count_shared_buffers(
                self.shape, self.layout, self.setup, has_head=self.is_last
            ),
            "gathered weights": self._count_gathered(),
        }
        workspaces = {"workspaces": count_workspaces(self.setup)}
        return [*make_parts("communication", buffers), *make_parts("libraries", workspaces)]

    def _count_gathered(self) -> int:
        """Return bytes of whole weights under ZeRO-3: the largest of the embedding, and two layers.

        They count between steps too: the run of Megatron-FSDP that was measured keeps them.
        """
        if self.setup.zero_stage < 3:
            return 0
        outside = [tensor for tensor in self.weights if tensor.part in ("embedding", "head")]
        largest = max((tensor.elements for tensor in outside), default=0)
        units = [count_elements(self._list_dense(layer)) for layer in self.layers]
        return max(largest, 2 * max(units, default=0)) * self.setup.numbers.compute_bytes

    def _list_dense(self, layer: int) -> list[WeightTensor]:
        return list_layer_weights(self.shape, self.layout, layer)


def _list_states(states: StateBytes) -> list[MemoryPart]:
    sizes = {name.replace("_", " "): getattr(states, name) for name in states.__struct_fields__}
    rounding = {"rounding to 512 bytes": sizes.pop("rounding")}
    return [*make_parts("states", sizes), *make_parts("rounding", rounding)]
