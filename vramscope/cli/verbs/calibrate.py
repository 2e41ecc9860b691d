"""`vramscope calibrate`: what measured runs say about the estimates of `vramscope estimate`."""

from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path

from ..frame.registry import SubParsers

SUMMARY = "learn from runs that were measured how this software differs from the memory theory"
DESCRIPTION = """\
Compare estimates with what runs measured, and keep two numbers in a small file: bytes more between steps, and
a factor of what the peak is above that. `vramscope estimate --calibration FILE` applies them, and says so."""
EPILOG = """\
examples:
  vramscope calibrate measured.csv --output ours.json
  vramscope estimate --model llama2-7b --tp 2 --calibration ours.json

The table has the columns of `vramscope estimate --batch`, and beside them mem_allocated_last_bytes and
mem_max_allocated_peak_bytes of the last rank.
exit codes: 0 done, 2 usage, or a file that cannot be read"""


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = subparsers.add_parser(
        "calibrate",
        help=SUMMARY,
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        parents=common,
        allow_abbrev=False,
    )
    parser.add_argument("measured", metavar="FILE", type=Path, help="a CSV file of measured runs")
    parser.add_argument("--output", "-o", metavar="FILE", type=Path, help="where to keep it")
    parser.add_argument(
        "--json", action="store_true", default=SUPPRESS, help="print it as JSON, also with -o"
    )


def run(arguments: Namespace) -> int:
    """Calibrate.

    Raises:
        UsageError: Too few runs were measured.
        InputFileError: The table cannot be read or understood.
        OutputFileError: The file cannot be written.
    """
    from ..calibrating import calibrate

    return calibrate(arguments)
