"""What a training by phase runs on: a card, its model, or the host; with storage or without."""

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from vramscope.engine.errors import UsageError
from vramscope.engine.jobs.launch import DEFAULT_CONTEXT_BYTES, DEFAULT_HOST_RESERVE_BYTES
from vramscope.engine.model.phase_memory import PhaseTraining
from vramscope.engine.units import GIB, format_bytes, parse_bytes
from vramscope.engine.workloads.llama_presets import LLAMA_PRESETS

DEFAULT_CARD_BYTES = 80 * GIB
"""Of a simulated card whose size nobody gave: the largest preset with gradients by sample needs 40 GiB."""
SHARE_OF_HOST = 0.5
"""Of the host's free memory that real tensors may take where the same figures can be had without storage."""

_CONTEXT = f"{format_bytes(DEFAULT_CONTEXT_BYTES)} of the card stand for the CUDA context"


class DeviceChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What to start a training on."""

    kind: Literal["cuda", "cpu", "simulated"]
    total_bytes: int | None = None
    """Of a simulated card."""
    is_fake: bool = False
    can_be_fake: bool = False
    """Whether the run can be repeated without storage, should the host have too little memory."""
    note: str | None = None


def choose_device(
    text: str, training: PhaseTraining, *, environ: Mapping[str, str], host_free_bytes: int | None
) -> DeviceChoice:
    """Return what to run on.

    Args:
        text: `cuda`, `cpu`, `simulate` or `simulate:24GiB`.
        training: What is trained.
        environ: Says how many ranks share this host.
        host_free_bytes: Memory that this host has free; None where nobody knows.

    Raises:
        UsageError: There is no such device, or this host cannot stand for it.
    """
    name, _, size = text.partition(":")
    if text == "cpu":
        return DeviceChoice(kind="cpu", note="resident memory of the process; not what a GPU would hold")
    if text == "cuda":
        return (
            DeviceChoice(kind="cuda")
            if may_have_cuda()
            else simulate_instead(training, environ, host_free_bytes)
        )
    if name != "simulate" or text == "simulate:":
        raise UsageError(f"--device {text}: expected cuda, cpu, simulate or simulate:SIZE, as simulate:24GiB")
    try:
        total_bytes = parse_bytes(size) if size else DEFAULT_CARD_BYTES
    except UsageError as error:
        raise UsageError(f"--device {text}: {error}") from error
    if total_bytes <= DEFAULT_CONTEXT_BYTES:
        raise UsageError(
            f"--device {text}: expected more than the {format_bytes(DEFAULT_CONTEXT_BYTES)} that the CUDA "
            "context of a process takes"
        )
    return _simulate(total_bytes, training, environ, host_free_bytes, None)


def simulate_instead(
    training: PhaseTraining, environ: Mapping[str, str], host_free_bytes: int | None
) -> DeviceChoice:
    """Return the simulated card that stands for CUDA where there is none.

    Raises:
        UsageError: This host cannot stand for it.
    """
    note = f"no CUDA device here: a simulated card of {format_bytes(DEFAULT_CARD_BYTES)}"
    return _simulate(DEFAULT_CARD_BYTES, training, environ, host_free_bytes, note)


def may_have_cuda() -> bool:
    """Tell whether a driver of NVIDIA or AMD is there; PyTorch has the last word."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Path("/dev/kfd").exists()
    return True


def _simulate(
    total_bytes: int,
    training: PhaseTraining,
    environ: Mapping[str, str],
    host_free_bytes: int | None,
    note: str | None,
) -> DeviceChoice:
    """Return a simulated card, with storage where that fits this host.

    Raises:
        UsageError: It does not, and ranks need values.
    """
    ranks = int(environ.get("LOCAL_WORLD_SIZE", "1"))
    can_be_fake = training.strategy is None
    needed_bytes = estimate_host_bytes(training)
    note = f"{note}; {_CONTEXT}" if note else _CONTEXT
    choice = DeviceChoice(kind="simulated", total_bytes=total_bytes, can_be_fake=can_be_fake, note=note)
    if needed_bytes is None or host_free_bytes is None:
        return choice
    # More than the card has is never held: the run ends before.
    needed_bytes = ranks * min(needed_bytes, total_bytes - DEFAULT_CONTEXT_BYTES)
    free_bytes = max(0, host_free_bytes - DEFAULT_HOST_RESERVE_BYTES)
    if can_be_fake and needed_bytes > SHARE_OF_HOST * free_bytes:
        return msgspec.structs.replace(choice, is_fake=True)
    if not can_be_fake and needed_bytes > free_bytes:
        raise UsageError(_describe_too_large(training, needed_bytes, free_bytes))
    return choice


def _describe_too_large(training: PhaseTraining, needed_bytes: int, free_bytes: int) -> str:
    return (
        f"--strategy {training.strategy}: ranks hand each other the values of tensors, so that simulated "
        f"cards need real ones: about {format_bytes(needed_bytes)} of host memory, and "
        f"{format_bytes(free_bytes)} are free; take a smaller --model-size, --batch-size or --seq, "
        "fewer ranks, or one process without --strategy, which needs no storage"
    )


_PROGRAM_BYTES = GIB
"""PyTorch, Opacus, and what libraries of the host take while they compute."""
_BYTES_PER_NUMBER = 4
_STATES = {"sgd": 0, "adam": 2, "adamw": 2}
_ACTIVATIONS_OF_HIDDEN = 30
_ACTIVATIONS_OF_INNER = 6
_ACTIVATIONS_OF_LOGITS = 5
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
