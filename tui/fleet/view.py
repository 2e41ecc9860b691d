"""How a fleet is looked at: what is kept while its screen is away."""

from dataclasses import dataclass
from typing import Literal

from ...analyzers.fleet.model import FleetSort, Grouping

CellFigure = Literal["used", "risk"]
"""What a cell shows of a device that is in no danger: how full it is, or its level of risk."""


@dataclass
class FleetView:
    """What a person chose."""

    grouping: Grouping = "node"
    sort: FleetSort = "risk"
    filter_text: str = ""
    figure: CellFigure = "used"
    selected: tuple[str, str] | None = None
    """Key of the device under the cursor; None lets the cursor follow the gravest."""
