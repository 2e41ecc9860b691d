"""What would meet limits that nothing meets."""

from collections import Counter
from collections.abc import Sequence
from typing import NoReturn

import msgspec

from ...engine.errors import NothingFitsError, UsageError
from ...engine.units import GIB
from ..cluster_graph import Cluster
from ..memory_theory import ModelShape, estimate_stages
from .evaluation import Evaluator
from .options import RECOMPUTES, ZERO_STAGES, JointOptions
from .space import Candidate, Degrees, SearchSpace, name_gpu

MOST_TIMES = 64
"""As many times the devices are tried."""


def refuse_limits(
    shape: ModelShape,
    cluster: Cluster,
    options: JointOptions,
    candidates: Sequence[Candidate],
    evaluator: Evaluator,
    pruned: Counter[str],
) -> NoReturn:
    """Say what would fit where nothing does; `pruned` counts what is no candidate, by reason.

    Raises:
        UsageError: No degrees can use the devices.
        NothingFitsError: Every configuration needs more memory than the devices have.
    """
    if not candidates:
        raise UsageError(_explain_degrees(shape, cluster, options, pruned))
    needed, candidate = min(
        ((_find_peak(shape, each), each) for each in _list_smallest(candidates)),
        key=lambda entry: entry[0],
    )
    most = min(evaluator.list_capacities(candidate.layout))
    raise NothingFitsError(
        f"no configuration fits into {most / GIB:.1f} GiB of each device ({options.memory_share:.0%} of its "
        f"memory): the least that was found is {needed / GIB:.1f} GiB ({describe_candidate(candidate)}); "
        + _suggest(shape, cluster, options, needed)
    )


def describe_candidate(candidate: Candidate) -> str:
    """Return a configuration in a line."""
    degrees, layout, setup = candidate.degrees, candidate.layout, candidate.setup
    words = [f"TP {degrees.tensor}", f"PP {degrees.pipeline}", f"DP {degrees.data}"]
    words += [f"EP {degrees.expert}"] if degrees.expert > 1 else []
    words += ["SP"] if layout.is_sequence_parallel else []
    return ", ".join(
        [
            *words,
            f"ZeRO {setup.zero_stage}",
            f"recompute {setup.recompute}",
            f"micro-batch {setup.micro_batch_size}",
        ]
    )


def _explain_degrees(shape: ModelShape, cluster: Cluster, options: JointOptions, pruned: Counter[str]) -> str:
    devices = len(cluster.devices)
    if devices % options.context:
        return f"CP = {options.context} does not divide the {devices:,} devices; choose a divisor of them"
    reasons = ", ".join(f"{reason} ({count:,})" for reason, count in pruned.most_common(3))
    return (
        f"no degrees use all {devices:,} devices for {shape.heads} heads, {shape.layers} layers and a global "
        f"batch of {options.global_batch:,}: {reasons}; choose a global batch that more data ranks divide, "
        "or another number of devices"
    )


def _list_smallest(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return those that hold least: small micro-batches, one piece a rank, most sharded and recomputed."""
    smallest: dict[Degrees, Candidate] = {}
    for each in candidates:
        if each.setup.micro_batch_size == 1 and each.layout.virtual_stages == 1:
            best = smallest.setdefault(each.degrees, each)
            smallest[each.degrees] = max(best, each, key=_count_savings)
    return list(smallest.values())


def _count_savings(candidate: Candidate) -> tuple[bool, int, int]:
    setup = candidate.setup
    return candidate.layout.is_sequence_parallel, RECOMPUTES.index(setup.recompute), setup.zero_stage


def _find_peak(shape: ModelShape, candidate: Candidate) -> int:
    """Return the bytes of the fullest rank where stages are as even as they can be."""
    stages = candidate.degrees.pipeline
    share, rest = divmod(shape.layers, stages)
    sizes = tuple(share + (stage >= stages - rest) for stage in range(stages))
    layout = msgspec.structs.replace(candidate.layout, stage_layers=sizes)
    return max(rank.peak_bytes for rank in estimate_stages(shape, layout, candidate.setup))


def _suggest(shape: ModelShape, cluster: Cluster, options: JointOptions, needed: int) -> str:
    """Return what would fit: what was excluded, more devices, larger ones."""
    ways = []
    memory = min(device.memory_bytes for device in cluster.devices)
    allowed = msgspec.structs.replace(options, zero_stages=ZERO_STAGES, recomputes=RECOMPUTES)
    if allowed != options and _fits(shape, len(cluster.devices), cluster, allowed):
        ways.append("allow every ZeRO stage and recomputation")
    more = (2**power for power in range(1, MOST_TIMES.bit_length()))
    enough = next(
        (times for times in more if _fits(shape, times * len(cluster.devices), cluster, options)), None
    )
    if enough is not None:
        ways.append(f"take {enough * len(cluster.devices):,} such devices")
    ways.append(f"take devices of {needed / options.memory_share / GIB:.0f} GiB")
    if needed <= memory:
        ways.append(f"give a memory share of {needed / memory + 0.005:.2f}")
    return "to make it fit, " + ", or ".join(ways)


def _fits(shape: ModelShape, devices: int, cluster: Cluster, options: JointOptions) -> bool:
    """Tell whether so many devices, as small as the smallest, have a configuration that fits."""
    node = min(len(each.devices) for each in cluster.nodes)
    most = min(device.memory_bytes for device in cluster.devices) * options.memory_share
    gpu = name_gpu(cluster.devices[0].kind)
    space = SearchSpace(shape, devices, max(node, 1), options, gpu)
    return any(_find_peak(shape, each) <= most for each in _list_smallest(space.list_candidates()))
