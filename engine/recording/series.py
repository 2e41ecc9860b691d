"""A recording in several files, so that none grows without bound and old ones can be deleted."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from ..clock import Clock, SystemClock
from ..errors import InputFileError, OutputFileError
from ..files.base.input_file import show_name, show_path
from ..model import Assessment, Finding, Sample
from .contents import EventKind, RecordingIdentity
from .recording import Recording
from .sqlite import RecordingStoppedError
from .writer import RecordingWriter

# Between two checks for old files.
KEEP_LOOK_S = 600.0
# Between two checks that the file still has its name.
PLACE_LOOK_S = 1.0
_SIDE_FILES = ("-wal", "-shm", "-journal")


class RecordingSeries:
    """Writes `run.vscope`, then `run.0001.vscope`, and so on; one file without rotation.

    An existing recording is continued: its newest file with rotation, else the file itself. Each file but the
    first begins with the findings that were open, so that it can be read alone.

    Args:
        identity: `series` names the files that belong together.
        rotate_bytes: Size at which the next file begins; None for never.
        keep_s: Age of the newest sample at which a file of this series is deleted; None for never.
    """

    def __init__(
        self,
        path: Path,
        identity: RecordingIdentity,
        *,
        rotate_bytes: int | None = None,
        keep_s: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._path = path
        self._rotate_bytes = rotate_bytes
        self._keep_s = keep_s
        self._clock = clock or SystemClock()
        self._open_findings: dict[str, Finding] = {}
        self._assessments: tuple[Assessment, ...] = ()
        self._newest: dict[str, float] = {}
        self._look_due_s = 0.0
        self._place_due_s = 0.0
        # What somebody else did to a file, and where the recording continues; None while nothing
        # was.
        self.moved: str | None = None
        # What was done with files, for stderr.
        self.notes: list[str] = []
        # Added by this process, without samples that no file can hold.
        self.samples = self.device_samples = self.left_out = 0
        self.files = 0
        self._closed_bytes = 0
        number = max((number for number, _ in self._find_files()), default=0) if rotate_bytes else 0
        self._writer = self._open(msgspec.structs.replace(identity, number=number))

    @property
    def path(self) -> Path:
        return self._writer.path

    @property
    def identity(self) -> RecordingIdentity:
        return self._writer.identity

    @property
    def continued_s(self) -> float | None:
        """Time of the newest sample that the present file had when it was opened, or None."""
        return self._writer.continued_s

    @property
    def size_bytes(self) -> int:
        return self._writer.size_bytes

    @property
    def written_bytes(self) -> int:
        return self._closed_bytes + max(0, self._writer.size_bytes - self._present_bytes)

    def append(self, sample: Sample) -> None:
        """Add a sample; raises `OutputFileError` if the disk is full or the file is gone: nothing more can be
        written.
        """
        left_out = self._writer.left_out
        self._do(lambda: self._writer.append(sample))
        self._newest[sample.node] = sample.time_s
        is_kept = self._writer.left_out == left_out
        self.samples += is_kept
        self.left_out += not is_kept
        self.device_samples += len(sample.devices) if is_kept else 0

    def tell(
        self, node: str, findings: Sequence[Finding], assessments: Sequence[Assessment] | None = None
    ) -> None:
        """Add what analyzers reported after the newest sample of a node; raises as `append`."""
        self._do(lambda: self._writer.tell(node, findings, assessments))
        for finding in findings:
            if finding.is_open:
                self._open_findings[finding.id] = finding
            else:
                self._open_findings.pop(finding.id, None)
        if assessments is not None:
            self._assessments = tuple(assessments)

    def add_event(self, kind: EventKind, text: str) -> None:
        """Add an event that is not in the samples; raises as `append`."""
        self._do(lambda: self._writer.add_event(kind, text))

    def flush(self) -> None:
        """Commit, and start the next file if this one is large enough, or gone; raises as `append`."""
        self._do(lambda: self._writer.flush())  # noqa: PLW0108 - the second try is with a new writer
        if self._clock.monotonic_s() >= self._place_due_s:
            self._place_due_s = self._clock.monotonic_s() + PLACE_LOOK_S
            self._follow_place()
        if self._rotate_bytes is not None and self._writer.size_bytes >= self._rotate_bytes:
            before = self._writer
            after = self._path_of(before.identity.number + 1)
            self._begin_next(before.identity.number + 1)
            self.notes.append(f"{show_name(before.path)} is full; recording into {show_name(after)}")
        if self._keep_s is not None and self._clock.monotonic_s() >= self._look_due_s:
            self._look_due_s = self._clock.monotonic_s() + KEEP_LOOK_S
            self._delete_old(self._keep_s)

    def close(self, reason: str) -> None:
        self._writer.close(reason)

    def _open(self, identity: RecordingIdentity) -> RecordingWriter:
        path = self._path_of(identity.number)
        self._present_bytes = path.stat().st_size if path.is_file() else 0
        writer = RecordingWriter(path, identity, clock=self._clock)
        self.notes += writer.notes if not self.files else []
        self.files += 1
        return writer

    def _do(self, action: Callable[[], None]) -> None:
        """Write to the present file, or to a new one if SQLite notices that it is gone."""
        try:
            action()
        except RecordingStoppedError:
            if not self._follow_place():
                raise
            action()

    def _follow_place(self) -> bool:
        """Begin a new file if the present one was removed or renamed, and return True then.

        What is written into a removed file is lost.
        """
        path = self._writer.path
        change = self._writer.check_place()
        if change is None:
            return False
        with suppress(
            OutputFileError
        ):  # without a write-ahead log, SQLite writes no more into what has moved
            self._writer.close("the file was moved")
        try:
            self._begin_next(self._writer.identity.number)
        except (OutputFileError, InputFileError) as error:
            raise RecordingStoppedError(
                f"{show_path(path)}: {change} while it was recorded, and a new file cannot be created: "
                f"{error}"
            ) from error
        where = "a new file" if self._writer.continued_s is None else "the file that now has its name"
        self.moved = f"{show_path(path)} {change}; the recording continues in {where}"
        self.notes.append(self.moved)
        return True

    def _begin_next(self, number: int) -> None:
        """End the present file and begin the next, with the findings that are open."""
        identity = self._writer.identity
        created_s = max(self._newest.values(), default=0.0)
        after = msgspec.structs.replace(identity, number=number, created_s=created_s)
        self._writer.close(f"continues in {show_name(self._path_of(number))}")
        self._closed_bytes = self.written_bytes
        self._writer = self._open(after)
        if self._open_findings or self._assessments:
            findings = tuple(self._open_findings.values())
            self._writer.tell(identity.node, findings, self._assessments)
        self._look_due_s = 0.0

    def _delete_old(self, keep_s: float) -> None:
        """Delete files whose newest sample is too old; never one of another series."""
        oldest_s = max(self._newest.values(), default=float("-inf")) - keep_s
        for _, path in sorted(self._find_files()):
            if path != self._writer.path and self._is_over(path, oldest_s):
                path.unlink(missing_ok=True)
                for suffix in _SIDE_FILES:
                    path.with_name(path.name + suffix).unlink(missing_ok=True)
                self.notes.append(f"deleted {show_name(path)}: older than the time to keep")

    def _is_over(self, path: Path, oldest_s: float) -> bool:
        if path.is_symlink():
            return False
        try:
            with Recording(path) as recording:
                span = recording.span
                series = recording.identity.series
        except InputFileError:
            return False  # not ours, or damaged: left for a person to look at
        return series == self._writer.identity.series != "" and span is not None and span[1] < oldest_s

    def _path_of(self, number: int) -> Path:
        if number == 0:
            return self._path
        return self._path.with_name(f"{self._path.stem}.{number:04d}{self._path.suffix}")

    def _find_files(self) -> Iterator[tuple[int, Path]]:
        pattern = re.compile(f"{re.escape(self._path.stem)}\\.([0-9]{{4,9}}){re.escape(self._path.suffix)}")
        if self._path.exists():
            yield 0, self._path
        try:
            paths = list(self._path.parent.iterdir())
        except OSError:
            return
        for path in paths:
            match = pattern.fullmatch(path.name)
            if match is not None:
                yield int(match[1]), path
