"""Reports that are written period after period into one folder."""

import time
from datetime import UTC, datetime
from pathlib import Path

from vramscope.engine.model import Sample
from vramscope.exporters.reports.report import Report
from vramscope.exporters.reports.writing import write_report

EXTENSION = ".json"


class Schedule:
    """Knows when a period is over, and names its report.

    Args:
        folder: Where the reports go.
        verb: Name of the verb, with which their names begin.
        period_s: Length of a period.
    """

    def __init__(self, folder: Path, verb: str, period_s: float) -> None:
        self._folder, self._verb, self._period_s = folder, verb, period_s
        self._end_s: float | None = None

    def is_over(self, now_s: float) -> bool:
        """Return whether the running period is over, and begin the next if it is.

        Args:
            now_s: Time of the sample that follows, or of a clock that never steps.
        """
        if self._end_s is None:
            self._end_s = now_s + self._period_s
        if now_s < self._end_s:
            return False
        while self._end_s <= now_s:
            self._end_s += self._period_s
        return True

    def write(self, report: Report, newest: Sample | None) -> Path:
        """Write the report of a period under a name with its time; return the file.

        Raises:
            OutputFileError: It cannot be written.
        """
        stem = f"{self._verb}-{self._stamp(newest)}"
        path, number = self._folder / f"{stem}{EXTENSION}", 1
        while path.exists():
            number += 1
            path = self._folder / f"{stem}-{number}{EXTENSION}"
        write_report(report, path)
        return path

    def _stamp(self, newest: Sample | None) -> str:
        """Return the time of the newest sample: UTC, or the seconds of a file without dates."""
        if newest is not None and newest.clock == "trace":
            return f"{newest.time_s:012.3f}s"
        time_s = time.time() if newest is None else newest.time_s
        return datetime.fromtimestamp(time_s, UTC).strftime("%Y%m%dT%H%M%SZ")
