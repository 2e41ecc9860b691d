"""Which parts of a screen of one node fit into its rows."""

from collections.abc import Callable
from typing import NamedTuple

from ...analyzers.serving_places import list_elsewhere
from ...engine.model import Sample
from .device_picture import arrange as arrange_devices
from .device_picture import minimum_height

# Heights from which each part is worth its row; small panes keep the verdict and the devices.
HOST_FROM_ROWS = 6
TITLE_FROM_ROWS = 11
KEYS_FROM_ROWS = 13
ALERTS_FROM_ROWS = 15
PROCESSES_FROM_ROWS = 18
NOTES_FROM_ROWS = 28
GAP_FROM_ROWS = 28

LEAST_PROCESS_ROWS = 3
# One row of so many is for servers of models that are on no device here.
SERVERS_SHARE = 6


class Arrangement(NamedTuple):
    has_host: bool = False
    has_title: bool = False
    has_keys: bool = False
    has_alerts: bool = False
    has_notes: bool = False
    has_gap: bool = False
    # Rows of the process table with its heading; 0 hides it.
    process_rows: int = 0
    # Rows of servers that are on no device here.
    server_rows: int = 0

    @property
    def chrome_rows(self) -> int:
        """Rows that neither devices nor processes get."""
        shown = (self.has_host, self.has_title, self.has_keys, self.has_alerts, self.has_notes, self.has_gap)
        return 1 + self.server_rows + sum(shown)


class Needs(NamedTuple):
    device_count: int
    # Rows in which every device is visible.
    devices_least: int
    # Returns the rows that the devices use of so many.
    devices_height: Callable[[int], int]
    # Processes to list; None where there is no list to show.
    processes: int | None
    # A recording may have no host.
    has_host: bool = True
    # Whether there are notes that nothing else shows.
    has_notes: bool = False
    # Servers of models that are on no device here.
    servers: int = 0


def measure_needs(sample: Sample | None, width: int, process_count: int) -> Needs:
    """Return what the live screen has to show of a sample; None before the first."""
    devices = sample.devices if sample else ()
    count = len(devices)
    return Needs(
        device_count=count,
        devices_least=minimum_height(count, width) if count else 3,
        devices_height=lambda rows: arrange_devices(devices, width, rows).height if count else rows,
        processes=process_count if count and has_process_list(sample) else None,
        has_host=has_host(sample),
        has_notes=has_notes(sample),
        servers=0 if sample is None else len(list_elsewhere(sample)),
    )


def has_process_list(sample: Sample | None) -> bool:
    """Return whether there is, or will be, a list of processes: recordings of a job's memory have none."""
    return sample is None or (bool(sample.devices) and sample.clock == "wall")


def has_host(sample: Sample | None) -> bool:
    """Return whether there is, or will be, a host to show."""
    return sample is None or sample.host is not None or sample.clock == "wall"


def has_notes(sample: Sample | None) -> bool:
    """Return whether there are notes; without a device the host's panel shows them."""
    return sample is not None and bool(sample.devices and sample.notes)


def arrange(height: int, needs: Needs) -> Arrangement:
    """Return what fits; dropped first as rows get few: processes, notes, alerts, keys, title, host, servers.

    It does not depend on the focus: going to the list moves nothing.
    """
    unwanted = {"has_host": not needs.has_host, "has_notes": not needs.has_notes}
    spare = height - 1 - max(1, needs.devices_least)
    server_rows = max(0, min(needs.servers, spare, max(1, height // SERVERS_SHARE)))
    spare -= server_rows
    shown: dict[str, bool] = {}
    for part, from_rows in (
        ("has_host", HOST_FROM_ROWS),
        ("has_title", TITLE_FROM_ROWS),
        ("has_keys", KEYS_FROM_ROWS),
        ("has_alerts", ALERTS_FROM_ROWS),
        ("has_notes", NOTES_FROM_ROWS),
        ("has_gap", GAP_FROM_ROWS),
    ):
        shown[part] = spare > 0 and height >= from_rows and not unwanted.get(part, False)
        spare -= shown[part]
    chrome = Arrangement(server_rows=server_rows, **shown)
    if needs.processes is None or height < PROCESSES_FROM_ROWS or spare < LEAST_PROCESS_ROWS:
        return chrome
    return chrome._replace(process_rows=_share(height - chrome.chrome_rows, spare, needs))


def _share(room: int, spare: int, needs: Needs) -> int:
    """Return the rows of the process table, out of the room it shares with the devices."""
    wanted = 1 + max(1, needs.processes or 0)
    limit = max(room // 4, LEAST_PROCESS_ROWS)
    with_header = needs.device_count + 1
    is_one_row_each = needs.devices_height(room - limit) <= with_header
    if is_one_row_each and needs.devices_height(room - LEAST_PROCESS_ROWS) > with_header:
        limit = LEAST_PROCESS_ROWS
    rows = min(wanted, max(spare - 1, LEAST_PROCESS_ROWS), limit)
    return min(wanted, rows + _count_unused(room - rows, needs))


def _count_unused(rows: int, needs: Needs) -> int:
    """Return how many of the devices' rows they can do without and still look the same."""
    height = needs.devices_height(rows)
    unused = max(0, rows - height)
    # A layout may want a row more than it draws on; without that one it would fall back to a lower one.
    while unused and needs.devices_height(rows - unused) < height:
        unused -= 1
    return unused


# Rows that the page of a device keeps before processes are listed below it.
LEAST_PAGE_ROWS = 8


def arrange_page(height: int, processes: int | None) -> Arrangement:
    """Return the parts around the page of one device; verdict and page are always there.

    `processes` is None where there is no list.
    """
    chosen = Arrangement(has_title=height >= TITLE_FROM_ROWS, has_keys=height >= KEYS_FROM_ROWS)
    spare = height - chosen.chrome_rows - LEAST_PAGE_ROWS
    if processes is None or height < PROCESSES_FROM_ROWS or spare < LEAST_PROCESS_ROWS:
        return chosen
    limit = max(height // 8, LEAST_PROCESS_ROWS)
    return chosen._replace(process_rows=min(1 + max(1, processes), spare, limit))
