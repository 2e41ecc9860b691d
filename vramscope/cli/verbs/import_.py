"""`vramscope import`: what other tools wrote, as a recording."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path

from ..frame.flag_words import add_old_flag
from ..frame.registry import SubParsers

SUMMARY = (
    "make a recording of what other tools wrote: series, logs of nvidia-smi, memory traces, kept streams"
)
DESCRIPTION = """\
Make a recording of files that other tools wrote; what each is, its content says: series CSV, logs of
nvidia-smi, memory traces (files, or the folder of a run), memory snapshots of PyTorch, traces of
torch.profiler and its memory timelines, logs of training frameworks with lines of memory or out-of-memory
errors, InternLM's memory.log, reports and exported snapshots (JSON) of Tiny-Torch and ours, telemetry of
stormlog, what `vramscope --json` printed, other recordings. Several files, as one a rank or device, are
joined on one clock. The recording keeps what it was made of and what was left out."""
EPILOG = """\
examples:
  vramscope import gpu.csv -o run.vscope
  vramscope import rank0.csv rank1.csv -o run.vscope
  vramscope import memory_traces/30b_pp4_tp2 --capacity 80GiB -o run.vscope
  vramscope import snapshot.pickle --capacity 80GiB -o oom.vscope

exit codes: 0 imported, 2 usage, or a file that cannot be read or written, 130 interrupted: nothing written"""


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = subparsers.add_parser(
        "import",
        help=SUMMARY,
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        parents=common,
        allow_abbrev=False,
    )
    parser.add_argument(
        "files", metavar="FILE", type=Path, nargs="+", help="file, or folder of memory traces"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        required=True,
        help="the recording; must not be there yet",
    )
    parser.add_argument("--capacity", metavar="SIZE", help="memory of devices whose file does not tell it")
    parser.add_argument(
        "--interval",
        metavar="TIME",
        dest="tick",
        help="from one sample to the next (default: by the times in the file)",
    )
    add_old_flag(parser, "--tick", use="--interval", dest="tick")


def run(arguments: Namespace) -> int:
    """Import the files.

    Raises:
        UsageError: A flag makes no sense.
        InputFileError: A file cannot be read or understood.
        OutputFileError: The recording cannot be written, or is there already.
    """
    from vramscope.engine.errors import UsageError
    from vramscope.engine.units import parse_duration

    from ..frame.parser_flags import read_capacity
    from ..importer import Importer

    try:
        interval_s = None if arguments.tick is None else parse_duration(arguments.tick)
    except UsageError as error:
        raise UsageError(f"--interval {arguments.tick}: {error}") from error
    capacity_bytes = read_capacity(arguments)
    Importer(arguments.files, arguments.output, capacity_bytes=capacity_bytes, interval_s=interval_s).run()
    return 0
