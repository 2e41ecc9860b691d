"""What a training process keeps on its device: parameters, gradients, optimizer state, activations."""

from collections.abc import Sequence

from ...analyzers.gap import find_activations, find_kept
from ...engine.model import RankSample
from ...engine.units import MIB
from ..drawing.glyphs import Glyphs
from ..drawing.spans import Line, Span
from ..drawing.stacked_bar import Part, describe_sum, draw_stacked_bar

LEAST_KEPT_BYTES = MIB
"""Less than this, kept at the end of a step, is losses and counters of every program."""


def draw_model(rank: RankSample, width: int, glyphs: Glyphs) -> list[Line]:
    """Return the peak of the newest step cut into what the optimizers know and the rest; nothing if unknown.

    A peak that was only sampled is the least that it can have been, and so are the activations.

    Args:
        rank: The training process.
        width: Cells across.
        glyphs: Characters to draw with.
    """
    parts = model_parts(rank, glyphs)
    if all(part.value_bytes is None for part in parts):
        return []
    step = rank.step
    peak_bytes = step.peak_bytes if step is not None else None
    known = sum(part.value_bytes or 0 for part in parts)
    name = f"peak of step {step.index:,}" if step is not None and peak_bytes is not None else "model state"
    whole_bytes = known if peak_bytes is None else max(peak_bytes, known)
    is_exact = step is None or peak_bytes is None or step.is_peak_exact
    whole = Part(name, whole_bytes, "", "strong", is_exact)
    text = describe_sum(whole, parts, width - 2, glyphs)
    bar = draw_stacked_bar(parts, whole_bytes, width - 3, glyphs)
    return [*([Span(" "), *line] for line in text), [Span("  "), *bar]]


def model_parts(rank: RankSample, glyphs: Glyphs) -> Sequence[Part]:
    """Return the parts of a step's peak; activations are what is neither the optimizers' nor kept.

    On the processors there is no allocator that could tell a peak, and so nothing is said of activations.
    """
    state = rank.model_state
    if state is None:
        return ()
    parts = [
        Part("parameters", state.parameters_bytes, glyphs.full, "fill"),
        Part("gradients", state.gradients_bytes, glyphs.cached, "fill"),
        Part("optimizer", state.optimizer_bytes, glyphs.band, "fill"),
    ]
    if state.grad_sample_bytes is not None:
        parts.append(Part("per-sample gradients", state.grad_sample_bytes, glyphs.hatched, "accent"))
    kept = find_kept(rank)
    if kept is not None and kept >= LEAST_KEPT_BYTES:
        parts.append(Part("kept from step to step", kept, glyphs.others, "medium"))
    if rank.backend == "cpu" and (rank.step is None or rank.step.peak_bytes is None):
        return parts
    rest = find_activations(rank)
    if rest is None:
        return [*parts, Part("activations", None, glyphs.rest, "band")]
    return [*parts, Part("activations", rest.size_bytes, glyphs.rest, "band", rest.is_exact)]
