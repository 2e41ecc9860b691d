"""A fleet as it is seen: every device as a row of a table, and all of it with its nodes as JSON."""

import csv
from collections.abc import Sequence
from io import StringIO
from typing import Final, Literal

import msgspec

from ...analyzers.fleet.model import FleetDevice, FleetNode, FleetSort, Grouping
from ...engine.model import Finding
from ...engine.text import make_csv_cell

FLEET_SCHEMA: Final = "vramscope.fleet/1"
COLUMNS = (
    *("node", "label", "name", "uuid", "model", "state", "is_old", "is_node_lost", "is_simulated"),
    *("used_bytes", "total_bytes", "level", "reason", "oom_in_s", "probability", "kinds", "jobs"),
    *("rank", "tp", "pp", "dp"),
)
"""Fields of `FleetDevice`, in the order of the table's columns."""


class FleetExport(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet at one moment."""

    schema: Literal["vramscope.fleet/1"] = FLEET_SCHEMA
    time: float
    """Wall clock here, in seconds since the epoch."""
    grouping: Grouping
    sort: FleetSort
    filter: str
    """As it was typed; empty where every device is shown."""
    nodes: tuple[FleetNode, ...]
    """All that are known, also those without a device that is shown."""
    devices: tuple[FleetDevice, ...]
    """Those that are shown, in their order."""
    findings: tuple[Finding, ...]
    """What is open across nodes; times are of the clock here."""


def write_fleet_table(devices: Sequence[FleetDevice]) -> bytes:
    """Return devices as CSV, a row each; what was not measured is empty, lists have blanks.

    Args:
        devices: In the order of the rows.
    """
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_word(getattr(device, name)) for name in COLUMNS] for device in devices)
    return text.getvalue().encode("utf-8", "replace")


def _word(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return make_csv_cell(" ".join(map(str, value)))
    return make_csv_cell(value) if isinstance(value, str) else value
