"""What filled each device of a node in one sample of a recording, as groups of a `LiveMoment`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...engine.model import DeviceSample, RankSample, Sample
from ...engine.unmeasured import sum_all
from ..findings.subjects import name_rank
from ..gap import GapPart, PartKind, explain_gap
from .cursor import Absent, By, ChangeGroups, LiveGroups, LiveMoment, LiveRow, OldValues, compare_groups

# Parts of a device that only a process which reports can tell from the rest.
_REPORTED: frozenset[PartKind] = frozenset({"allocated", "awaiting_free", "stranded", "cached", "context"})


class LiveProcess(NamedTuple):
    name: str
    # Whether it reports, and is named by its rank.
    is_rank: bool
    # None where the driver does not say.
    size_bytes: int | None


class DeviceMoment(NamedTuple):
    node: str
    name: str
    # The device's index on its node.
    number: int
    is_simulated: bool
    moment: LiveMoment
    # None where what fills the device was not measured.
    parts: tuple[GapPart, ...] | None
    # What the tensors of its ranks are, with what has 0 bytes; None where one rank does not report it.
    kinds: tuple[LiveRow, ...] | None
    # By process id; None where neither the driver nor a rank says anything of processes.
    processes: Mapping[int, LiveProcess] | None
    # Whether those are all processes.
    are_all_processes: bool
    has_ranks: bool


def describe_sample(sample: Sample, late_s: float = 0.0) -> Iterator[DeviceMoment]:
    """Yield each device with its parts, its processes, and what the tensors of its ranks are.

    Args:
        late_s: Seconds from the sample to the moment, if others would have come by then; else 0.
    """
    for device in sample.devices:
        ranks = [rank for rank in sample.ranks if rank.device_uuid == device.uuid and rank.state != "ended"]
        gap = explain_gap(device, ranks, sample.servers)
        allocators = [rank.allocator for rank in ranks if rank.allocator is not None]
        known = len(allocators) == len(ranks) and bool(ranks)
        allocated = sum_all(it.allocated_bytes for it in allocators) if known else None
        reserved = sum_all(it.reserved_bytes for it in allocators) if known else None
        # The last memory of a device that is not read any more is of no process that lives.
        is_divided = gap.used_bytes is not None and (device.state == "ok" or bool(ranks))
        parts = gap.parts if is_divided else None
        kinds = _list_kinds(ranks, allocated)
        processes = _list_processes(device, ranks)
        rows: dict[By, Sequence[LiveRow] | None] = {
            "part": None if parts is None else [LiveRow(part.name, part.size_bytes) for part in parts],
            "kind": kinds,
            "process": None if processes is None else _list_rows(processes.values()),
        }
        moment = LiveMoment(
            event=None,
            time_s=sample.time_s,
            after_s=None,
            allocated_bytes=allocated,
            reserved_bytes=reserved,
            used_bytes=device.memory.used_bytes,
            total_bytes=device.memory.total_bytes,
            groups=tuple(_rank(by, each) for by, each in rows.items() if each is not None),
            old=tuple(_list_old(sample, device, ranks, late_s)),
        )
        yield DeviceMoment(
            node=sample.node,
            name=f"device {device.label}",
            number=device.index,
            is_simulated=device.is_simulated,
            moment=moment,
            parts=parts,
            kinds=kinds,
            processes=processes,
            are_all_processes=device.state == "ok" and device.processes is not None,
            has_ranks=bool(ranks),
        )


def _list_old(
    sample: Sample, device: DeviceSample, ranks: Sequence[RankSample], late_s: float
) -> Iterator[OldValues]:
    """Yield the node, the device and its ranks, as far as their values are older than the moment."""

    def age(age_s: float | None) -> float | None:
        return None if age_s is None else late_s + max(0.0, age_s)

    if late_s:
        yield OldValues("node", sample.node, "stale", late_s, None)
    if device.state != "ok":
        name = f"device {device.label}"
        yield OldValues("device", name, device.state, age(device.age_s), device.reason)
    for rank in ranks:
        if rank.state == "stale":
            yield OldValues("rank", name_rank(rank), "stale", age(rank.age_s), rank.reason)


def compare_devices(
    first: DeviceMoment | None, second: DeviceMoment | None, most: int
) -> tuple[ChangeGroups, ...]:
    """Return how two moments of a device differ, with the `most` largest differences.

    Args:
        first: None where the device was not there.
    """
    both = (first, second)
    kinds = {part.name: part.kinds for it in both if it is not None for part in it.parts or ()}
    # A process that reports at one moment only is named by its rank at both.
    ranks = {
        pid: process.name
        for it in both
        if it is not None
        for pid, process in (it.processes or {}).items()
        if process.is_rank
    }

    def list_groups(it: DeviceMoment | None) -> tuple[LiveGroups, ...]:
        if it is None:
            return ()
        if it.processes is None:
            return it.moment.groups
        renamed = _rank("process", _list_rows(_rename(it.processes, ranks)))
        return tuple(renamed if groups.by == "process" else groups for groups in it.moment.groups)

    def read_absent(it: DeviceMoment | None) -> Absent:
        def read(by: By, name: str) -> int | None:
            if it is None:
                return None
            if by == "part":
                return _read_absent_part(it, name, kinds[name])
            if by == "kind":
                return next((row.size_bytes for row in it.kinds or () if row.name == name), None)
            sizes = {each.name: each.size_bytes for each in _rename(it.processes or {}, ranks)}
            return sizes.get(name, 0 if it.are_all_processes else None)

        return read

    return compare_groups(
        list_groups(first), list_groups(second), most, (read_absent(first), read_absent(second))
    )


def _read_absent_part(moment: DeviceMoment, name: str, kinds: tuple[PartKind, ...]) -> int | None:
    """Return the bytes of a part that is not listed; None where they are within others, or unmeasured."""
    if moment.parts is None:
        return None
    if any(part.name == name for part in moment.parts):
        return 0
    divided = {kind for part in moment.parts for kind in part.kinds}
    unmeasured = divided if moment.has_ranks else divided | _REPORTED
    return None if unmeasured.intersection(kinds) else 0


def _rename(processes: Mapping[int, LiveProcess], names: Mapping[int, str]) -> list[LiveProcess]:
    return [process._replace(name=names.get(pid, process.name)) for pid, process in processes.items()]


def _list_rows(processes: Iterable[LiveProcess]) -> list[LiveRow]:
    return [LiveRow(it.name, it.size_bytes) for it in processes if it.size_bytes is not None]


def _rank(by: By, rows: Sequence[LiveRow]) -> LiveGroups:
    present = sorted((row for row in rows if row.size_bytes), key=lambda row: -row.size_bytes)
    return LiveGroups(by, tuple(present), len(present))


def _list_kinds(ranks: Sequence[RankSample], allocated: int | None) -> tuple[LiveRow, ...] | None:
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
    known = tuple(LiveRow(name, size) for name, size in named.items() if size is not None)
    rest = allocated - sum(row.size_bytes for row in known)
    # The state of the model is read seldom, so it can be older than the allocator's numbers.
    if len(known) < len(named) or rest < 0:
        return known
    return (*known, LiveRow("activations and other tensors", rest))


def _list_processes(device: DeviceSample, ranks: Sequence[RankSample]) -> dict[int, LiveProcess] | None:
    """Return what each process holds; without the driver's word, what the ranks have reserved."""
    names = {rank.pid: name_rank(rank) for rank in ranks}
    if device.processes is not None:
        return {
            it.pid: LiveProcess(
                names.get(it.pid) or f"{it.pid} {it.command or ''}".strip(), it.pid in names, it.used_bytes
            )
            for it in device.processes
        }
    reserved = {rank.pid: None if rank.allocator is None else rank.allocator.reserved_bytes for rank in ranks}
    return {pid: LiveProcess(names[pid], True, size) for pid, size in reserved.items()} if ranks else None
