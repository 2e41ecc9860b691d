"""A profile by module as one JSON object: totals of each moment, trees, and what two counts differ in."""

import msgspec

from ...analyzers.breakdown import Breakdown, explain_differences, make_breakdown
from ...engine.model import RankCoordinates
from ...engine.model.module_memory import KindBytes, ModuleMemory, ModuleMemoryFormat


class MomentReport(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a profile, without its trees."""

    tag: str
    time_s: float
    allocated_bytes: int | None
    kinds: dict[str, KindBytes]


class ModuleMemoryReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramscope modules --json` prints of one rank."""

    schema: str = "vramscope.breakdown/1"
    file: str
    format: ModuleMemoryFormat
    rank: RankCoordinates | None
    device: str | None
    is_simulated: bool
    moments: tuple[MomentReport, ...]
    breakdown: Breakdown
    differences: tuple[str, ...]
    notes: tuple[str, ...]


def report_module_memory(memory: ModuleMemory, file: str) -> ModuleMemoryReport:
    """Return the report of a profile.

    Args:
        memory: The profile.
        file: Name of its file.
    """
    breakdown = make_breakdown(memory)
    return ModuleMemoryReport(
        file=file,
        format=memory.format,
        rank=memory.rank,
        device=memory.device,
        is_simulated=memory.is_simulated,
        moments=tuple(
            MomentReport(
                tag=each.tag, time_s=each.time_s, allocated_bytes=each.allocated_bytes, kinds=each.kinds
            )
            for each in memory.moments
        ),
        breakdown=breakdown,
        differences=explain_differences(breakdown),
        notes=memory.notes,
    )
