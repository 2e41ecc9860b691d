"""What `vramscope seqlen` was asked for."""

import os
from argparse import Namespace
from pathlib import Path
from typing import NamedTuple, cast

from vramscope.engine.errors import UsageError
from vramscope.engine.launch.simulated_device import DEFAULT_CONTEXT_BYTES
from vramscope.engine.model.phase_memory import PRIVACY_MODES, PhaseTraining, PrivacyMode
from vramscope.engine.output_file import check_writable
from vramscope.engine.units import format_bytes, parse_bytes
from vramscope.exporters.figures.length_style import LengthLook
from vramscope.phases.checking import check_training, count_ranks

from .figure_flag import FigureTarget
from .phase_flags import read_training
from .sweep_flags import read_number

DEFAULT_LENGTHS = (64, 128, 256, 512, 1024, 2048)
DEFAULT_LENGTH = 128
DEFAULT_STEP = 64
MOST_LENGTHS = 64
_MOST_DIGITS = 9
_LARGEST_IN, _LARGEST_DPI = 100.0, 2400


class LengthRequest(NamedTuple):
    """What to run, and what to make of it."""

    training: PhaseTraining
    """Its length is that of the largest batch."""
    device: str
    lengths: tuple[int, ...]
    """Empty where only what fits was asked for."""
    modes: tuple[PrivacyMode, ...]
    capacity_bytes: int | None
    """Of the card that something is to fit."""
    step: int
    figure: FigureTarget | None
    look: LengthLook
    csv: Path | None
    form: str


def read_length_request(arguments: Namespace) -> LengthRequest:
    """Return what the flags ask for.

    Raises:
        UsageError: A value cannot be used, or two flags do not go together.
        OutputFileError: A file could not be written to.
    """
    if count_ranks(os.environ) > 1:
        raise UsageError("seqlen trains in one process at a time: start it without torchrun")
    modes = _read_modes(arguments)
    capacity_bytes = _read_capacity(arguments)
    training = read_training(
        arguments,
        seq_length=DEFAULT_LENGTH if arguments.seq is None else arguments.seq,
        num_steps=arguments.num_steps,
        privacy=modes[0],
    )
    check_training(training, os.environ)
    step = DEFAULT_STEP if arguments.step is None else arguments.step
    if step < 1:
        raise UsageError(f"--step {step}: expected a whole number from 1 on")
    request = LengthRequest(
        training=training,
        device=_choose_device(arguments, capacity_bytes),
        lengths=_read_lengths(arguments.seq_lengths, has_default=capacity_bytes is None),
        modes=modes,
        capacity_bytes=capacity_bytes,
        step=step,
        figure=arguments.figure,
        look=_read_look(arguments),
        csv=arguments.csv,
        form=_read_form(arguments),
    )
    _check_files(request)
    return request


def _read_lengths(words: list[str] | None, *, has_default: bool) -> tuple[int, ...]:
    if words is None:
        return DEFAULT_LENGTHS if has_default else ()
    texts = [text for word in words for text in word.split(",") if text]
    lengths: list[int] = []
    for text in texts:
        length = int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else 0
        if length < 1:
            raise UsageError(f"--seq-lengths {text}: expected whole numbers from 1 on, as 64 128 256")
        if length in lengths:
            raise UsageError(f"--seq-lengths: {length} is there twice; give each length once")
        lengths.append(length)
    if not 0 < len(lengths) <= MOST_LENGTHS:
        raise UsageError(f"--seq-lengths: expected 1 to {MOST_LENGTHS} lengths, got {len(lengths)}")
    return tuple(sorted(lengths))


def _read_modes(arguments: Namespace) -> tuple[PrivacyMode, ...]:
    if arguments.compare is None:
        return (arguments.dp_mode,)
    names = [name for word in arguments.compare for name in word.split(",") if name]
    for name in names:
        if name not in PRIVACY_MODES:
            raise UsageError(f"--compare {name}: expected some of {', '.join(PRIVACY_MODES)}")
    if len(set(names)) < len(names) or len(names) < 2:
        raise UsageError(f"--compare {','.join(names)}: expected two different algorithms or more")
    return tuple(cast("list[PrivacyMode]", names))


def _read_capacity(arguments: Namespace) -> int | None:
    if arguments.fit is None:
        for flag, value in (("--seq", arguments.seq), ("--step", arguments.step)):
            if value is not None:
                raise UsageError(f"{flag} goes with --fit; the lengths to run are --seq-lengths")
        return None
    try:
        capacity_bytes = parse_bytes(arguments.fit)
    except UsageError as error:
        raise UsageError(f"--fit {arguments.fit}: {error}") from error
    if capacity_bytes <= DEFAULT_CONTEXT_BYTES:
        raise UsageError(
            f"--fit {arguments.fit}: expected more than the {format_bytes(DEFAULT_CONTEXT_BYTES)} that the "
            "CUDA context of a process takes"
        )
    return capacity_bytes


def _choose_device(arguments: Namespace, capacity_bytes: int | None) -> str:
    device: str = arguments.device or "cuda"
    if capacity_bytes is None:
        return device
    if arguments.device in (None, "simulate"):
        return f"simulate:{capacity_bytes}"
    if device != "cuda":
        raise UsageError(
            f"--device {device} does not go with --fit, which says the card itself: leave it out for a "
            "simulated one of that size, or give --device cuda"
        )
    return device


def _read_look(arguments: Namespace) -> LengthLook:
    if arguments.figure is None:
        for flag in ("style", "figsize", "dpi"):
            if getattr(arguments, flag) is not None:
                raise UsageError(f"--{flag} goes with --figure FILE, which names the figure")
    words = arguments.figsize
    size_in = None if words is None else tuple(read_number("--figsize", it, 0.5, _LARGEST_IN) for it in words)
    dpi = arguments.dpi
    return LengthLook(
        style=arguments.style or "usenix",
        size_in=cast("tuple[float, float] | None", size_in),
        dpi=None if dpi is None else int(read_number("--dpi", dpi, 10, _LARGEST_DPI)),
    )


def _read_form(arguments: Namespace) -> str:
    return "json" if arguments.json else arguments.format or "text"


def _check_files(request: LengthRequest) -> None:
    """Refuse files that could not be written, before anything runs for them."""
    for flag, given in (("--figure", request.figure), ("--csv", request.csv)):
        if given is not None and not request.lengths:
            raise UsageError(f"{flag} shows memory by length: give --seq-lengths too")
    if request.csv is not None:
        check_writable(request.csv)
    if request.figure is not None:
        request.figure.check()
    if request.form == "original" and not request.lengths:
        raise UsageError("--format original is a table by length: give --seq-lengths too")
