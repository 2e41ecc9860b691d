"""`vramscope phases`: what each phase of a training step holds."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path

from vramscope.engine.errors import UsageError

from ..frame.flag_words import add_format_flags, add_old_flag
from ..frame.parser_flags import add_fit_flag, build_look_flags
from ..frame.registry import SubParsers

SUMMARY = "train some steps and show what each phase holds: forward, loss, backward, optimizer, zeroing"
DESCRIPTION = """\
Train a language model for some steps, with differential privacy by Opacus or without, and show memory
before, after and at the peak of each phase, what to attack, and what that would save.
Without CUDA it trains on a simulated card, and says so."""
EPILOG = """\
examples:
  vramscope phases --model-size medium --batch-size 4 --seq 512
  vramscope phases --model-size 3b --dp-mode ghost --device simulate:24GiB     would it fit into 24 GiB?
  vramscope phases --factory train:make_model --dp-mode none --optimizer adamw
  torchrun --nproc-per-node 2 -m vramscope phases --strategy ddp               every rank, side by side
  vramscope phases --json > run.json; vramscope phases --read run.json

needs PyTorch, and Opacus unless --dp-mode none (pip install 'vramscope[train]'); a process of its own trains.
exit codes: 0 measured, also where memory ran out (that is a result), 3 it ran out and --fail-on unfit is
given, 1 the training failed, 2 usage or a model that cannot be trained, 130 interrupted (what was measured is
printed)"""


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    from ..phase_flags import add_flag, add_model_flags, add_privacy_flag, add_training_flags

    parser = subparsers.add_parser(
        "phases",
        help=SUMMARY,
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        parents=[build_look_flags(), *common],
        allow_abbrev=False,
    )
    add_model_flags(parser)
    steps = parser.add_argument_group("steps")
    add_flag(steps, "--seq", metavar="N", type=int, default=128, help="tokens of a sequence (default 128)")
    for old in ("--seq-length", "--seq_length"):
        add_old_flag(steps, old, use="--seq", dest="seq", type=int)
    add_flag(steps, "--num-steps", metavar="N", type=int, default=3, help="steps that are told (default 3)")
    add_privacy_flag(steps)
    steps.add_argument(
        "--device",
        metavar="DEVICE",
        default="cuda",
        help="cuda (default), cpu, simulate or simulate:SIZE, as simulate:24GiB",
    )
    steps.add_argument(
        "--strategy", choices=("ddp", "fsdp2"), help="under torchrun, how ranks share the model"
    )
    add_training_flags(parser)
    _add_output(parser)


def _add_output(parser: ArgumentParser) -> None:
    output = parser.add_argument_group("output")
    add_format_flags(
        output,
        text="original: as the script that it came from printed (default text)",
        json="as --format json",
        more=("original",),
    )
    output.add_argument(
        "--try-advice",
        action="store_true",
        help="train again with each of the best changes, and tell the peak",
    )
    add_fit_flag(output)
    output.add_argument("-o", "--output", metavar="FILE", type=Path, help="write it into this file")
    output.add_argument(
        "--read", metavar="FILE", type=Path, nargs="+", help="train nothing: show what such runs have written"
    )


def run(arguments: Namespace) -> int:
    """Train and print, or read and print.

    Raises:
        UsageError: A flag has a value that cannot be used, or the training cannot be started.
        InputFileError: A file of `--read` cannot be read or understood.
        OutputFileError: The output cannot be written.
    """
    if arguments.json:
        arguments.format = "json"
    if arguments.read is not None:
        if arguments.fail_on is not None:
            raise UsageError("--fail-on does not go with --read, which trains nothing")
        from ..phase_reading import print_read

        return print_read(arguments)
    from ..phases import train_and_print

    return train_and_print(arguments)
