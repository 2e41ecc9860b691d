"""What a test needed on a simulated card, as lines of text."""

from collections.abc import Iterator

from vramscope.engine.units import format_bytes

from .measuring import Measured, list_growth


def describe_measured(name: str, now: Measured, before: Measured | None, most: int) -> Iterator[str]:
    """Yield what a test needed, then what grew since the baseline, or what held most where there is none.

    Args:
        most: Functions to list.
    """
    head = (
        f"{name}: peak allocated {format_bytes(now.allocated_bytes)}, reserved "
        f"{format_bytes(now.reserved_bytes)} of {format_bytes(now.limit_bytes)}"
    )
    free_bytes = now.limit_bytes - now.reserved_bytes - now.context_bytes
    tail = f", {format_bytes(free_bytes)} headroom" if free_bytes >= 0 else ""
    if before is None:
        yield f"{head}{tail}; no baseline"
        for place in now.places[:most]:
            yield f"    {format_bytes(place.size_bytes):>10}  {place.name}, line {place.line}"
        return
    difference = now.reserved_bytes - before.reserved_bytes
    change = "as before" if difference == 0 else f"{_format_signed(difference)} reserved"
    if now.allocated_bytes != before.allocated_bytes:
        change += f", {_format_signed(now.allocated_bytes - before.allocated_bytes)} allocated"
    yield f"{head}{tail}; {change}"
    for place in list_growth(now.places, before.places)[:most]:
        where = f"{place.name}, line {place.line}" if place.line else place.name
        yield f"    {_format_signed(place.size_bytes):>10}  {where}"


def _format_signed(size_bytes: int) -> str:
    return f"{'+' if size_bytes > 0 else '-'}{format_bytes(abs(size_bytes))}"
