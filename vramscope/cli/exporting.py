"""Writes a recording in a format of others."""

import io
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Literal

from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.files.base.input_file import show_name, show_path
from vramscope.engine.files.base.output_file import open_output
from vramscope.engine.files.base.series_record import WALL_CLOCK_FROM_S
from vramscope.engine.model import Sample
from vramscope.engine.recording import Recording
from vramscope.engine.units import parse_duration
from vramscope.exporters.recording.rows import RowReader

from .frame.diagnostics import complain
from .frame.figure_flag import FigureTarget
from .frame.progress import ProgressLine

PROGRAM = "vramscope export"
GAP_TICKS = 3.5
ExportFormat = Literal["csv", "jsonl", "prometheus", "parquet", "figure"]
_Clock = Literal["wall", "trace"]


def export_recording(
    path: Path,
    kind: ExportFormat,
    output: Path | None,
    *,
    start: str | None,
    end: str | None,
    figure: FigureTarget | None = None,
) -> None:
    """Write a recording, and say on stderr what was left out.

    Args:
        path: The recording.
        kind: What to write.
        output: The file; None for standard output.
        start: When to begin, as a person writes it; None for its beginning.
        end: When to end.
        figure: Where figures go, where `kind` is that.

    Raises:
        UsageError: A time makes no sense, the output is the recording itself, or the format needs a file or
            a library.
        InputFileError: It is no recording, or nothing of it lies between the times.
        OutputFileError: The file cannot be written.
    """
    if kind == "parquet" and output is None:
        raise UsageError("--parquet: writes a binary file: name it with -o FILE")
    if output is not None and output.exists() and path.exists() and output.samefile(path):
        raise UsageError(f"-o {show_path(output)}: is the recording itself; name another file")
    with Recording(path) as recording:
        span_s = recording.span
        if span_s is None:
            raise InputFileError(f"{show_path(path)}: no samples in it; expected at least one to export")
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
                    _write(source, kind, stream)
        finally:
            source.progress.clear()
        for sentence in source.notes(kind):
            complain(sentence, program=PROGRAM)


class _Source:
    """The samples of a recording within a span, counted."""

    def __init__(
        self, recording: Recording, span_s: tuple[float, float], start_s: float | None, end_s: float | None
    ) -> None:
        self.recording = recording
        self.start_s = span_s[0] if start_s is None else max(start_s, span_s[0])
        self.end_s = span_s[1] if end_s is None else min(end_s, span_s[1])
        self.clock: _Clock = "wall" if span_s[0] >= WALL_CLOCK_FROM_S else "trace"
        self.rows = RowReader(has_nodes=len(recording.nodes) > 1)
        self.progress = ProgressLine(PROGRAM)
        self.samples_read = 0
        if self.start_s > self.end_s:
            raise InputFileError(
                f"{show_path(recording.path)}: holds {span_s[0]:.10g} s to {span_s[1]:.10g} s; "
                "nothing of it lies between --from and --to"
            )

    def samples(self) -> Iterator[Sample]:
        """Yield them, and tell how far it is.

        Raises:
            InputFileError: None of them can be read.
        """
        length_s = self.end_s - self.start_s
        for sample in self.recording.samples(self.start_s, self.end_s):
            yield sample
            self.samples_read += 1
            share = (sample.time_s - self.start_s) / length_s if length_s > 0 else None
            self.progress.show_share(share, self.samples_read)
        damage = self.recording.damage.sentence
        if not self.samples_read and damage is not None:
            raise InputFileError(f"{show_path(self.recording.path)}: nothing of it can be exported: {damage}")

    def notes(self, kind: ExportFormat) -> Iterator[str]:
        """Yield sentences about what was left out or may be taken for something else."""
        damage = self.recording.damage.sentence
        if damage is not None:
            yield damage
        if self.rows.late:
            yield f"readings not newer than the one before were left out: {self.rows.late:,}"
        if kind == "prometheus" and self.clock == "trace":
            yield "times count from the start of the run, not from 1970: Prometheus would put them there"


def _write(source: _Source, kind: ExportFormat, stream: BinaryIO) -> None:
    if kind == "csv":
        from vramscope.exporters.recording.rows import write_csv

        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        write_csv(source.rows.rows(source.samples()), text)
        text.flush()
        text.detach()
    elif kind == "jsonl":
        from vramscope.exporters.json_lines import encode_line
        from vramscope.exporters.recording.rows import read_statuses

        stream.writelines(map(encode_line, read_statuses(source.recording, source.samples())))
    elif kind == "prometheus":
        from vramscope.exporters.recording.rows import write_metrics

        write_metrics(source.rows.rows(source.samples()), stream)
    else:
        from vramscope.exporters.recording.rows import write_parquet

        write_parquet(source.rows.rows(source.samples()), stream)


def _draw(source: _Source, target: FigureTarget) -> None:
    from vramscope.exporters.recording.figures import FigureRecorder

    recording = source.recording
    interval_s = recording.identity.interval_s or _find_interval(source)
    recorder = FigureRecorder(source.clock, GAP_TICKS * interval_s)
    recorder.record(source.rows.rows(source.samples()))
    subtitle = f"{source.samples_read:,} samples of {show_name(recording.path)}"
    source.progress.clear()
    if target.file is not None:
        recorder.write_main(recording.findings(), target.file, subtitle=subtitle)
        complain(f"the figure is in {show_path(target.file)}", program=PROGRAM)
        return
    with ProgressLine(PROGRAM, "devices drawn") as progress:
        files = recorder.write(
            recording.findings(), target.make(), subtitle=subtitle, on_progress=progress.show_count
        )
    complain(f"{len(files)} figures written to {show_path(target.path)}", program=PROGRAM)


def _find_interval(source: _Source) -> float:
    first = next(source.recording.samples(source.start_s, source.end_s), None)
    return 1.0 if first is None or not first.interval_s > 0 else first.interval_s


def _read_moment(flag: str, text: str | None, span_s: tuple[float, float]) -> float | None:
    """Return a time in seconds of the recording's clock.

    Raises:
        UsageError: It is none.
    """
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
