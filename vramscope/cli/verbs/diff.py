"""`vramscope diff`: two runs compared, where and when they differ."""

import heapq
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vramscope.analyzers.diff import Comparison, RunDifference, RunSummarizer, RunSummary, compare_runs
from vramscope.analyzers.growth_renewal import renew_findings
from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.files.base.input_file import show_name, show_path
from vramscope.engine.model import Assessment, Finding, Sample
from vramscope.engine.settings import Settings
from vramscope.engine.units import parse_bytes

from ..frame.emit import can_draw, emit_annotations, emit_fitted, emit_json
from ..frame.flags import Reading, add_figure_flag, add_format_flags, build_look_flags, refuse, whole
from ..frame.parse import SubParsers, add_verb
from ..frame.settings import read_settings

if TYPE_CHECKING:
    from vramscope.analyzers.snapshot_summary.comparison import SnapshotDifference
    from vramscope.engine.agent.analyzer_host import AnalyzerHost

DESCRIPTION = (
    "Compare two runs: from which step on they differ, by how much, and what only one of them found; or two "
    "memory snapshots: what is new, gone or larger."
)
EXAMPLES = """\
vramscope diff yesterday.vscope today.vscope
vramscope diff base.vscope new.vscope --format text --fail-on +5%
vramscope diff base.vscope new.vscope --figure difference.pdf
vramscope diff base.pickle new.pickle --fail-on +100MiB"""
NOTES = """\
A and B are recordings, or anything that `vramscope import` reads: memory traces, series CSV, logs. All
differences are B minus A. A terminal gets a screen, a pipe gets text.

If both are memory snapshots of PyTorch, it compares what lived at the peak and at the end of each, by line,
module and kind of allocation, as text."""
EXIT_PARTED = 3
DEFAULT_ROWS, MOST_ROWS = 10, 10_000
EXIT_CODES: dict[int | str, str] = {
    0: "compared",
    2: "wrong flags, a file that cannot be read, or --fail-on where nothing can be compared",
    EXIT_PARTED: "they differ by more than --fail-on, or only B runs out of memory",
    4: "a package of an extra is not installed",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parents = [build_look_flags(), *common]
    parser = add_verb(
        subparsers, parents, "diff", DESCRIPTION, examples=EXAMPLES, notes=NOTES, exit_codes=EXIT_CODES
    )
    parser.add_argument("a", metavar="A", type=Path, help="the earlier run: a file, or a folder of traces")
    parser.add_argument("b", metavar="B", type=Path, help="the run to compare with it")
    output = parser.add_argument_group("output")
    add_format_flags(
        output,
        text="text: print the comparison, also in a terminal; github: annotations of GitHub Actions for what "
        "grew",
        json="print one JSON object that names its schema",
        more=("github",),
        old=("--text", "--once"),
    )
    add_figure_flag(output, "draw the rank or device that differs first")
    output.add_argument(
        "--top",
        metavar="N",
        type=whole(1, MOST_ROWS, f"a whole number from 1 to {MOST_ROWS}"),
        help=f"rows of each list of two snapshots (default {DEFAULT_ROWS})",
    )
    output.add_argument(
        "--fail-on",
        metavar="SIZE|PERCENT",
        type=Reading(read_threshold),
        help="exit with 3 if they differ by more: 500MiB or 5%% either way, +500MiB or +5%% if B needs more",
    )


def run(arguments: Namespace) -> int:
    threshold: Threshold | None = arguments.fail_on
    figure = arguments.figure
    if figure is not None:
        figure.check()
    settings = read_settings(arguments)
    if are_snapshots(arguments.a, arguments.b):
        refuse({"--figure": figure}, "draws two runs, and these are two memory snapshots")
        return _diff_snapshots(arguments, settings)
    refuse({"--top": arguments.top}, "needs two memory snapshots")
    code = 0
    comparison: Comparison | None = None
    if arguments.format is not None or arguments.json or figure is not None or not can_draw(settings):
        comparison = _compare(arguments)
        if arguments.format == "github":
            from vramscope.exporters.diff.text import annotate_difference

            is_crossed = threshold is not None and threshold.is_crossed(comparison.difference)
            emit_annotations(annotate_difference(comparison, is_crossed=is_crossed))
        else:
            _print(comparison, settings, is_json=arguments.json)
    else:
        from vramscope.tui.diff.screen import show_difference

        code, comparison = show_difference(
            lambda tell: compare_files(arguments.a, arguments.b, tell), settings=settings
        )
    if figure is not None and comparison is not None:
        from vramscope.exporters.diff.text import draw_difference

        for path in figure.list_files("difference"):
            draw_difference(comparison, path)
    if threshold is None or comparison is None or code != 0:
        return code
    difference = comparison.difference
    if threshold.is_crossed(difference):
        return EXIT_PARTED
    _refuse_nothing(arguments, is_anything=any(subject.figures for subject in difference.subjects))
    return 0


def _refuse_nothing(arguments: Namespace, *, is_anything: bool) -> None:
    """Refuse to pass a limit that nothing was compared with: a script would take it for a good run."""
    if not is_anything:
        names = " and ".join(show_path(path) for path in (arguments.a, arguments.b))
        raise InputFileError(f"{names}: --fail-on cannot be decided, because nothing was measured in both")


def are_snapshots(a: Path, b: Path) -> bool:
    """Return whether both files are memory snapshots; one that cannot be read is refused later."""
    from vramscope.engine.files.flight_record import recognize_memory_file

    try:
        return all(path.is_file() and recognize_memory_file(path) == "snapshot" for path in (a, b))
    except InputFileError:
        return False


def compare_snapshot_files(a: Path, b: Path, top: int = DEFAULT_ROWS) -> "SnapshotDifference":
    from vramscope.analyzers.snapshot_summary.comparison import compare_snapshots
    from vramscope.engine.files.memory_snapshot import read_memory_snapshot

    return compare_snapshots(read_memory_snapshot(a), read_memory_snapshot(b), _name_files(a, b), top)


def _diff_snapshots(arguments: Namespace, settings: Settings) -> int:
    from vramscope.exporters.diff.snapshots import (
        annotate_snapshot_difference,
        describe_snapshot_difference,
    )

    threshold: Threshold | None = arguments.fail_on
    difference = compare_snapshot_files(arguments.a, arguments.b, arguments.top or DEFAULT_ROWS)
    is_crossed = threshold is not None and threshold.is_crossed_by_snapshots(difference)
    if arguments.json:
        emit_json(difference)
    elif arguments.format == "github":
        emit_annotations(annotate_snapshot_difference(difference, is_crossed=is_crossed))
    else:
        emit_fitted(settings, lambda width: describe_snapshot_difference(difference, width))
    if threshold is not None and not is_crossed:
        _refuse_nothing(arguments, is_anything=bool(difference.devices))
    return EXIT_PARTED if is_crossed else 0


def _compare(arguments: Namespace) -> "Comparison":
    from ..frame.progress import ProgressLine

    progress = ProgressLine(PROGRAM)
    try:
        return compare_files(arguments.a, arguments.b, progress.show_share)
    finally:
        progress.clear()


def _print(comparison: "Comparison", settings: Settings, *, is_json: bool) -> None:
    if is_json:
        emit_json(comparison.difference)
        return
    from vramscope.exporters.diff.text import describe_difference

    emit_fitted(settings, lambda width: describe_difference(comparison, width))


PROGRAM = "vramscope diff"
_PERCENT = re.compile(r"^(\d+(?:\.\d+)?)\s*%$")
# Called with the share read so far, from 0 to 1 or None, and the number of samples.
Progress = Callable[[float | None, int], object]


class Threshold(NamedTuple):
    size_bytes: int | None
    percent: float | None
    # Whether only more in B counts.
    is_upward: bool

    def is_crossed(self, difference: RunDifference) -> bool:
        """Return whether any value differs by more, or only B ran out of memory."""
        if any(found.kind == "oom_met" for found in difference.found_only_in_b):
            return True
        for subject in difference.subjects:
            for figure in subject.figures:
                base = figure.a_bytes
                for size in (figure.difference_bytes, figure.final_difference_bytes):
                    apart = size if self.is_upward else abs(size)
                    if figure.parts_at is not None and self._is_more(apart, base):
                        return True
        return False

    def is_crossed_by_snapshots(self, difference: "SnapshotDifference") -> bool:
        """Return whether allocated or reserved bytes differ by more at a peak or end, or only B failed."""
        for device in difference.devices:
            if device.has_failed_in_b_only:
                return True
            for moment in device.moments:
                levels = (
                    (moment.a.allocated_bytes, moment.b.allocated_bytes),
                    (moment.a.reserved_bytes, moment.b.reserved_bytes),
                )
                for base, size in levels:
                    if base is None or size is None:
                        continue
                    apart = size - base if self.is_upward else abs(size - base)
                    if self._is_more(apart, base):
                        return True
        return False

    def _is_more(self, apart_bytes: int, base_bytes: int) -> bool:
        if self.size_bytes is not None:
            return apart_bytes > self.size_bytes
        return apart_bytes > 0 and 100.0 * apart_bytes > (self.percent or 0.0) * base_bytes


def read_threshold(text: str) -> Threshold:
    """Return how far runs may differ, from `500MiB`, `5%`, or `+5%` for only more in B."""
    is_upward = text.startswith("+")
    plain = text.removeprefix("+")
    match = _PERCENT.match(plain)
    if match is not None:
        return Threshold(None, float(match.group(1)), is_upward)
    try:
        return Threshold(parse_bytes(plain), None, is_upward)
    except UsageError as error:
        raise UsageError("expected a size such as 500MiB or a share such as 5%") from error


def compare_files(a: Path, b: Path, progress: Progress = lambda share, samples: None) -> Comparison:
    """Read two runs and return where they differ.

    Two recordings of `vramscope record` are compared by their recorded findings. Otherwise the analyzers run
    on both.
    """
    recordings = [_list_recordings(path) for path in (a, b)]
    is_recorded = all(map(_holds_findings, recordings))
    one, other = (
        _read_run(path, recordings[number], _halve(progress, number), is_recorded=is_recorded)
        for number, path in enumerate((a, b))
    )
    return compare_runs(
        one.summary,
        other.summary,
        files=_name_files(a, b),
        formats=(one.format, other.format),
    )


def _name_files(a: Path, b: Path) -> tuple[str, str]:
    names = show_name(a), show_name(b)
    return names if names[0] != names[1] else (show_path(a), show_path(b))


class _Run(NamedTuple):
    summary: RunSummary
    format: str


def _halve(progress: Progress, number: int) -> Progress:
    """Return the progress of one of two files as half of the whole."""

    def show(share: float | None, samples: int) -> None:
        progress(None if share is None else (number + share) / 2, samples)

    return show


def _list_recordings(path: Path) -> list[Path]:
    """Return the recording at a path, or those in the folder; nothing for other files."""
    from vramscope.engine.files.series.format import recognize_series

    if path.is_dir():
        return sorted(path.glob("*.vscope"))
    return [path] if recognize_series(path) == "recording" else []


def _holds_findings(paths: Sequence[Path]) -> bool:
    from vramscope.engine.recording import Recording

    for path in paths:
        with Recording(path) as recording:
            if recording.identity.imported:
                return False
    return bool(paths)


def _read_run(path: Path, recordings: Sequence[Path], progress: Progress, *, is_recorded: bool) -> _Run:
    summarizer = RunSummarizer()
    host = None if is_recorded else _make_host()
    assessments: dict[tuple[str | None, int | None], Assessment] = {}
    opened = _RecordingInput(recordings) if recordings else _SeriesInput(path)
    with closing(opened):
        for sample in opened.samples():
            summarizer.observe(sample)
            if host is not None:
                for finding in host.observe(sample):
                    summarizer.note_finding(finding)
                assessments |= {(it.device_uuid, it.pid): it for it in host.assess()}
            progress(opened.read_share(sample), summarizer.samples_read)
        for finding in opened.findings() if is_recorded else ():
            summarizer.note_finding(finding)
        summary = summarizer.finish()
        summary.findings = [*renew_findings(summary.findings, [*assessments.values()], summary.end_s)]
        summary.notes.extend(opened.notes())
    if not summary.samples:
        why = "; ".join(summary.notes) if recordings else ""
        raise InputFileError(f"{show_path(path)}: no samples to compare; {why or 'expected at least one'}")
    return _Run(summary, opened.format)


def _make_host() -> "AnalyzerHost":
    from vramscope.engine.agent.analyzer_host import AnalyzerHost
    from vramscope.engine.plugins import make_analyzers

    return AnalyzerHost(make_analyzers().made)


class _RecordingInput:
    """Samples of all nodes in a recording, or in the recordings of a folder, in the order of time."""

    def __init__(self, paths: Sequence[Path]) -> None:
        from vramscope.engine.recording import Recording

        self.format = "recording" if len(paths) == 1 else f"{len(paths):,} recordings"
        with ExitStack() as opened:
            self._recordings = [opened.enter_context(Recording(path)) for path in paths]
            self._stack = opened.pop_all()
        spans = [span for recording in self._recordings if (span := recording.span) is not None]
        self._start_s = min((start_s for start_s, _ in spans), default=0.0)
        self._end_s = max((end_s for _, end_s in spans), default=0.0)

    def samples(self) -> Iterator[Sample]:
        return heapq.merge(*(it.samples() for it in self._recordings), key=attrgetter("time_s"))

    def findings(self) -> Iterator[Finding]:
        return chain.from_iterable(recording.findings() for recording in self._recordings)

    def read_share(self, sample: Sample) -> float | None:
        length_s = self._end_s - self._start_s
        return (sample.time_s - self._start_s) / length_s if length_s > 0 else None

    def notes(self) -> tuple[str, ...]:
        told = (recording.damage.sentence for recording in self._recordings)
        return tuple(sentence for sentence in told if sentence is not None)

    def close(self) -> None:
        self._stack.close()


class _SeriesInput:
    def __init__(self, path: Path) -> None:
        from vramscope.engine.sampling.series_source import open_series

        self._series = open_series(path)
        self.format: str = self._series.format

    def samples(self) -> Iterator[Sample]:
        return self._series.samples()

    def findings(self) -> Iterator[Finding]:
        return iter(())

    def read_share(self, sample: Sample) -> float | None:
        return self._series.read_share

    def notes(self) -> tuple[str, ...]:
        return self._series.notes

    def close(self) -> None:
        self._series.close()
