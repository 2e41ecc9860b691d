"""What is said around the cells of a fleet: how many are at which risk, who is lost, what one device is."""

from ...analyzers.fleet.fleet import Census, Coverage
from ...analyzers.fleet.model import FleetDevice, FleetNode
from ...analyzers.risk import LEVELS
from ...engine.units import format_age
from ..draw.glyphs import Glyphs
from ..draw.numbers import gib_text
from ..widgets.one_line import Piece
from .view import FleetView

_GAP = Piece("   ")
_EVEN_CHANCE = 0.5


def describe_fleet(
    census: Census, wanted: int, coverage: Coverage, view: FleetView, glyphs: Glyphs
) -> tuple[list[Piece], list[Piece]]:
    """Return the title: what is covered and how many devices are at which level; and what was chosen.

    Args:
        census: All that are known.
        wanted: How many the filter lets pass.
        coverage: How much of the fleet is seen.
        view: What was chosen.
        glyphs: Characters to draw with.
    """
    if coverage.is_partial:
        pieces = [Piece(f"{glyphs.risk('medium')} {coverage.text}", "medium")]
    else:
        pieces = [Piece(coverage.followed_text or coverage.text, "strong")]
    total = f"{census.total:,}"
    counts = census.levels
    if coverage.is_partial and coverage.nodes_left_out:
        pieces += [_GAP, Piece(coverage.followed_text, "muted")]
    pieces += [_GAP, Piece(f"devices {total if wanted == census.total else f'{wanted:,} of {total}'}")]
    if coverage.devices_left_out:
        pieces += [Piece(f", {coverage.devices_left_out:,} not followed", "muted")]
    for level in reversed(LEVELS):
        if level in counts:
            pieces += [_GAP, Piece(f"{glyphs.risk(level)} {counts[level]:,}", level)]
    chosen = f"by {view.grouping}   sort {view.sort}"
    filtered = f"   filter {view.filter_text}" if view.filter_text else ""
    return pieces, [Piece(f"{chosen}{filtered}", "muted")]


def describe_device(device: FleetDevice, node: FleetNode, glyphs: Glyphs) -> list[Piece]:
    """Return what is known of a device in one line, what matters most first."""
    pieces = [
        Piece(f"{device.node} {device.name}", "strong"),
        Piece("  "),
        Piece(f"{glyphs.risk(device.level)} {_describe_risk(device)}", device.level),
        Piece(f"  {_describe_memory(device, glyphs)}"),
    ]
    return pieces + [Piece(f"  {text}", "muted") for text in _list_facts(device, node)]


def _describe_risk(device: FleetDevice) -> str:
    if device.oom_in_s is not None:
        within = device.probability or 0.0  # the next ten minutes: small where the error is foreseen later
        chance = f" ({within:.0%})" if within >= _EVEN_CHANCE else ""
        return f"out of memory in {format_age(device.oom_in_s)}{chance}"
    return f"{device.level}: {device.reason}" if device.reason else device.level


def _describe_memory(device: FleetDevice, glyphs: Glyphs) -> str:
    share = device.used_share
    percent = "" if share is None else f" ({share:.0%})"
    label = " simulated" if device.is_simulated else ""
    used = gib_text(device.used_bytes, glyphs)
    total = gib_text(device.total_bytes, glyphs)
    return f"{used} / {total} GiB{percent}{label}"


def _list_facts(device: FleetDevice, node: FleetNode) -> list[str]:
    degrees = [
        f"{name}{value}" for name in ("tp", "pp", "dp") if (value := getattr(device, name)) is not None
    ]
    rank = [] if device.rank is None else [" ".join((f"rank {device.rank}", *degrees))]
    facts = [*rank, *(f"job {job}" for job in device.jobs), *device.kinds]
    if node.clock_offset_s is not None:
        sign = "ahead" if node.clock_offset_s > 0 else "behind"
        facts.insert(0, f"its clock {format_age(abs(node.clock_offset_s))} {sign}")
    if node.state == "lost":
        since = "" if node.silent_s is None else f" {format_age(node.silent_s)}"
        facts.insert(0, f"node lost{since}, figures are old")
    elif device.is_old:
        facts.insert(0, device.state)
    return facts
