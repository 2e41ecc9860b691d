"""A recorded series, read as fast as it can be."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from vramscope.engine.files.base.input_file import show_path
from vramscope.engine.model import Finding, Sample
from vramscope.engine.sampling.series_player import FileSource
from vramscope.engine.sampling.series_source import open_series
from vramscope.exporters.reports.frame import Provenance

BATCH = 256
"""Samples that are handed over at once, so that progress and Ctrl-C come between."""


class FileStream:
    """The samples of one file, without waiting.

    Args:
        path: The file, or the folder of a recorded run.
        capacity_bytes: Memory of the devices, where the file does not tell it.

    Raises:
        InputFileError: It cannot be read or understood.
    """

    def __init__(self, path: Path, *, capacity_bytes: int | None = None) -> None:
        self._path = path
        self._series: FileSource = open_series(path, capacity_bytes=capacity_bytes)
        self._samples: Iterator[Sample] = self._series.samples()
        self._is_ended = False

    @property
    def provenance(self) -> Provenance:
        """Where the samples come from."""
        series = self._series
        return Provenance(
            source="input",
            input=show_path(self._path),
            format=series.format,
            notes=series.notes,
            real_uuid=series.real_uuid,
            label=series.label,
        )

    @property
    def agent(self) -> None:
        """None: no agent is asked."""
        return

    @property
    def is_ended(self) -> bool:
        """Whether the file is read."""
        return self._is_ended

    @property
    def read_share(self) -> float | None:
        """Share of the file that has been read."""
        return 1.0 if self._is_ended else self._series.read_share

    def start(self) -> None:
        """Do nothing: the file is open."""

    def past(self) -> Iterable[Sample]:
        """Yield nothing."""
        return ()

    def take(self, timeout_s: float) -> Sequence[Sample]:
        """Return the samples that follow; none at the end.

        Raises:
            InputFileError: The file cannot be understood.
        """
        found = list(islice(self._samples, BATCH))
        self._is_ended = not found
        return found

    def complete(self, finding: Finding) -> Finding:
        """Return the finding as it is."""
        return finding

    def stop(self) -> None:
        """Close the file."""
        self._series.close()
