"""`vramscope seqlen`: memory by phase and by sequence length, and what fits."""

from argparse import ArgumentParser, Namespace, _ArgumentGroup
from pathlib import Path

from vramscope.engine.errors import UsageError
from vramscope.engine.units import format_bytes, parse_device_bytes

from ..frame.flags import (
    FIGURE,
    Reading,
    add_figure_flag,
    add_figure_size_flags,
    add_fit_flag,
    add_format_flags,
    add_old_flag,
    build_look_flags,
)
from ..frame.parse import SubParsers, add_verb

DESCRIPTION = (
    "Train a language model at several sequence lengths, and show how the memory of each phase grows."
)
EXAMPLES = """\
vramscope seqlen --model-size 3b --seq-lengths 64 128 256 512 1024 \\
    --figure memory.png
vramscope seqlen --model-size small --compare none,hooks,ghost --csv out.csv
vramscope seqlen --model-size medium --fit 24GiB --seq 512"""
NOTES = """\
It prints what each phase adds, by which law it grows with the length, and where memory runs out. With --fit
it finds the largest batch and the longest sequence that fit on a GPU.

It needs PyTorch, and Opacus unless --dp-mode none: pip install 'vramscope[train]'. Each length trains in
another process; without CUDA it trains on a simulated GPU, and the report says so."""
EXIT_CODES: dict[int | str, str] = {
    0: "measured, also if memory ran out",
    1: "every training failed",
    2: "wrong flags, or a model that cannot be trained",
    3: "nothing fits in --fit, and --fail-on unfit is given",
    4: "a package of an extra is not installed",
    130: "interrupted; what was measured is printed",
}
STYLES = ("usenix", "original")
# Default of the script that this verb replaces.
DEFAULT_SIZE = "3b"


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    from .phases import add_flag, add_model_flags, add_privacy_flag, add_training_flags

    parents = [build_look_flags(), *common]
    parser = add_verb(
        subparsers, parents, "seqlen", DESCRIPTION, examples=EXAMPLES, notes=NOTES, exit_codes=EXIT_CODES
    )
    add_model_flags(parser, default_size=DEFAULT_SIZE)
    lengths = parser.add_argument_group("lengths")
    add_flag(
        lengths,
        "--seq-lengths",
        metavar="N",
        nargs="+",
        help="sequence lengths in tokens (default: 64 to 2048, each twice the one before)",
    )
    add_flag(lengths, "--num-steps", metavar="N", type=int, default=2, help="steps in each run (default 2)")
    add_privacy_flag(lengths)
    lengths.add_argument(
        "--compare",
        metavar="MODE,MODE",
        nargs="+",
        help="compare several values of --dp-mode",
    )
    lengths.add_argument(
        "--device",
        metavar="DEVICE",
        help="cuda (default), cpu, simulate, or a card to simulate: simulate:24GiB, simulate:h100",
    )
    _add_fit(parser.add_argument_group("what fits"))
    add_training_flags(parser)
    _add_output(parser.add_argument_group("output"))


def _add_fit(group: _ArgumentGroup) -> None:
    from .phases import add_flag

    group.add_argument(
        "--fit",
        metavar="SIZE",
        type=Reading(_read_fit),
        help="find the largest batch and length that fit in this much memory",
    )
    add_flag(
        group, "--seq", metavar="N", type=int, help="with --fit: sequence length of the batch (default 128)"
    )
    for old in ("--seq-length", "--seq_length"):
        add_old_flag(group, old, use="--seq", dest="seq", type=int)
    group.add_argument(
        "--step", metavar="N", type=int, help="with --fit: try lengths that are multiples of N (default 64)"
    )
    add_fit_flag(group)


def _read_fit(text: str) -> int:
    from vramscope.engine.jobs.launch import DEFAULT_CONTEXT_BYTES

    capacity_bytes = parse_device_bytes(text)
    if capacity_bytes <= DEFAULT_CONTEXT_BYTES:
        raise UsageError(
            f"expected more than {format_bytes(DEFAULT_CONTEXT_BYTES)}, the memory of the CUDA context of a "
            "process"
        )
    return capacity_bytes


def _add_output(group: _ArgumentGroup) -> None:
    add_figure_flag(group, "draw each phase by length")
    for old in ("--output", "-o"):
        add_old_flag(group, old, use="--figure", dest="figure", type=FIGURE)
    group.add_argument("--style", choices=STYLES, help="look of the figure (default usenix)")
    add_figure_size_flags(
        group, size="text width of a paper", dots="a PNG (default 600, with --style original 300)"
    )
    group.add_argument("--csv", metavar="FILE", type=Path, help="write one row for each phase, in bytes")
    add_format_flags(
        group,
        text="original: as printed by the script that this verb replaces (default text)",
        json="short for --format json",
        more=("original",),
    )


def run(arguments: Namespace) -> int:
    from ..seqlen import measure_lengths

    return measure_lengths(arguments)
