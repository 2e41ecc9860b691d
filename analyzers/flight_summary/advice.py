"""What to change, as far as it follows from the figures of a flight record."""

from collections.abc import Iterator

from ...engine.model.flight_record import FlightRecord
from ...engine.units import GIB, MIB, format_bytes
from .leak import sum_model_state
from .model import DeviceShares, KeptMemory

_NOTABLE = 0.1
"""Part of the device from which on something is worth naming."""
_LARGE = 0.25


def advise(record: FlightRecord, shares: DeviceShares, kept: KeptMemory | None) -> Iterator[str]:
    """Yield what follows from the figures, the most promising first.

    Args:
        record: What the probe wrote.
        shares: Who held the device.
        kept: What is kept from step to step.
    """
    yield from _advise_on_kept(kept)
    yield from _advise_on_fragmentation(record, shares)
    yield from _advise_on_unallocated(record, shares)
    yield from _advise_on_streams(record, shares)
    yield from _advise_on_others(shares)
    yield from _advise_on_model(record, shares)
    yield from _advise_on_activations(record, shares, kept)


def _advise_on_kept(kept: KeptMemory | None) -> Iterator[str]:
    if kept is None:
        return
    growth, size = format_bytes(round(kept.growth_bytes_per_step)), format_bytes(kept.size_bytes)
    where = ""
    if kept.holder is not None and kept.holder.headline is not None:
        line = kept.holder.headline
        where = (
            f", the most ({format_bytes(kept.holder.size_bytes)}) allocated by {line.name} at "
            f"{line.filename}:{line.line}"
        )
    yield (
        f"every step leaves about {growth} behind, and {size} are kept from step to step{where}: find what "
        "holds them, such as a loss that is summed up with its graph; a larger device would only fail later"
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


def _advise_on_unallocated(record: FlightRecord, shares: DeviceShares) -> Iterator[str]:
    """Advise on what is reserved and holds no tensor, where no more is told of it."""
    left, size = shares.unallocated_bytes, record.failure.size_bytes
    if not left or size is None:
        return
    if left >= size:
        yield (
            f"{format_bytes(left)} were reserved and held no tensor, enough for the request if they were in "
            "one piece: PYTORCH_ALLOC_CONF=expandable_segments:True lets free pages be used elsewhere"
        )
    else:
        yield (
            f"only {format_bytes(left)} were reserved and held no tensor, less than the request: "
            "fragmentation is not what stood against it"
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


def _advise_on_activations(
    record: FlightRecord, shares: DeviceShares, kept: KeptMemory | None
) -> Iterator[str]:
    """Advise on what a smaller micro-batch lowers, unless more than that is kept from step to step."""
    rest = _find_rest(record, shares, kept)
    if rest is None or not shares.total_bytes or (kept is not None and kept.size_bytes >= rest):
        return
    if rest >= _LARGE * shares.total_bytes:
        beside = "" if kept is None else ", nor kept from step to step"
        yield (
            f"{format_bytes(rest)} are neither parameters, gradients nor optimizer state{beside}, so mostly "
            "activations: a smaller micro-batch, shorter sequences or checkpointing lowers them"
        )


def _find_rest(record: FlightRecord, shares: DeviceShares, kept: KeptMemory | None) -> int | None:
    """Return what is allocated beside the model's state and what steps leave behind; None if unknown."""
    state = sum_model_state(record)
    if state is None or shares.allocated_bytes is None or state > shares.allocated_bytes:
        return None
    return max(0, shares.allocated_bytes - state - (0 if kept is None else kept.size_bytes))
