"""`vramscope import`: files of other tools, converted to a recording."""

import os
import signal
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope import __version__
from vramscope.engine.errors import OutputFileError, UsageError

from ..frame.emit import complain
from ..frame.errors import Interruption
from ..frame.flags import CAPACITY, add_old_flag, duration
from ..frame.parse import SubParsers, add_verb
from ..frame.progress import ProgressLine

if TYPE_CHECKING:
    from vramscope.engine.files.memory_trace.run import TraceFiles
    from vramscope.engine.model import Sample
    from vramscope.engine.recording import ImportedFile, RecordingIdentity, RecordingWriter
    from vramscope.engine.sampling.series_player import FileSource
    from vramscope.engine.sampling.series_source import JoinedSeries

DESCRIPTION = (
    "Convert files that other tools wrote to a recording, which replays and analyzes like any other."
)
EXAMPLES = """\
vramscope import gpu.csv -o run.vscope
vramscope import rank0.csv rank1.csv -o run.vscope    # joined on one clock
vramscope import memory_traces/30b_pp4_tp2 --capacity 80GiB -o run.vscope
vramscope import snapshot.pickle --capacity 80GiB -o oom.vscope"""
NOTES = """\
It recognizes a file by its content: series CSV, logs, tables, dmon and pmon of nvidia-smi,
gpustat JSON, recordings of all-smi, memory traces, PyTorch memory snapshots,
torch.profiler traces and memory timelines, logs of training frameworks with memory lines or out-of-memory
errors, memory.log of InternLM, reports and exported snapshots (JSON) of Tiny-Torch and vramscope, telemetry
of stormlog, output of `vramscope --json`, and recordings.

The recording notes which files it comes from and what was left out."""
EXIT_CODES: dict[int | str, str] = {
    0: "converted",
    2: "wrong flags, or a file that cannot be read or written",
    4: "a package of an extra is not installed",
    130: "interrupted; nothing is written",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(
        subparsers, common, "import", DESCRIPTION, examples=EXAMPLES, notes=NOTES, exit_codes=EXIT_CODES
    )
    parser.add_argument(
        "files",
        metavar="FILE",
        type=Path,
        nargs="+",
        help="a file, or a folder of memory traces; several files as one for each rank or device",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        required=True,
        help="the recording to write; must not exist yet",
    )
    parser.add_argument(
        "--capacity",
        metavar="SIZE",
        type=CAPACITY,
        help="memory of the devices, if the file does not contain it",
    )
    parser.add_argument(
        "--interval",
        metavar="TIME",
        dest="tick",
        type=duration(),
        help="time between samples (default: by the times in the file)",
    )
    add_old_flag(parser, "--tick", use="--interval", dest="tick", type=duration())


def run(arguments: Namespace) -> int:
    Importer(
        arguments.files, arguments.output, capacity_bytes=arguments.capacity, interval_s=arguments.tick
    ).run()
    return 0


PROGRAM = "vramscope import"
MOST_FILES = 512
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHOWN_NOTES = 12
_WITH_FINDINGS = ("status stream", "recording")
_FOUND_AGAIN = "findings are left out: the analyzers find them again"


class Importer:
    """Reads files of any known format and writes one recording, whole or not at all.

    Args:
        output: The recording; must not exist.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        output: Path,
        *,
        capacity_bytes: int | None,
        interval_s: float | None,
        program: str = PROGRAM,
    ) -> None:
        from vramscope.engine.files.base.input_file import show_path
        from vramscope.engine.files.base.output_file import check_writable
        from vramscope.engine.files.memory_trace.run import group_trace_files

        _check_paths(paths)
        check_writable(output)
        if output.exists() or output.is_symlink():
            raise OutputFileError(f"{show_path(output)}: exists already; choose another file with -o")
        self._inputs = group_trace_files(paths)
        self._output = output
        self._paths = [each if isinstance(each, Path) else each.path for each in self._inputs]
        self._capacity_bytes = capacity_bytes
        self._interval_s = interval_s
        self._program = program
        self._count = 0
        self._is_simulation_seen = [False for _ in self._inputs]
        self._devices: set[tuple[str, str]] = set()

    def run(self, *, is_quiet: bool = False) -> None:
        from vramscope.engine.files.base.output_file import place_output
        from vramscope.engine.recording import RecordingWriter
        from vramscope.engine.sampling.series_source import JoinedSeries

        with ExitStack() as stack, Interruption(_ENDING) as interruption:
            sources = [stack.enter_context(self._open(each, interruption)) for each in self._inputs]
            joined = JoinedSeries(
                list(zip(_name_files(self._paths), sources, strict=True)), self._output.stem
            )
            single = sources[0] if len(sources) == 1 else None
            identity = _identify(joined if single is None else single)
            with place_output(self._output) as part, RecordingWriter(part, identity) as writer:
                self._copy(joined, single, writer, interruption)
                writer.note_imported(self._describe(sources, joined.notes))
            count = writer.left_out
            samples = "sample" if count == 1 else "samples"
            left_out = [f"left out {count:,} {samples} that a recording cannot store"] if count else []
            if not is_quiet:
                self._print_summary(sources, (*joined.notes, *left_out))

    @contextmanager
    def _open(self, path: "Path | TraceFiles", interruption: Interruption) -> "Iterator[FileSource]":
        from vramscope.engine.sampling.series_source import open_series

        progress = ProgressLine(self._program)

        def follow(share: float) -> None:
            if interruption.is_asked:
                raise KeyboardInterrupt
            progress.show_share(share)

        try:
            source = open_series(
                path,
                capacity_bytes=self._capacity_bytes,
                interval_s=self._interval_s,
                on_read=follow,
                has_all_nodes=True,
            )
        finally:
            progress.clear()
        try:
            yield source
        finally:
            source.close()

    def _copy(
        self,
        joined: "JoinedSeries",
        single: "FileSource | None",
        writer: "RecordingWriter",
        interruption: Interruption,
    ) -> None:
        progress = ProgressLine(self._program)
        try:
            for number, sample in joined.samples() if single is None else zip(repeat(0), single.samples()):
                if interruption.is_asked:
                    raise KeyboardInterrupt
                writer.append(sample)
                self._note(number, sample)
                progress.show_share(joined.read_share, self._count)
        finally:
            progress.clear()

    def _note(self, number: int | None, sample: "Sample") -> None:
        self._count += 1
        self._devices.update((sample.node, device.uuid) for device in sample.devices)
        if number is not None:
            self._is_simulation_seen[number] |= _is_simulated(sample)

    def _describe(self, sources: "Sequence[FileSource]", notes: Sequence[str]) -> "list[ImportedFile]":
        """Return what the recording notes about its files; notes on all of them go to the first."""
        from vramscope.engine.files.base.input_file import show_path
        from vramscope.engine.recording import ImportedFile

        described = []
        for number, (path, source) in enumerate(zip(self._paths, sources, strict=True)):
            again = (_FOUND_AGAIN,) if source.format in _WITH_FINDINGS else ()
            is_seen = self._is_simulation_seen[number]
            is_known = source.format in _WITH_FINDINGS or is_seen
            is_simulated = is_seen if is_known else _detect_simulation(path, source)
            own = (*source.notes, *again, *(notes if number == 0 else ()))
            described.append(ImportedFile(show_path(path), source.format, source.clock, is_simulated, own))
        return described

    def _print_summary(self, sources: "Sequence[FileSource]", notes: Sequence[str]) -> None:
        from vramscope.engine.files.base.input_file import show_path
        from vramscope.engine.units import format_bytes

        sentences = [
            f"{show_path(path)}: {note}"
            for path, source in zip(self._paths, sources, strict=True)
            for note in source.notes
        ]
        sentences += notes
        for sentence in sentences[:_SHOWN_NOTES]:
            complain(sentence, program=PROGRAM)
        if len(sentences) > _SHOWN_NOTES:
            complain(f"{len(sentences) - _SHOWN_NOTES:,} more notes are in the recording", program=PROGRAM)
        size = format_bytes(self._output.stat().st_size)
        devices = "1 device" if len(self._devices) == 1 else f"{len(self._devices):,} devices"
        samples = "1 sample" if self._count == 1 else f"{self._count:,} samples"
        complain(f"wrote {samples} of {devices} to {show_path(self._output)} ({size})", program=PROGRAM)


def _identify(source: "FileSource | JoinedSeries") -> "RecordingIdentity":
    from vramscope.engine.recording import RecordingIdentity

    return RecordingIdentity(
        source.node, time.time(), __version__, interval_s=source.interval_s, series=os.urandom(8).hex()
    )


def _is_simulated(sample: "Sample") -> bool:
    return any(it.is_simulated for it in sample.devices) or any(it.is_simulated for it in sample.ranks)


def _detect_simulation(path: Path, source: "FileSource") -> bool | None:
    """Return whether a file is of a simulation; None where the format does not show it."""
    from vramscope.engine.files.memory_trace.reading import parse_trace_name
    from vramscope.engine.files.memory_trace.run import FILE_PATTERN
    from vramscope.engine.files.series.format import FORMATS

    if source.format != "memory trace":
        return FORMATS[source.format].is_simulated
    paths = path.glob(FILE_PATTERN) if path.is_dir() else [path]
    name = next((name for it in paths if (name := parse_trace_name(it.name)) is not None), None)
    return None if name is None else name.is_simulated


def _check_paths(paths: Sequence[Path]) -> None:
    from vramscope.engine.files.base.input_file import show_path

    if len(paths) > MOST_FILES:
        raise UsageError(f"{len(paths):,} files: expected at most {MOST_FILES}; import them in parts")
    seen: set[Path] = set()
    for path in paths:
        place = path.absolute()
        if place in seen:
            raise UsageError(f"{show_path(path)}: given twice; name it once")
        seen.add(place)


def _name_files(paths: Sequence[Path]) -> list[str]:
    """Return a name for each file: its own, or its path where two have the same name."""
    from vramscope.engine.files.base.input_file import show_name, show_path

    names = [show_name(path.absolute()) for path in paths]
    return [
        name if names.count(name) == 1 else show_path(path) for name, path in zip(names, paths, strict=True)
    ]
