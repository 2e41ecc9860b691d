"""`vramscope export`: a recording in the formats of other tools, or as figures."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError

from ..frame.diagnostics import complain
from ..frame.figure_flag import FigureTarget, read_figure, read_old_figure
from ..frame.registry import SubParsers

if TYPE_CHECKING:
    from ..exporting import ExportFormat

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
  vramscope export run.vscope --figure run.pdf         memory of one device, or the heat map of several
  vramscope export run.vscope --figure plots/          all: each device, the heat map, the peaks

--from and --to: seconds of the recording, +TIME after its beginning, or a date and time (2026-01-31T10:00)
exit codes: 0 exported, 2 usage, or a file that cannot be read or written, 130 interrupted: nothing written"""
FORMATS = {
    "csv": "series CSV, which --input and import read again",
    "jsonl": "JSON lines, as vramscope --json prints them",
    "prometheus": "OpenMetrics text with timestamps",
    "parquet": "Parquet; needs vramscope[parquet]",
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
    parser.add_argument("file", metavar="FILE", type=Path, nargs="?", help="the recording")
    formats = parser.add_mutually_exclusive_group(required=True)
    for name, text in FORMATS.items():
        formats.add_argument(f"--{name}", dest="export_format", action="store_const", const=name, help=text)
    formats.add_argument(
        "--figure",
        metavar="FILE|DIR/",
        nargs="?",
        const="",
        help="draw memory of one device, or the heat map of several, as .pdf, .png or .svg; into DIR/ all",
    )
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
    from ..frame.termination import unwinding_on_signals

    figure = _read_figure(arguments)
    if arguments.file is None:
        raise UsageError("the recording is missing; see `vramscope export --help`")
    kind: ExportFormat = "figure" if figure is not None else arguments.export_format
    output = arguments.output if figure is None else None
    with unwinding_on_signals():
        export_recording(
            arguments.file, kind, output, figure=figure, start=arguments.start, end=arguments.end
        )
    return 0


def _read_figure(arguments: Namespace) -> FigureTarget | None:
    """Return where figures go; `--figure -o DIR` is an old spelling.

    Raises:
        UsageError: It is not said, or said twice.
    """
    text: str | None = arguments.figure
    if text is None:
        return None
    if arguments.file is None and text:  # the old flag stood before the recording and had no value
        arguments.file = Path(text)
        text = ""
    output: Path | None = arguments.output
    if text and output is not None:
        raise UsageError("-o does not go with --figure: write --figure FILE or --figure DIR/")
    if text:
        return read_figure(text)
    if output is None:
        raise UsageError(
            "--figure: where to? Write --figure run.pdf (or .png, .svg), or --figure plots/ for all"
        )
    target = read_old_figure(str(output))
    shown = f"{output}/" if target.is_folder else str(output)
    complain(f"--figure -o {output} is an old spelling: use --figure {shown}", program="vramscope export")
    return target
