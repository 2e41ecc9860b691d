"""Host memory that real tensors of a simulated card would take: rather too much than too little."""

from vramscope.engine.model.phase_memory import PhaseTraining
from vramscope.engine.units import GIB
from vramscope.engine.workloads.llama_presets import LLAMA_PRESETS

_PROGRAM_BYTES = GIB
"""PyTorch, Opacus, and what libraries of the host take while they compute."""
_BYTES_PER_NUMBER = 4
_STATES = {"sgd": 0, "adam": 2, "adamw": 2}
_ACTIVATIONS_OF_HIDDEN, _ACTIVATIONS_OF_INNER, _ACTIVATIONS_OF_LOGITS = 30, 6, 5
"""Numbers that a layer keeps or makes for each token, in its widths; and the head, in words."""


def estimate_host_bytes(training: PhaseTraining) -> int | None:
    """Return an upper estimate of the host's memory; None for a model of which nothing is known.

    Weights, gradients, the sum and the noise that Opacus adds, the optimizer's state, gradients by sample
    and activations, all of four bytes.
    """
    if training.model_size is None:
        return None
    sizes = LLAMA_PRESETS[training.model_size]
    copies = 2 + _STATES[training.optimizer]
    if training.privacy != "none":
        copies += 2
    if training.privacy in ("hooks", "functorch"):
        copies += training.batch_size
    tokens = training.batch_size * training.seq_length
    widths = _ACTIVATIONS_OF_HIDDEN * sizes.hidden_size + _ACTIVATIONS_OF_INNER * sizes.intermediate_size
    scores = sizes.num_heads * training.seq_length if training.privacy != "none" else sizes.num_heads
    activations = tokens * (
        sizes.num_layers * widths + 2 * scores + _ACTIVATIONS_OF_LOGITS * sizes.vocab_size
    )
    return _PROGRAM_BYTES + _BYTES_PER_NUMBER * (copies * sizes.parameters + activations)
