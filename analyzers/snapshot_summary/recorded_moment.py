"""What filled each device of a node in one sample of a recording, as groups of a `LiveMoment`."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...engine.model import DeviceSample, DeviceState, RankSample, Sample
from ...engine.unmeasured import sum_all
from ..findings.subjects import name_rank
from ..gap import explain_gap
from .cursor import By, LiveGroups, LiveMoment, LiveRow


class DeviceMoment(NamedTuple):
    name: str
    # The device's index on its node.
    number: int
    is_simulated: bool
    # As of a `DeviceSample`; without `ok` its memory is the last that was read.
    state: DeviceState
    moment: LiveMoment


def describe_sample(sample: Sample) -> Iterator[DeviceMoment]:
    """Yield each device with its parts, its processes, and what the tensors of its ranks are."""
    for device in sample.devices:
        ranks = [rank for rank in sample.ranks if rank.device_uuid == device.uuid and rank.state != "ended"]
        gap = explain_gap(device, ranks, sample.servers)
        allocators = [rank.allocator for rank in ranks if rank.allocator is not None]
        known = len(allocators) == len(ranks) and bool(ranks)
        allocated = sum_all(it.allocated_bytes for it in allocators) if known else None
        reserved = sum_all(it.reserved_bytes for it in allocators) if known else None
        kinds = _list_kinds(ranks, allocated)
        moment = LiveMoment(
            event=None,
            time_s=sample.time_s,
            after_s=None,
            allocated_bytes=allocated,
            reserved_bytes=reserved,
            used_bytes=device.memory.used_bytes,
            total_bytes=device.memory.total_bytes,
            groups=(
                _rank("part", [LiveRow(part.name, part.size_bytes) for part in gap.parts]),
                *(() if kinds is None else (_rank("kind", kinds),)),
                _rank("process", _list_processes(device, ranks)),
            ),
        )
        yield DeviceMoment(f"device {device.label}", device.index, device.is_simulated, device.state, moment)


def _rank(by: By, rows: Sequence[LiveRow]) -> LiveGroups:
    present = sorted((row for row in rows if row.size_bytes), key=lambda row: -row.size_bytes)
    return LiveGroups(by, tuple(present), len(present))


def _list_kinds(ranks: Sequence[RankSample], allocated: int | None) -> list[LiveRow] | None:
    """Return the tensors of all ranks by kind; None where one rank does not report what it holds."""
    states = [rank.model_state for rank in ranks if rank.model_state is not None]
    if not states or len(states) < len(ranks) or allocated is None:
        return None
    named = {
        "parameters": sum_all(state.parameters_bytes for state in states),
        "gradients": sum_all(state.gradients_bytes for state in states),
        "optimizer state": sum_all(state.optimizer_bytes for state in states),
        "per-sample gradients": sum(state.grad_sample_bytes or 0 for state in states),
    }
    known = [LiveRow(name, size) for name, size in named.items() if size is not None]
    rest = allocated - sum(row.size_bytes for row in known)
    # The state of the model is read seldom, so it can be older than the allocator's numbers.
    if len(known) < len(named) or rest < 0:
        return known
    return [*known, LiveRow("activations and other tensors", rest)]


def _list_processes(device: DeviceSample, ranks: Sequence[RankSample]) -> list[LiveRow]:
    names = {rank.pid: name_rank(rank) for rank in ranks}
    if device.processes is not None:
        return [
            LiveRow(names.get(it.pid) or f"{it.pid} {it.command or ''}".strip(), it.used_bytes)
            for it in device.processes
            if it.used_bytes is not None
        ]
    return [
        LiveRow(names[rank.pid], rank.allocator.reserved_bytes)
        for rank in ranks
        if rank.allocator is not None and rank.allocator.reserved_bytes is not None
    ]
