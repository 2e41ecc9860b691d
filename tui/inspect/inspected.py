"""What the inspect screen shows of one file: figures, sentences and lists, ready to be drawn."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ...analyzers.level_history import LevelHistory
from ...analyzers.snapshot_summary import StackGroup
from ...engine.model.sample import SegmentMap

REPORT_WIDTH = 86
"""Cells of a line of the texts, which stand in a dialog."""

PartKind = Literal["live", "waiting", "cached", "releasable", "outside"]


@dataclass(frozen=True)
class BarPart:
    """One part of the bar."""

    name: str
    value_bytes: int | None
    kind: PartKind


@dataclass(frozen=True)
class InspectedDevice:
    """One device of a file."""

    name: str
    sentences: tuple[str, ...]
    """What it comes to, the most important first."""
    whole: BarPart
    parts: tuple[BarPart, ...]
    scale_bytes: int
    """Where the bar and the history end."""
    stacks: tuple[StackGroup, ...]
    """Live blocks, the largest first."""
    stack_groups: int
    failures: tuple[str, ...]
    """One line for each request that failed, the newest first."""
    failure_report: str
    """The same at length."""
    segment_map: SegmentMap
    history: LevelHistory | None
    failed_at: tuple[float, ...] = ()
    """Moments of the history at which memory was out."""
    steps: tuple[tuple[float, int], ...] = ()
    """Moments at which steps began, and their numbers."""


@dataclass(frozen=True)
class InspectedAdvice:
    """What other allocator settings would have done to one device, as simulated."""

    sentences: tuple[str, ...]
    """The most that is saved first; where nothing can be advised, why."""
    report: str
    """The same as a section of the report; empty where the trace could not be replayed."""
    is_refused: bool = False
    """Whether the sentences say why there is none."""


@dataclass(frozen=True)
class Inspected:
    """One file."""

    file: str
    kind: str
    """What it is, in words."""
    devices: tuple[InspectedDevice, ...]
    report: str
    """Everything as text."""
    settings: str = ""
    is_simulated: bool = False
    """Whether a device was modelled, so that nothing of it was measured."""
    advise: Callable[[int], InspectedAdvice] | None = None
    """Replays the trace of the device at a place; takes seconds. None where the file cannot hold a trace."""
