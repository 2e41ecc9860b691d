"""Timestamps of nvidia-smi: local time without a zone, made into seconds since the epoch.

The zone is that of the machine that reads. Where clocks were set back at the end of daylight saving time, an
hour comes twice; times are kept from going back: by PEP 495's fold where the zone here knows of it, else by
one hour that is added from there on.
"""

import re
from datetime import datetime

from ..base.series_record import RecordError, show_cell

TIMESTAMP = re.compile(r"(\d{4})[/-](\d\d)[/-](\d\d)[ T](\d\d):(\d\d):(\d\d(?:[.,]\d{1,9})?)")
"""As nvidia-smi writes it (`2025/06/23 10:30:00.123`), and with the dashes of ISO 8601."""
HOUR_S = 3600.0
_BACK_AT_LEAST_S = 1800.0
"""Clocks that are set back by one hour go back by that less the time between two records."""
_HOURS_OF_TURNING = frozenset({23, 0, 1, 2, 3})
"""In which clocks are set back anywhere; a jump at another hour is of joined or disordered logs."""


class LocalTime:
    """Makes timestamps into seconds since the epoch, in the order of the log."""

    def __init__(self) -> None:
        self._minute = ""
        self._minute_s = 0.0
        self._later_s = 0.0
        self._fold = 0
        self._newest_s: float | None = None
        self.turned_back: str | None = None
        """The first timestamp after the clocks were set back by an hour."""

    def parse(self, cell: str) -> float:
        """Return the seconds since the epoch.

        Raises:
            RecordError: The cell is no timestamp.
        """
        text = cell.strip()
        match = TIMESTAMP.fullmatch(text)
        if match is None:
            raise RecordError(
                "timestamp", f"timestamp is {show_cell(text)}, expected one such as 2025/06/23 10:30:00.123"
            )
        time_s = self._convert(match)
        back_s = 0.0 if self._newest_s is None else self._newest_s - time_s
        if _BACK_AT_LEAST_S <= back_s <= HOUR_S and int(match[4]) in _HOURS_OF_TURNING and not self._fold:
            time_s = self._turn_back(match, text)
        self._newest_s = time_s if self._newest_s is None else max(self._newest_s, time_s)
        return time_s

    def _convert(self, match: re.Match[str]) -> float:
        # Whole minutes are converted once, since each asks the zone's rules.
        minute = match.string[:16]
        if minute != self._minute:
            self._minute_s = self._epoch_of(match, self._fold)
            self._minute = minute
            if self._fold and self._minute_s == self._epoch_of(match, 0):
                self._fold = 0
        return self._minute_s + float(match[6].replace(",", ".")) + self._later_s

    def _epoch_of(self, match: re.Match[str], fold: int) -> float:
        parts = [int(part) for part in match.groups()[:5]]
        try:
            return datetime(*parts, fold=fold).timestamp()  # type: ignore[arg-type]
        except (ValueError, OverflowError, OSError) as error:
            raise RecordError("timestamp", f"timestamp is {show_cell(match.string)}, no such time") from error

    def _turn_back(self, match: re.Match[str], text: str) -> float:
        if self.turned_back is None:
            self.turned_back = text
        if self._epoch_of(match, 1) > self._epoch_of(match, 0):
            self._fold = 1
        else:
            self._later_s += HOUR_S
        self._minute = ""
        return self._convert(match)
