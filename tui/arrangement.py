"""Which parts of the live screen are shown at a height, and how many rows the process table gets."""

from typing import NamedTuple

HOST_FROM_ROWS = 6
TITLE_FROM_ROWS = 11
KEYS_FROM_ROWS = 13
ALERTS_FROM_ROWS = 15
PROCESSES_FROM_ROWS = 18
"""Heights from which each part is worth its row; small panes keep the verdict and the devices."""

LEAST_PROCESS_ROWS = 3


class Arrangement(NamedTuple):
    """What is shown besides the verdict and the devices."""

    has_host: bool = False
    has_title: bool = False
    has_keys: bool = False
    has_alerts: bool = False
    process_rows: int = 0
    """Rows of the process table with its heading; 0 hides it."""

    @property
    def chrome_rows(self) -> int:
        """Rows that neither devices nor processes get."""
        return 1 + sum((self.has_host, self.has_title, self.has_keys, self.has_alerts))


class Needs(NamedTuple):
    """What the parts ask for."""

    devices_least: int
    """Rows in which every device is seen."""
    devices_natural: int
    """Rows at which devices are drawn well."""
    processes: int | None
    """Processes to list; None where there is no list to show."""
    is_table_focused: bool = False
    """The part in use gets the larger share."""


def arrange(height: int, needs: Needs) -> Arrangement:
    """Return what fits; what goes first as rows get few: processes, alerts, keys, title, host.

    Args:
        height: Rows of the screen.
        needs: What the parts ask for.
    """
    spare = height - 1 - max(1, needs.devices_least)
    shown: dict[str, bool] = {}
    for part, from_rows in (
        ("has_host", HOST_FROM_ROWS),
        ("has_title", TITLE_FROM_ROWS),
        ("has_keys", KEYS_FROM_ROWS),
        ("has_alerts", ALERTS_FROM_ROWS),
    ):
        shown[part] = spare > 0 and height >= from_rows
        spare -= shown[part]
    chrome = Arrangement(**shown)
    if needs.processes is None or height < PROCESSES_FROM_ROWS or spare < LEAST_PROCESS_ROWS:
        return chrome
    return chrome._replace(process_rows=_share(height - chrome.chrome_rows, spare, needs))


def _share(room: int, spare: int, needs: Needs) -> int:
    """Return the rows of the process table, out of the room it shares with the devices."""
    wanted = 1 + max(1, needs.processes or 0)
    if needs.is_table_focused:
        return min(wanted, max(room // 2, LEAST_PROCESS_ROWS), max(spare, LEAST_PROCESS_ROWS))
    left_over = room - needs.devices_natural
    return min(wanted, spare, max(left_over, room // 4, LEAST_PROCESS_ROWS))
