"""What a training process takes of its card that no tensor of its step holds, as a range.

No GPU is asked, so these are numbers that others measured, each with its source. The size of a CUDA
context depends on the architecture, the driver, the version of CUDA and the kernels that a job has loaded;
what a convolution gets as workspace is chosen by cuDNN while the job runs.
"""

import re
from collections.abc import Sequence

from ....engine.units import MIB
from .model import GroupUse, OutsidePart, Phase, StepTrace

CONTEXT_NAME = "CUDA context and kernels"
WORKSPACES_NAME = "workspaces"
# With one tensor and lazy loading of kernels: 287,047,680 bytes (pytorch/pytorch#86509).
LEAST_CONTEXT_BYTES = 274 * MIB
# Between 426 MiB without any kernel (RTX 6000 Ada, CUDA 13, unslothai/unsloth-zoo#1053) and more than
# 1,000 MB with all of them (pytorch/pytorch#107667).
LIKELY_CONTEXT_BYTES = 512 * MIB
# What cards showed beyond the tensors of the smallest models (GPUMemNet, A100 40 GB, seen from outside).
MOST_CONTEXT_BYTES = 1792 * MIB
CONTEXT_SOURCE = "pytorch#86509, pytorch#107667, unsloth-zoo#1053, GPUMemNet"
# cuBLAS on two threads, forward and autograd: 8.125 MiB each, 32 MiB on Hopper (CublasHandlePool.cpp).
BLAS_BYTES = (17 * MIB, 64 * MIB)
# Of cuDNN, as a multiple of input and output of the largest convolution, which it may copy in another layout
# for the product and for each gradient. Both shares cover 96 % of GPUMemNet's runs, on which they were
# chosen: `python -m benchmarks.card_estimate`.
CONVOLUTION_SHARE = 2.0
# Of what else kernels ask for, and of ties that a driver decides otherwise, as a share of the reserved bytes.
RESERVED_SHARE = 0.08
WORKSPACES_SOURCE = "PyTorch (CublasHandlePool.cpp), GPUMemNet"
NCCL_NAME = "NCCL"
# A connection of a channel has a buffer of 10 MiB for each direction (NVIDIA/nccl#1685), and
# the fewest channels are two.
LEAST_COLLECTIVE_BYTES = 2 * 2 * 10 * MIB
# A group that reduced 4 MiB on A100s with NVLink: of two ranks, and of more (NVIDIA/nccl#964).
LIKELY_COLLECTIVE_BYTES = (544 * MIB, 688 * MIB)
# A communicator after one allreduce, with what else the process had on its card (NVIDIA/nccl#864: 1.6 GB).
MOST_COLLECTIVE_BYTES = 1638 * MIB
# To each rank that tensors are sent to and received from: two channels, up to 32 with a buffer of 2 MiB each,
# and what an all-to-all of eight H100s took, 3.28 GB for seven others (NVIDIA/nccl#1685).
PEER_BYTES = (2 * 2 * MIB, 32 * 2 * MIB, 448 * MIB)
# Ranks on other nodes share one buffer (NVIDIA/nccl#1450), 512 MiB in NVIDIA/nccl#2363.
MOST_NEAR_PEERS = 7
FAR_PEERS_BYTES = 512 * MIB
NCCL_SOURCE = "NVIDIA/nccl#864, #964, #1450, #1685, #2363"
GRAPHS_NAME = "CUDA graphs"
# A captured graph without its tensors (vllm-project/vllm#22897: 6 to 28 MiB). A step has two: its forward and
# its backward pass.
LIKELY_GRAPHS_BYTES = 2 * 24 * MIB
MOST_GRAPHS_BYTES = 2 * 28 * MIB
GRAPHS_SOURCE = "vllm-project/vllm#22897, pytorch/pytorch#83490, roboflow/rf-detr#1490"
_CONVOLUTION = re.compile(r"Conv(?:Transpose)?[123]d")


