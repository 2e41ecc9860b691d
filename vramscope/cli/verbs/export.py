"""`vramscope export`: a recording in the formats of other tools, or as figures."""

import io
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.units import parse_duration

from ..frame.emit import complain
from ..frame.flags import FigureTarget, given_by, read_figure, read_old_figure, refuse
from ..frame.parse import SubParsers, add_verb
from ..frame.progress import ProgressLine

if TYPE_CHECKING:
    from vramscope.engine.model import Sample
    from vramscope.engine.recording import Recording
    from vramscope.exporters.recording.server_rows import ServerRow

DESCRIPTION = "Convert a recording to CSV, JSON lines, OpenMetrics, Parquet, Perfetto tracks or figures."
EXAMPLES = """\
vramscope export run.vscope --csv -o run.csv
vramscope export run.vscope --jsonl --from +10m --to +20m
vramscope export run.vscope --csv --ranks -o ranks.csv
vramscope export run.vscope --csv --serving -o servers.csv
vramscope export run.vscope --perfetto -o run.json
vramscope export run.vscope --prometheus -o run.om
promtool tsdb create-blocks-from openmetrics run.om data
vramscope export run.vscope --figure run.pdf   # memory of the device
vramscope export run.vscope --figure plots/    # all figures"""
NOTES = """\
WHEN is seconds as in the recording, +TIME after its beginning, or a date and time (2026-01-31T10:00).

--serving writes a row for each reading of each engine; its counters are since the start of the server.

What was not measured is empty or null. Times are those of the recording: seconds since 1970, or since the
start of the run where it was converted from traces that count from there."""
EXIT_CODES: dict[int | str, str] = {
    0: "exported",
    2: "wrong flags, or a file that cannot be read or written",
    4: "a package of an extra is not installed",
    130: "interrupted; nothing is written",
}
FORMATS = {
    "csv": "series CSV, which --input and `vramscope import` read",
    "jsonl": "JSON lines as `vramscope --json` prints them",
    "prometheus": "OpenMetrics text with timestamps",
    "parquet": "Parquet; needs pip install 'vramscope[parquet]'",
    "perfetto": "counter tracks and steps, for ui.perfetto.dev",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(
        subparsers,
        common,
        "export",
        DESCRIPTION,
        examples=EXAMPLES,
        notes=NOTES,
        exit_codes=EXIT_CODES,
        usage=f"vramscope export FILE ({' | '.join(map('--{}'.format, FORMATS))} | --figure WHERE) [flags]",
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
        help="draw the memory of one device, or a heat map of several (.pdf, .png or .svg); DIR/ gets all "
        "figures",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="write to this file (default: standard output)"
    )
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument(
        "--ranks",
        dest="rows",
        action="store_const",
        const="ranks",
        default="devices",
        help="with --csv or --parquet: a row for each training process, not device",
    )
    rows.add_argument(
        "--serving",
        dest="rows",
        action="store_const",
        const="servers",
        help="with --csv or --parquet: a row for each engine of a server of models, not device",
    )
    parser.add_argument("--from", dest="start", metavar="WHEN", help="leave out everything before this time")
    parser.add_argument("--to", dest="end", metavar="WHEN", help="leave out everything after this time")


def run(arguments: Namespace) -> int:
    from ..frame.errors import unwinding_on_signals

    figure = _read_figure(arguments)
    if arguments.file is None:
        raise UsageError("FILE is missing: name the recording; see `vramscope export --help`")
    kind: ExportFormat = "figure" if figure is not None else arguments.export_format
    output = arguments.output if figure is None else None
    if kind not in ("csv", "parquet"):
        given = {"--ranks": arguments.rows == "ranks", "--serving": arguments.rows == "servers"}
        refuse(given, "needs --csv or --parquet")
    with unwinding_on_signals():
        export_recording(
            arguments.file,
            kind,
            output,
            figure=figure,
            start=arguments.start,
            end=arguments.end,
            rows=arguments.rows,
        )
    return 0


def _read_figure(arguments: Namespace) -> FigureTarget | None:
    """Return where figures go; `--figure -o DIR` is an old spelling."""
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
        with given_by("--figure", text):
            return read_figure(text)
    if output is None:
        raise UsageError(
            "--figure: expected a file (run.pdf, .png or .svg), or a folder for all figures (plots/)"
        )
    target = read_old_figure(str(output))
    shown = f"{output}/" if target.is_folder else str(output)
    complain(f"--figure -o {output} is an old spelling: use --figure {shown}", program="vramscope export")
    return target


PROGRAM = "vramscope export"
GAP_TICKS = 3.5
ExportFormat = Literal["csv", "jsonl", "prometheus", "parquet", "perfetto", "figure"]
_Clock = Literal["wall", "trace"]
_Rows = Literal["devices", "ranks", "servers"]


def export_recording(
    path: Path,
    kind: ExportFormat,
    output: Path | None,
    *,
    start: str | None,
    end: str | None,
    figure: FigureTarget | None = None,
    rows: _Rows = "devices",
) -> None:
    """Write a recording, and note on stderr what was left out.

    Args:
        output: None for standard output.
        start: Value of `--from`; None for the beginning.
        end: Value of `--to`; None for the end.
        figure: Where figures go, for the kind `figure`.
        rows: What has a row, for `csv` and `parquet`.
    """

    from vramscope.engine.extras import require_package
    from vramscope.engine.files.base.input_file import show_path
    from vramscope.engine.files.base.output_file import open_output
    from vramscope.engine.recording import Recording

    if kind == "parquet":
        if output is None:
            raise UsageError("--parquet writes a binary file: name it with -o FILE")
        require_package("pyarrow")
    if output is not None and output.exists() and path.exists() and output.samefile(path):
        raise UsageError(f"-o {show_path(output)}: this is the recording itself; name another file")
    with Recording(path) as recording:
        span_s = recording.span
        if span_s is None:
            raise InputFileError(f"{show_path(path)}: no samples to export; {recording.why_empty}")
        source = _Source(
            recording, span_s, _read_moment("--from", start, span_s), _read_moment("--to", end, span_s)
        )
        if figure is not None:
            figure.check()
        try:
            if figure is not None:
                _draw(source, figure)
            else:
                with nullcontext(sys.stdout.buffer) if output is None else open_output(output) as stream:
                    _write(source, kind, stream, rows)
        finally:
            source.progress.clear()
        for sentence in source.notes(kind):
            complain(sentence, program=PROGRAM)


class _Source:
    def __init__(
        self, recording: "Recording", span_s: tuple[float, float], start_s: float | None, end_s: float | None
    ) -> None:
        from vramscope.engine.files.base.input_file import show_path
        from vramscope.engine.files.base.series_reader import WALL_CLOCK_FROM_S
        from vramscope.exporters.recording.rows import DeviceRowReader

        self.recording = recording
        self.start_s = span_s[0] if start_s is None else max(start_s, span_s[0])
        self.end_s = span_s[1] if end_s is None else min(end_s, span_s[1])
        self.clock: _Clock = "wall" if span_s[0] >= WALL_CLOCK_FROM_S else "trace"
        self.rows = DeviceRowReader(has_nodes=len(recording.nodes) > 1)
        self.progress = ProgressLine(PROGRAM)
        self.samples_read = 0
        if self.start_s > self.end_s:
            raise InputFileError(
                f"{show_path(recording.path)}: no samples between --from and --to; the recording goes from "
                f"{span_s[0]:.10g} s to {span_s[1]:.10g} s"
            )

    def samples(self) -> "Iterator[Sample]":
        """Yield the samples between `--from` and `--to`, and show the progress."""
        from vramscope.engine.files.base.input_file import show_path

        length_s = self.end_s - self.start_s
        for sample in self.recording.samples(self.start_s, self.end_s):
            yield sample
            self.samples_read += 1
            share = (sample.time_s - self.start_s) / length_s if length_s > 0 else None
            self.progress.show_share(share, self.samples_read)
        damage = self.recording.damage.sentence
        if not self.samples_read and damage is not None:
            raise InputFileError(f"{show_path(self.recording.path)}: no sample can be exported: {damage}")

    def notes(self, kind: ExportFormat) -> Iterator[str]:
        """Yield sentences about what was left out, and what can be misread."""
        damage = self.recording.damage.sentence
        if damage is not None:
            yield damage
        if self.rows.late:
            yield f"left out {self.rows.late:,} readings that are not newer than the one before"
        if kind == "prometheus" and self.clock == "trace":
            yield "times count from the start of the run: Prometheus will show them in 1970"


def _write(source: _Source, kind: ExportFormat, stream: BinaryIO, rows: _Rows) -> None:
    if kind == "csv":
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        _write_csv(source, text, rows)
        text.flush()
        text.detach()
    elif kind == "jsonl":
        from vramscope.exporters.json_lines import encode_line
        from vramscope.exporters.recording.rows import read_statuses

        stream.writelines(map(encode_line, read_statuses(source.recording, source.samples())))
    elif kind == "prometheus":
        from vramscope.exporters.recording.openmetrics import write_metrics

        write_metrics(source.rows.rows(source.samples()), stream)
    elif kind == "perfetto":
        from vramscope.exporters.recording.ranks import write_tracks

        write_tracks(source.samples(), stream)
    else:
        _write_parquet(source, stream, rows)


def _write_csv(source: _Source, text: io.TextIOWrapper, rows: _Rows) -> None:
    if rows == "ranks":
        from vramscope.exporters.recording.ranks import write_ranks_csv

        write_ranks_csv(source.samples(), text)
    elif rows == "servers":
        from vramscope.exporters.recording.server_rows import write_server_csv

        write_server_csv(_read_servers(source), text)
    else:
        from vramscope.exporters.recording.rows import write_csv

        write_csv(source.rows.rows(source.samples()), text)


def _write_parquet(source: _Source, stream: BinaryIO, rows: _Rows) -> None:
    if rows == "ranks":
        from vramscope.exporters.recording.ranks import write_ranks_parquet

        write_ranks_parquet(source.samples(), stream)
    elif rows == "servers":
        from vramscope.exporters.recording.server_rows import write_server_parquet

        write_server_parquet(_read_servers(source), stream)
    else:
        from vramscope.exporters.recording.rows import write_parquet

        write_parquet(source.rows.rows(source.samples()), stream)


def _read_servers(source: _Source) -> "Iterator[ServerRow]":
    from vramscope.engine.files.base.input_file import show_path
    from vramscope.exporters.recording.server_rows import ServerRowReader

    rows = ServerRowReader().rows(source.samples())
    first = next(rows, None)
    if first is None:
        raise InputFileError(
            f"{show_path(source.recording.path)}: no server of models in it; expected a recording of a node "
            "that serves one, or of one named with --serving"
        )
    return chain((first,), rows)


def _draw(source: _Source, target: FigureTarget) -> None:
    from vramscope.engine.files.base.input_file import show_name, show_path
    from vramscope.exporters.recording.figures import FigureRecorder

    recording = source.recording
    interval_s = recording.identity.interval_s or _find_interval(source)
    recorder = FigureRecorder(source.clock, GAP_TICKS * interval_s)
    recorder.record(source.rows.rows(source.samples()))
    subtitle = f"{source.samples_read:,} samples of {show_name(recording.path)}"
    source.progress.clear()
    if target.file is not None:
        recorder.write_main(recording.findings(), target.file, subtitle=subtitle)
        complain(f"wrote the figure {show_path(target.file)}", program=PROGRAM)
        return
    with ProgressLine(PROGRAM, "devices drawn") as progress:
        files = recorder.write(
            recording.findings(), target.make(), subtitle=subtitle, on_progress=progress.show_count
        )
    complain(f"wrote {len(files)} figures to {show_path(target.path)}", program=PROGRAM)


def _find_interval(source: _Source) -> float:
    first = next(source.recording.samples(source.start_s, source.end_s), None)
    return 1.0 if first is None or not first.interval_s > 0 else first.interval_s


def _read_moment(flag: str, text: str | None, span_s: tuple[float, float]) -> float | None:
    if text is None:
        return None
    try:
        if text.startswith("+"):
            return span_s[0] + parse_duration(text[1:])
        return float(text)
    except UsageError as error:
        raise UsageError(f"{flag} {text}: {error}") from error
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"{flag} {text}: expected seconds, +TIME after the beginning, or a time such as 2026-01-31T10:00"
        ) from error
