"""How far a watch is, on stderr: one line that is written over in a terminal, else a line a minute."""

import shutil
import sys
import time

from vramscope.engine.units import format_age, format_gib
from vramscope.exporters.reports.run_log import RunLog

QUIET_S = 1.0
"""What is over by then says nothing."""
TERMINAL_EVERY_S, FILE_EVERY_S = 0.5, 60.0
_CLEAR = "\r\x1b[K"


class Progress:
    """Tells how far one watch is.

    Args:
        verb: Name of the verb.
        duration_s: How long it will take; None where nobody knows.
    """

    def __init__(self, verb: str, duration_s: float | None) -> None:
        self._verb, self._duration_s = verb, duration_s
        self._is_terminal = sys.stderr.isatty()
        self._started_s = time.monotonic()
        self._due_s = self._started_s + (QUIET_S if self._is_terminal else FILE_EVERY_S)
        self._is_shown = False

    def show(self, log: RunLog, read_share: float | None) -> None:
        """Tell how far it is, when that is due."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + (TERMINAL_EVERY_S if self._is_terminal else FILE_EVERY_S)
        line = self._describe(log, read_share, now_s - self._started_s)
        if self._is_terminal:
            columns = shutil.get_terminal_size().columns
            self._write(f"{_CLEAR}{line[: max(1, columns - 1)]}")
            self._is_shown = True
        else:
            self._write(f"{line}\n")

    def clear(self) -> None:
        """Take the line away, so that something else can be said."""
        if self._is_shown:
            self._write(_CLEAR)
            self._is_shown = False

    def _describe(self, log: RunLog, read_share: float | None, passed_s: float) -> str:
        parts = [f"vramscope {self._verb}: {self._describe_time(read_share, passed_s)}"]
        parts.append(f"{log.samples:,} samples")
        for device in list(log.devices.values())[:4]:
            last = device.last
            if last is not None and last.load_bytes is not None:
                parts.append(
                    f"{device.label}: {format_gib(last.load_bytes)}/{format_gib(last.total_bytes)} GiB"
                )
        found = sum(trail.finding.is_open for trail in log.findings.values())
        parts += [f"{found} open finding{'' if found == 1 else 's'}"] if found else []
        return " · ".join(parts) if sys.stderr.encoding.lower().startswith("utf") else ", ".join(parts)

    def _describe_time(self, read_share: float | None, passed_s: float) -> str:
        if read_share is not None:
            return f"{100 * read_share:.0f} % read"
        if self._duration_s is None:
            return f"{format_age(passed_s)}, Ctrl-C ends it with a report"
        return f"{format_age(passed_s)} of {format_age(self._duration_s)}"

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            return  # nobody reads it
