"""`vramscope seqlen`: what each phase of a training step holds by length of the sequence, and what fits."""

from argparse import ArgumentParser, Namespace, _ArgumentGroup
from pathlib import Path

from vramscope.engine.errors import UsageError
from vramscope.engine.units import format_bytes, parse_bytes

from ..frame.flags import (
    FIGURE,
    Reading,
    add_figure_flag,
    add_fit_flag,
    add_format_flags,
    add_old_flag,
    between,
    build_look_flags,
)
from ..frame.parse import SubParsers, add_verb

SUMMARY = "memory by sequence length: each phase, the law it follows, and the largest that fits a card"
DESCRIPTION = """\
Train a language model at several sequence lengths, each in a process of its own, and show what each phase
adds to memory, by which law it grows, and where memory runs out; several algorithms side by side. With --fit:
the largest batch and the longest sequence that a card holds. Without CUDA it trains on a simulated card, and
says so."""
EPILOG = """\
examples:
  vramscope seqlen --model-size 3b --seq-lengths 64 128 256 512 1024 2048 --figure memory.png
  vramscope seqlen --model-size small --compare none,hooks,ghost --csv lengths.csv
  vramscope seqlen --model-size medium --fit 24GiB --seq 512 --compare none,hooks

needs PyTorch, and Opacus unless --dp-mode none (pip install 'vramscope[train]').
exit codes: 0 measured, also where memory ran out (that is a result), 3 nothing fits into --fit and --fail-on
unfit is given, 1 every training failed, 2 usage or a model that cannot be trained, 130 interrupted (what was
measured is printed)"""
STYLES = ("usenix", "original")
LARGEST_IN = 100.0
LARGEST_DPI = 2400
DEFAULT_SIZE = "3b"
"""As of the script that this verb carries on."""


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    from .phases import add_flag, add_model_flags, add_privacy_flag, add_training_flags

    parser = add_verb(subparsers, [build_look_flags(), *common], "seqlen", SUMMARY, DESCRIPTION, EPILOG)
    add_model_flags(parser, default_size=DEFAULT_SIZE)
    lengths = parser.add_argument_group("lengths")
    add_flag(lengths, "--seq-lengths", metavar="N", nargs="+", help="tokens (default 64 to 2048 by doubling)")
    add_flag(lengths, "--num-steps", metavar="N", type=int, default=2, help="steps of each run (default 2)")
    add_privacy_flag(lengths)
    lengths.add_argument(
        "--compare",
        metavar="MODE,MODE",
        nargs="+",
        help="several of --dp-mode side by side",
    )
    lengths.add_argument(
        "--device", metavar="DEVICE", help="cuda (default), cpu, simulate or simulate:SIZE, as simulate:24GiB"
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
        help="find the largest batch and length that a card of this size holds",
    )
    add_flag(
        group, "--seq", metavar="N", type=int, help="tokens of the largest batch, with --fit (default 128)"
    )
    for old in ("--seq-length", "--seq_length"):
        add_old_flag(group, old, use="--seq", dest="seq", type=int)
    group.add_argument(
        "--step", metavar="N", type=int, help="lengths that --fit considers are its multiples (default 64)"
    )
    add_fit_flag(group)


def _read_fit(text: str) -> int:
    from vramscope.engine.jobs.launch import DEFAULT_CONTEXT_BYTES

    capacity_bytes = parse_bytes(text)
    if capacity_bytes <= DEFAULT_CONTEXT_BYTES:
        raise UsageError(
            f"expected more than the {format_bytes(DEFAULT_CONTEXT_BYTES)} that the CUDA context of a "
            "process takes"
        )
    return capacity_bytes


def _add_output(group: _ArgumentGroup) -> None:
    add_figure_flag(group, "draw each phase by length")
    for old in ("--output", "-o"):
        add_old_flag(group, old, use="--figure", dest="figure", type=FIGURE)
    group.add_argument("--style", choices=STYLES, help="look of the figure (default usenix)")
    group.add_argument(
        "--figsize",
        metavar=("W", "H"),
        nargs=2,
        type=between(0.5, LARGEST_IN),
        help="inches (default: text width of a paper)",
    )
    group.add_argument(
        "--dpi",
        metavar="N",
        type=between(10, LARGEST_DPI),
        help="dots per inch of a PNG (default 600, original 300)",
    )
    group.add_argument("--csv", metavar="FILE", type=Path, help="write a row a phase, in bytes")
    add_format_flags(
        group,
        text="original: as the script that it came from printed (default text)",
        json="as --format json",
        more=("original",),
    )


def run(arguments: Namespace) -> int:
    from ..seqlen import measure_lengths

    return measure_lengths(arguments)
