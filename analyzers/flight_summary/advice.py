"""What to change, as far as it follows from the figures of a flight record."""

from collections.abc import Iterator

from ...engine.model.flight_record import FlightRecord
from ...engine.units import GIB, MIB, format_bytes
from .model import DeviceShares, FloorTrend

_NOTABLE = 0.1
"""Part of the device from which on something is worth naming."""
_LARGE = 0.25


def advise(record: FlightRecord, shares: DeviceShares, trend: FloorTrend | None) -> Iterator[str]:
    """Yield what follows from the figures, the most promising first.

    Args:
        record: What the probe wrote.
        shares: Who held the device.
        trend: How the floors of the steps went.
    """
    yield from _advise_on_trend(trend)
    yield from _advise_on_fragmentation(record, shares)
    yield from _advise_on_streams(record, shares)
    yield from _advise_on_others(shares)
    yield from _advise_on_model(record, shares)


def _advise_on_trend(trend: FloorTrend | None) -> Iterator[str]:
    if trend is not None and trend.is_rising:
        growth = format_bytes(round(trend.growth_bytes_per_step))
        yield (
            f"every step leaves about {growth} behind: find what is kept from step to step, such as a loss "
            "that is summed up with its graph; a larger device would only fail later"
        )


def _advise_on_fragmentation(record: FlightRecord, shares: DeviceShares) -> Iterator[str]:
    stranded, size = shares.stranded_bytes, record.failure.size_bytes
    is_enough = stranded is not None and size is not None and stranded >= size
    if not stranded or (not is_enough and stranded < max(_NOTABLE * (shares.reserved_bytes or 0), MIB)):
        return
    if any(segment.is_expandable for segment in record.segments):
        yield f"{format_bytes(stranded)} are stranded in parts of pages, although segments expand"
        return
    fits = ", enough for the request if they were in one piece" if is_enough else ""
    yield (
        f"{format_bytes(stranded)} are stranded between live blocks{fits}: "
        "PYTORCH_ALLOC_CONF=expandable_segments:True lets free pages be used elsewhere"
    )


def _advise_on_streams(record: FlightRecord, shares: DeviceShares) -> Iterator[str]:
    awaiting, size = shares.awaiting_bytes, record.failure.size_bytes
    if awaiting and awaiting >= (size or 0):
        yield (
            f"{format_bytes(awaiting)} are freed and wait for another stream: let the side stream catch up "
            "earlier, or free its inputs after it has"
        )


def _advise_on_others(shares: DeviceShares) -> Iterator[str]:
    if shares.other_bytes is None or not shares.total_bytes:
        return
    # A context with its libraries takes some hundred MiB.
    if shares.other_bytes >= max(_NOTABLE * shares.total_bytes, GIB):
        yield (
            f"{format_bytes(shares.other_bytes)} of the device are not in this process's allocator: look for "
            "other processes on it"
        )


def _advise_on_model(record: FlightRecord, shares: DeviceShares) -> Iterator[str]:
    model, total = record.model_state, shares.total_bytes
    if model is None or not total:
        return
    if (model.grad_sample_bytes or 0) >= _NOTABLE * total:
        yield (
            f"per-sample gradients hold {format_bytes(model.grad_sample_bytes)}: a smaller physical batch "
            "(Opacus BatchMemoryManager) lowers them in proportion"
        )
    if (model.optimizer_bytes or 0) >= _LARGE * total:
        yield (
            f"optimizer state holds {format_bytes(model.optimizer_bytes)}: shard it over the data-parallel "
            "ranks, or keep it in fewer bits"
        )
    rest = find_rest(record, shares)
    if rest is not None and rest >= _LARGE * total:
        yield (
            f"{format_bytes(rest)} are neither parameters, gradients nor optimizer state, so mostly "
            "activations: a smaller micro-batch, shorter sequences or checkpointing lowers them"
        )


def find_rest(record: FlightRecord, shares: DeviceShares) -> int | None:
    """Return what is allocated beside parameters, gradients and optimizer state; None if one is unknown."""
    model = record.model_state
    if model is None or shares.allocated_bytes is None:
        return None
    parts = (model.parameters_bytes, model.gradients_bytes, model.optimizer_bytes)
    if any(part is None for part in parts):
        return None
    known = sum(part or 0 for part in (*parts, model.grad_sample_bytes))
    return shares.allocated_bytes - known if known <= shares.allocated_bytes else None
