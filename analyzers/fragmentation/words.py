"""What a finding on fragmentation says."""

from typing import NamedTuple

from ...engine.units import format_bytes
from .cost import FLUSHES, FLUSHES_S, RETRY_S, Cost
from .model import Measure

_COUNTED = (
    "Inactive split bytes (PyTorch's counter: free, beside live blocks of a segment), the least of the "
    "fullest moments of a window of several steps; weighed against the limit less the peak"
)
_REFUSED = (
    f"{_COUNTED}; and the device refused a segment (num_alloc_retries) within {RETRY_S / 60:.0f} minutes"
)
_FLUSHED = (
    f"Reserved memory fell from the limit {FLUSHES} times or more within {FLUSHES_S / 60:.0f} minutes, as "
    "when the cache is flushed, and each time at least this stayed reserved and not allocated"
)
_ADVICE = (
    "Try PYTORCH_ALLOC_CONF=expandable_segments:True, or bring lengths into a few buckets; `vramscope "
    "inspect` of a memory snapshot replays the job's own trace under other settings"
)


class Words(NamedTuple):
    """A finding in sentences."""

    title: str
    method: str
    advice: str


def word_finding(name: str, cost: Cost) -> Words:
    """Return what a finding says.

    Args:
        name: What the allocator's owner is called.
        cost: What fragmentation costs it.
    """
    stranded = format_bytes(cost.stranded_bytes)
    rest = format_bytes(cost.rest_bytes)
    if cost.retries:
        times = "once" if cost.retries == 1 else f"{cost.retries} times"
        title = f"{name} was refused memory {times} while {stranded} of its own lay stranded in segments"
        return Words(title, _REFUSED, _ADVICE)
    if cost.flushes >= FLUSHES:
        title = f"{name} flushes its cache at the limit, and {stranded} stays reserved and unused each time"
        return Words(title, _FLUSHED, _ADVICE)
    title = f"{name} has {stranded} stranded in segments even at its peaks, and only {rest} left beside"
    return Words(title, _COUNTED, _ADVICE)


def word_method(measure: Measure | None) -> str:
    """Return in a sentence what the figures of a reading rest on."""
    if measure == "external":
        return "External fragmentation of a segment map: 1 - largest free block / free bytes"
    if measure == "stranded":
        return "PyTorch's counter of inactive split bytes, as a share of the reserved bytes"
    if measure == "unused":
        return (
            "Only allocated and reserved bytes are known: what is reserved and not allocated is told, at its "
            "least within the window; cache and fragmentation cannot be told apart in it"
        )
    return "No figures of an allocator: device memory alone says nothing of fragmentation"
