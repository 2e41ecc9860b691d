"""The memory of every pipeline stage of a training run, from sizes alone."""

from collections.abc import Iterator, Sequence

from ...engine.errors import UsageError
from .layer_figures import RunFigures
from .layout import ParallelLayout, check_layout, split_layers
from .loss import count_batch, count_logits, count_loss, list_head_activations
from .rank_memory import MemoryPart, Moment, RankMemory, make_parts
from .saved import count_checkpoint, count_recomputed, list_held_activations
from .schedule import count_in_flight
from .shape import ModelShape, check_shape
from .states import StateBytes, count_states, sum_states
from .training import TrainingSetup, check_setup
from .unsharded import count_gathered, count_reduction, count_whole_gradients
from .weights import count_elements, list_outside_weights
from .workspaces import count_retained, count_shared_buffers, count_workspaces


def estimate_stages(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup
) -> tuple[RankMemory, ...]:
    """Return the memory of a rank of each pipeline stage.

    Raises:
        UsageError: Degrees, sizes or numbers that cannot be; one line says which and why.
    """
    check_all(shape, layout, setup)
    run, pieces = RunFigures(shape, layout, setup), split_layers(shape.layers, layout)
    return tuple(_Stage(run, stage, pieces[stage]).estimate() for stage in range(layout.pipeline))


def estimate_stage(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, stage: int) -> RankMemory:
    """Return the memory of a rank of one pipeline stage, from 0; -1 is the last.

    Raises:
        UsageError: Degrees, sizes or numbers that cannot be; one line says which and why.
    """
    check_all(shape, layout, setup)
    pieces = split_layers(shape.layers, layout)[stage]
    return _Stage(RunFigures(shape, layout, setup), stage % layout.pipeline, pieces).estimate()


def estimate_pieces(run: RunFigures, stage: int, pieces: Sequence[range]) -> RankMemory:
    """Return the memory of a rank of one pipeline stage, from 0, that holds some runs of layers.

    For searches that ask thousands of times: nothing is checked, and `run` keeps what its layers hold.
    """
    return _Stage(run, stage, pieces).estimate()


def check_all(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> None:
    """Refuse what cannot be.

    Raises:
        UsageError: What, and what would do.
    """
    check_shape(shape)
    check_setup(setup)
    check_layout(shape, layout, setup.seq_length)
    if 0 < shape.learned_positions < setup.seq_length:
        raise UsageError(
            f"a sequence has {setup.seq_length} tokens, and the model learns {shape.learned_positions} "
            f"positions; choose a sequence of {shape.learned_positions} tokens at most"
        )


class _Stage:
    """One pipeline rank, and what its moments have in common."""

    def __init__(self, run: RunFigures, stage: int, pieces: Sequence[range]) -> None:
        self.run, self.stage, self.pieces = run, stage, pieces
        self.shape, self.layout, self.setup = run.shape, run.layout, run.setup
        self.layers = [layer for piece in pieces for layer in piece]
        self.is_first, self.is_last = stage == 0, stage == run.layout.pipeline - 1
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
        """Return what the rank holds."""
        return RankMemory(
            stage=self.stage,
            layers=tuple(self.layers),
            parameters=self.parameters,
            in_flight=self.in_flight,
            moments=tuple(self._list_moments()),
        )

    def _list_moments(self) -> Iterator[Moment]:
        states, libraries, gathered = self._list_states(), self._list_libraries(), self._list_gathered()
        kept = gathered if self.setup.keeps_gathered_weights else []
        rest = [*states, *libraries, *kept, *self._list_retained(len(self.pieces))]
        yield Moment("between steps", tuple(rest))
        # Copies of gradients come with the optimizer's step, and are gone when the next step begins.
        common = [part for part in states if part.name != "gradient copies"]
        common += [*libraries, *gathered, *self._list_waiting(), *self._list_retained(1)]
        held = self._find_held()
        saved = make_parts("activations", held)
        ahead = self._list_predictions() if self.is_last else []
        yield Moment("backward", (*common, *saved, *self._list_backward(), *ahead))
        if self.setup.zero_stage >= 2 and self.layers:
            yield Moment("reduction", (*common, *self._list_reduction(held)))
        if self.is_last:
            yield Moment("loss", (*common, *saved, *self._list_loss(), *ahead))

    def _list_states(self) -> list[MemoryPart]:
        outside = count_states(self.outside, self.layout, self.setup)
        states = sum_states([*((figures.states, count) for figures, count in self.kinds), (outside, 1)])
        return _name_states(states)

    def _list_retained(self, pieces: int) -> list[MemoryPart]:
        retained = count_retained(self.shape, self.layout, self.setup, pieces)
        return make_parts("communication", {"hidden states of neighbours": retained})

    def _find_held(self) -> dict[str, int]:
        held = list_held_activations(self.run, self.pieces, self.in_flight, is_first=self.is_first)
        held["batch"] = count_batch(self.layout, self.setup) if self.is_first or self.is_last else 0
        return held

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
        joined = 2 * count_checkpoint(self.shape, self.layout, self.setup)
        size = count * (joined + self.run.find_figures(self.shape.layers - 1).saved_bytes)
        return make_parts("activations", {"layers of multi-token prediction": size})

    def _list_backward(self) -> list[MemoryPart]:
        head = sum(tensor.elements for tensor in self.outside if tensor.part == "head")
        reduced = {"whole gradient of the head": count_reduction(head, self.setup)}
        sizes = self._find_backward() if self.layers else {}
        return [*make_parts("activations", sizes), *make_parts("communication", reduced)]

    def _find_backward(self) -> dict[str, int]:
        """Return bytes that backward of the last layer adds."""
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

    def _list_gathered(self) -> list[MemoryPart]:
        largest = max((figures.parameters for figures, _ in self.kinds), default=0)
        size = count_gathered(self.outside, largest, self.parameters, self.setup)
        return make_parts("communication", {"gathered weights": size})

    def _list_waiting(self) -> list[MemoryPart]:
        size = count_whole_gradients(self.parameters, self.setup)
        return make_parts("communication", {"whole gradients of the stage": size})


def _name_states(states: StateBytes) -> list[MemoryPart]:
    sizes = {name.replace("_", " "): getattr(states, name) for name in states.__struct_fields__}
    rounding = {"rounding to 512 bytes": sizes.pop("rounding")}
    return [*make_parts("states", sizes), *make_parts("rounding", rounding)]
