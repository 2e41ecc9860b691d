"""One reading of a caching allocator, taken out of the statistics that PyTorch hands over."""

from __future__ import annotations

from typing import Any, NamedTuple


class Reading(NamedTuple):
    """Figures of one moment; None for what this allocator does not tell."""

    allocated_bytes: int | None = None
    requested_bytes: int | None = None
    active_bytes: int | None = None
    reserved_bytes: int | None = None
    inactive_split_bytes: int | None = None
    retries: int | None = None
    ooms: int | None = None
    peak_bytes: int | None = None
    """Most allocated bytes since the start, or since the program reset its peak."""
    allocations: int | None = None
    """Allocations made since the start."""
    frees: int | None = None
    """Frees since the start."""


NOTHING = Reading()
_make = tuple.__new__
"""Makes a reading of a tuple without the function that a named tuple has for it."""


def read_nested(stats: dict[str, Any]) -> Reading:
    """Return the reading in the result of `memory_stats_as_nested_dict()`; an empty one where it is empty."""
    try:
        # What most statistics have, looked up at once.
        allocated = stats["allocated_bytes"]["all"]
        allocation = stats["allocation"]["all"]
        figures = (
            allocated["current"],
            stats["requested_bytes"]["all"]["current"],
            stats["active_bytes"]["all"]["current"],
            stats["reserved_bytes"]["all"]["current"],
            stats["inactive_split_bytes"]["all"]["current"],
            stats["num_alloc_retries"],
            stats["num_ooms"],
            allocated["peak"],
            allocation["allocated"],
            allocation["freed"],
        )
    except (KeyError, TypeError):
        # Of an older PyTorch, or before the first allocation.
        return _read_part(stats)
    return _make(Reading, figures)


def _read_part(stats: dict[str, Any]) -> Reading:
    if not stats:
        return NOTHING
    allocated = _of_all_pools(stats, "allocated_bytes")
    allocation = _of_all_pools(stats, "allocation")
    return Reading(
        allocated.get("current"),
        _of_all_pools(stats, "requested_bytes").get("current"),
        _of_all_pools(stats, "active_bytes").get("current"),
        _of_all_pools(stats, "reserved_bytes").get("current"),
        _of_all_pools(stats, "inactive_split_bytes").get("current"),
        stats.get("num_alloc_retries"),
        stats.get("num_ooms"),
        allocated.get("peak"),
        allocation.get("allocated"),
        allocation.get("freed"),
    )


def read_flat(stats: dict[str, Any]) -> Reading:
    """Return the reading in the result of `memory_stats()`; an empty one where it is empty."""
    return Reading(
        stats.get("allocated_bytes.all.current"),
        stats.get("requested_bytes.all.current"),
        stats.get("active_bytes.all.current"),
        stats.get("reserved_bytes.all.current"),
        stats.get("inactive_split_bytes.all.current"),
        stats.get("num_alloc_retries"),
        stats.get("num_ooms"),
        stats.get("allocated_bytes.all.peak"),
        stats.get("allocation.all.allocated"),
        stats.get("allocation.all.freed"),
    )


def flatten(stats: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested statistics with dotted names, as `memory_stats()` spells them."""
    flat: dict[str, Any] = {}
    for name, value in stats.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _of_all_pools(stats: dict[str, Any], name: str) -> dict[str, Any]:
    group = stats.get(name)
    found = group.get("all") if group else None
    return found if found is not None else {}
