"""What a training process takes of its card that no tensor of its step holds, as a range.

No GPU is asked, so these are numbers that others measured, each with its source. The size of a CUDA
context depends on the architecture, the driver, the version of CUDA and the kernels that a job has loaded.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ....engine.model.outside import GroupUse, OutsideUse
from ....engine.units import MIB
from .convolutions import Growth, size_largest
from .model import GpuKind, OutsidePart

CONTEXT_NAME = "CUDA context and kernels"
WORKSPACES_NAME = "workspaces"
# With one tensor and lazy loading of kernels: 287,047,680 bytes (pytorch/pytorch#86509). GPUs with few
# multiprocessors take less; where the kind is known, `BARE_CONTEXTS` says how much.
LEAST_CONTEXT_BYTES = 274 * MIB
# Between 426 MiB without any kernel (RTX 6000 Ada, CUDA 13, unslothai/unsloth-zoo#1053) and more than
# 1,000 MB with all of them (pytorch/pytorch#107667).
LIKELY_CONTEXT_BYTES = 512 * MIB
# What cards showed beyond the tensors of the smallest models (GPUMemNet, A100 40 GB, seen from outside).
MOST_CONTEXT_BYTES = 1792 * MIB
CONTEXT_SOURCE = "pytorch#86509, pytorch#107667, unsloth-zoo#1053, GPUMemNet"


class BareContext(NamedTuple):
    """What a process had on a GPU before it loaded any kernel."""

    gpu: str
    capability: tuple[int, int]
    multiprocessors: int
    mib: int
    source: str

    @property
    def bytes_per_multiprocessor(self) -> float:
        return self.mib * MIB / self.multiprocessors


# Nearly all of it grows with the multiprocessors: three kinds of one architecture, from 34 to 142 of them,
# took 3.0 to 3.1 MiB for each. The drivers were of 2024 to 2026, the versions of CUDA 12 and 13.
BARE_CONTEXTS = (
    BareContext("A800", (8, 0), 108, 414, "kvcache-ai/Mooncake#3973"),
    BareContext("RTX 3090", (8, 6), 82, 256, "invoke-ai/InvokeAI#9413"),
    BareContext("RTX 4090", (8, 9), 128, 386, "ovg-project/kvcached#416"),
    BareContext("RTX 6000 Ada", (8, 9), 142, 426, "unslothai/unsloth-zoo#1053"),
    BareContext("RTX 4060 Ti", (8, 9), 34, 107, "ggml-org/llama.cpp#23604"),
    BareContext("H100", (9, 0), 132, 534, "meta-pytorch/torchcomms#777"),
    BareContext("H200", (9, 0), 132, 520, "kvcache-ai/Mooncake#3973"),
    BareContext("B200", (10, 0), 148, 616, "kvcache-ai/Mooncake#3434"),
    BareContext("RTX PRO 6000", (12, 0), 188, 555, "ggml-org/llama.cpp#23604"),
)
# What kernels and libraries add to it. Likely: a server on an H100 after its start, where 0.13 to 0.46 GiB
# were seen. Most: that of the A100 above, which has as many multiprocessors as the A800.
LIKELY_KERNELS_BYTES = 256 * MIB
MOST_KERNELS_BYTES = MOST_CONTEXT_BYTES - 414 * MIB
KERNELS_SOURCE = "llm-d-planner (accuracy/results/v0.19.0), GPUMemNet"
# cuBLAS on two threads, forward and autograd: 8.125 MiB each, 32 MiB on Hopper (CublasHandlePool.cpp).
BLAS_BYTES = (17 * MIB, 64 * MIB)
HOPPER = (9, 0)
# Of what else kernels ask for, and of ties that a driver decides otherwise, as a share of the reserved bytes,
# chosen on GPUMemNet's runs: `python -m benchmarks.card_estimate`.
RESERVED_SHARE = 0.05
WORKSPACES_SOURCE = "PyTorch (CublasHandlePool.cpp, Conv_v8.cpp), cuDNN 9.24.0 and 9.10.2, GPUMemNet"
BENCHMARK_NOTE = (
    "torch.backends.cudnn.benchmark is on: the upper end has room for nearly all that cuDNN 9 proposes to "
    "try; older versions took more"
)
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


def list_outside(
    use: OutsideUse,
    reserved_bytes: int,
    *,
    context_bytes: int | None = None,
    gpu: GpuKind | None = None,
    made_bytes: int = 0,
    growth: Growth | None = None,
) -> tuple[OutsidePart, ...]:
    """Return what a process takes of its card besides its tensors.

    Args:
        reserved_bytes: What the allocator reserves for its tensors.
        context_bytes: Measured size of the context; None for a range.
        gpu: The kind of GPU, if it is known.
        made_bytes: What a step makes and is live at the peak, which graphs may hold twice.
        growth: What workspaces of convolutions add to the reserved bytes; None where no trace says that.
    """
    parts = [size_context(context_bytes, gpu), size_workspaces(use, reserved_bytes, gpu, growth)]
    if use.groups:
        parts.append(size_communicators(use.groups))
    if use.has_graphs:
        parts.append(size_graphs(made_bytes))
    return tuple(parts)


def size_workspaces(
    use: OutsideUse, reserved_bytes: int, gpu: GpuKind | None = None, growth: Growth | None = None
) -> OutsidePart:
    """Return the range of what cuBLAS and cuDNN work in.

    At most the largest workspace of cuDNN finds no room in PyTorch's cache, on top of what all of them add.
    """
    usual, on_hopper = BLAS_BYTES
    largest = size_largest(use, gpu)
    likely = largest.likely_bytes if growth is None else growth.likely_bytes
    added = largest.most_bytes if growth is None else growth.likely_bytes
    tried = added + largest.most_tried_bytes if growth is None else growth.tried_bytes
    return OutsidePart(
        name=WORKSPACES_NAME,
        least_bytes=0,
        likely_bytes=likely + (on_hopper if gpu is not None and gpu.capability == HOPPER else usual),
        most_bytes=on_hopper
        + max(added + largest.most_bytes, tried)
        + round(RESERVED_SHARE * reserved_bytes),
        source=WORKSPACES_SOURCE,
        note=BENCHMARK_NOTE if largest.most_tried_bytes else None,
    )


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


def size_context(context_bytes: int | None = None, gpu: GpuKind | None = None) -> OutsidePart:
    """Return the range of the CUDA context with the kernels that a job loads.

    Args:
        context_bytes: Measured size, which replaces the range.
        gpu: The kind of GPU, if it is known. Where contexts of its architecture were measured, the range is
            that of its own size; else it is that of all.
    """
    if context_bytes is not None:
        return OutsidePart(
            name=CONTEXT_NAME,
            least_bytes=context_bytes,
            likely_bytes=context_bytes,
            most_bytes=context_bytes,
            source="as given",
        )
    measured = [it for it in BARE_CONTEXTS if gpu is not None and it.capability == gpu.capability]
    if gpu is not None and measured and gpu.multiprocessors is not None:
        sizes = [round(gpu.multiprocessors * it.bytes_per_multiprocessor) for it in measured]
        return OutsidePart(
            name=CONTEXT_NAME,
            least_bytes=min(sizes),
            likely_bytes=max(sizes) + LIKELY_KERNELS_BYTES,
            # No card showed more, also not those whose bare context is larger than that of an A100.
            most_bytes=min(max(sizes) + MOST_KERNELS_BYTES, MOST_CONTEXT_BYTES),
            source=f"{', '.join(f'{it.source} ({it.gpu})' for it in measured)}; kernels: {KERNELS_SOURCE}",
        )
    return OutsidePart(
        name=CONTEXT_NAME,
        least_bytes=LEAST_CONTEXT_BYTES,
        likely_bytes=LIKELY_CONTEXT_BYTES,
        most_bytes=MOST_CONTEXT_BYTES,
        source=CONTEXT_SOURCE,
        note=None if gpu is None else _explain_wide_context(gpu),
    )


def _explain_wide_context(gpu: GpuKind) -> str:
    if gpu.capability is None or gpu.multiprocessors is None:
        return f"too little is known of {gpu.name} for a range of its own: this is the range of any GPU"
    major, minor = gpu.capability
    return (
        f"no context was measured on a GPU of compute capability {major}.{minor}, such as {gpu.name}: "
        "this is the range of any GPU"
    )