def list_outside(
    trace: StepTrace,
    reserved_bytes: int,
    context_bytes: int | None = None,
    groups: Sequence[GroupUse] = (),
) -> tuple[OutsidePart, ...]:
    """Return what a step takes of its card besides its tensors.

    Args:
        trace: The step; of several depths the deepest.
        reserved_bytes: What the allocator reserves for its tensors.
        context_bytes: Measured size of the context; None for a range.
        groups: Process groups that move tensors of the card.
    """
    largest = find_largest_convolution(trace)
    most = BLAS_BYTES[1] + round(CONVOLUTION_SHARE * largest)
    most += round(RESERVED_SHARE * reserved_bytes)
    workspaces = OutsidePart(
        name=WORKSPACES_NAME,
        least_bytes=0,
        likely_bytes=BLAS_BYTES[0],
        most_bytes=most,
        source=WORKSPACES_SOURCE,
    )
    parts = (size_context(context_bytes), workspaces)
    return (*parts, size_communicators(groups)) if groups else parts


def size_communicators(groups: Sequence[GroupUse]) -> OutsidePart:
    """Return the range of NCCL's buffers: each group has a communicator of its own, which shares nothing."""
    least = likely = most = 0
    for group in groups:
        if group.is_collective:
            least += LEAST_COLLECTIVE_BYTES
            likely += LIKELY_COLLECTIVE_BYTES[group.ranks > 2]
            most += MOST_COLLECTIVE_BYTES
        near = min(group.peers, MOST_NEAR_PEERS)
        least += near * PEER_BYTES[0]
        likely += near * PEER_BYTES[1]
        most += near * PEER_BYTES[2] + (FAR_PEERS_BYTES if group.peers else 0)
    return OutsidePart(
        name=NCCL_NAME, least_bytes=least, likely_bytes=likely, most_bytes=most, source=NCCL_SOURCE
    )


def size_graphs(made_bytes: int) -> OutsidePart:
    """Return the range of CUDA graphs.

    Their tensors are in a pool that gives nothing to others, and the cache of the warm-up may keep as much.

    Args:
        made_bytes: What the step itself makes and is live at the peak.
    """
    return OutsidePart(
        name=GRAPHS_NAME,
        least_bytes=0,
        likely_bytes=LIKELY_GRAPHS_BYTES,
        most_bytes=MOST_GRAPHS_BYTES + made_bytes,
        source=GRAPHS_SOURCE,
    )


def size_context(context_bytes: int | None = None) -> OutsidePart:
    """Return the range of the CUDA context; a measured size replaces it."""
    if context_bytes is None:
        return OutsidePart(
            name=CONTEXT_NAME,
            least_bytes=LEAST_CONTEXT_BYTES,
            likely_bytes=LIKELY_CONTEXT_BYTES,
            most_bytes=MOST_CONTEXT_BYTES,
            source=CONTEXT_SOURCE,
        )
    return OutsidePart(
        name=CONTEXT_NAME,
        least_bytes=context_bytes,
        likely_bytes=context_bytes,
        most_bytes=context_bytes,
        source="as given",
    )


def find_largest_convolution(trace: StepTrace) -> int:
    """Return the bytes of input and output of the largest convolution; 0 without any."""
    convolutions = {number for number, kind in enumerate(trace.module_types) if _CONVOLUTION.search(kind)}
    outputs: dict[int, int] = {}
    inputs: dict[int, int] = {}
    for size, phase, module in zip(trace.sizes, trace.phases, trace.modules, strict=True):
        if module not in convolutions:
            continue
        # A backward pass makes a gradient of the size of the input.
        kept = {Phase.FORWARD: outputs, Phase.RECOMPUTE: outputs, Phase.BACKWARD: inputs}.get(Phase(phase))
        if kept is not None:
            kept[module] = max(kept.get(module, 0), size)
    return max((outputs.get(it, 0) + inputs.get(it, 0) for it in convolutions), default=0)
