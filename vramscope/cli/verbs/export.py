"""`vramscope export`: a recording in the formats of other tools, or as figures."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path

from . import SubParsers

SUMMARY = "write a recording as CSV, JSON lines, OpenMetrics, Parquet or figures"
DESCRIPTION = """\
Write a recording in a format that other tools read. What was not measured is empty or null. Times are those
of the recording: seconds since 1970, or of the run where it was made of traces that count from its start."""
EPILOG = """\
examples:
  vramscope export run.vscope --csv -o run.csv
  vramscope export run.vscope --jsonl --from +10m --to +20m
  vramscope export run.vscope --prometheus -o run.om
  promtool tsdb create-blocks-from openmetrics run.om data
  vramscope export run.vscope --figure -o plots

--from and --to: seconds of the recording, +TIME after its beginning, or a date and time (2026-01-31T10:00)
exit codes: 0 exported, 2 usage, or a file that cannot be read or written, 130 interrupted: nothing written"""
FORMATS = {
    "csv": "series CSV, which --input and import read again",
    "jsonl": "JSON lines, as vramscope --json prints them",
    "prometheus": "OpenMetrics text with timestamps",
    "parquet": "Parquet; needs vramscope[parquet]",
    "figure": "figures (PNG and PDF) into the folder that -o names",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = subparsers.add_parser(
        "export",
        help=SUMMARY,
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        parents=common,
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the recording")
    formats = parser.add_mutually_exclusive_group(required=True)
    for name, text in FORMATS.items():
        formats.add_argument(f"--{name}", dest="export_format", action="store_const", const=name, help=text)
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="where to; standard output without it (not Parquet)"
    )
    parser.add_argument("--from", dest="start", metavar="WHEN", help="from this time on")
    parser.add_argument("--to", dest="end", metavar="WHEN", help="up to this time")


def run(arguments: Namespace) -> int:
    """Export the recording.

    Raises:
        UsageError: A flag makes no sense, or an optional library is missing.
        InputFileError: The recording cannot be read.
        OutputFileError: The file cannot be written.
    """
    from ..exporting import export_recording
    from ..termination import unwinding_on_signals

    kind, output = arguments.export_format, arguments.output
    with unwinding_on_signals():
        export_recording(arguments.file, kind, output, start=arguments.start, end=arguments.end)
    return 0
