"""What cuDNN takes as workspace for a convolution, and what that adds to the memory that PyTorch reserves.

cuDNN itself gives the sizes: since 9.8 it plans for a GPU that is only described to it. Versions 9.24.0 and
9.10.2 were asked for 1,201 passes of the convolutions of 30 timm models, in float32 and half precision and in
both layouts, on up to seven kinds of GPU. docs/estimate-factory.md has what they answered. PyTorch
(Conv_v8.cpp) takes the first proposal that runs; in benchmark mode it takes room for the largest that fits,
tries them all, empties its cache, and keeps the fastest.
"""

from collections import defaultdict
from collections.abc import Iterable
from math import prod
from typing import NamedTuple

from ....engine.model.outside import BACKWARD_DATA, BACKWARD_FILTER, FORWARD, Convolution, OutsideUse
from ....engine.units import GIB
from ...allocator_model import AllocatorSettings
from .model import GpuKind, Rehearsal, Scratch, StepTrace, rehearse

ELEMENT_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
# Partial results of a product that is split are in float32.
RESULT_BYTES = 4
# Tensor cores read the channels of a group in units of so many bytes.
UNIT_BYTES = 16
AMPERE = (8, 0)
# Compute capabilities whose engines for float32 take tensors in channels-last layout as they are.
READS_CHANNELS_LAST = frozenset({(9, 0), (10, 0)})
# Parts into which a likely gradient of a weight is split; they take no more than this share of the tensors.
FILTER_PARTS = 16
MOST_FILTER_SHARE = 0.25
# Parts of the most that a typical network tries, and of nearly all that was proposed, up to a size.
LIKELY_TRIED_PARTS = 2
MOST_TRIED_PARTS = 16
MOST_PARTS_BYTES = GIB
# In which PyTorch computes those of one gradient operation.
PASSES = (BACKWARD_DATA, BACKWARD_FILTER, FORWARD)


class Workspace(NamedTuple):
    """Bytes of one pass of a convolution."""

    likely_bytes: int = 0
    most_bytes: int = 0
    likely_tried_bytes: int = 0
    """In benchmark mode, while algorithms are tried."""
    most_tried_bytes: int = 0

    def enlarge(self, other: "Workspace") -> "Workspace":
        return Workspace(*map(max, self, other))


class Growth(NamedTuple):
    """What workspaces add to the reserved bytes of a step, found by running it with them."""

    likely_bytes: int
    tried_bytes: int
    """With the most that benchmark mode tries."""


def size_workspace(convolution: Convolution, direction: int, gpu: GpuKind | None = None) -> Workspace:
    """Return the workspace of a pass.

    Args:
        direction: `FORWARD`, `BACKWARD_DATA` or `BACKWARD_FILTER`.
        gpu: The kind of GPU; without one it is taken to have tensor cores for float32.
    """
    size = ELEMENT_BYTES.get(convolution.dtype, 0)
    if not size or _is_native(convolution):
        return Workspace()
    read, weight, written = (
        prod(shape) for shape in (convolution.input_shape, convolution.weight_shape, convolution.output_shape)
    )
    copies = (read + weight + written) * size
    result = {FORWARD: written, BACKWARD_DATA: read, BACKWARD_FILTER: weight}[direction] * max(
        size, RESULT_BYTES
    )
    split = round(MOST_FILTER_SHARE * (read + written) * size) if direction == BACKWARD_FILTER else 0
    most = copies + max(result, split)
    if not _has_tensor_cores(convolution, gpu):
        return Workspace(0, most, most, most)
    likely = 0
    if not _is_read_as_it_is(convolution, gpu):
        likely = copies + min(FILTER_PARTS * result, split)
        if convolution.is_channels_last and direction != BACKWARD_FILTER:
            # Rounded copies of what is multiplied; the result is written where it belongs.
            likely -= result
    channels = max(1, convolution.input_shape[1] // convolution.groups)
    padded = round(copies * max(1.0, UNIT_BYTES / size / channels))
    parts = min(max(MOST_TRIED_PARTS * result, copies), MOST_PARTS_BYTES)
    return Workspace(
        likely_bytes=likely,
        most_bytes=most,
        likely_tried_bytes=max(likely, copies + min(LIKELY_TRIED_PARTS * result, MOST_PARTS_BYTES)),
        most_tried_bytes=max(most, padded + max(parts, result)),
    )


def size_largest(use: OutsideUse, gpu: GpuKind | None = None) -> Workspace:
    """Return the largest workspaces of all convolutions; nothing is tried outside of benchmark mode."""
    largest = Workspace()
    for convolution, passes in use.convolutions:
        for direction in _split_passes(passes):
            found = size_workspace(convolution, direction, gpu)
            if not convolution.has_benchmark:
                found = found._replace(likely_tried_bytes=0, most_tried_bytes=0)
            largest = largest.enlarge(found)
    return largest


def measure_growth(
    trace: StepTrace, settings: AllocatorSettings, without: Rehearsal, gpu: GpuKind | None = None
) -> Growth:
    """Run a step with its workspaces, which live as long as their convolution.

    Args:
        without: The same step without them.
    """
    if not trace.computed:
        return Growth(0, 0)
    kinds = (False, True) if any(it.has_benchmark for it in trace.convolutions) else (False,)
    growths = []
    for has_most_tried in kinds:
        scratches = _list_scratches(trace, gpu, has_most_tried=has_most_tried)
        run = rehearse(trace, settings, scratches=scratches)
        growths.append(max(0, run.reserved_peak_bytes - without.reserved_peak_bytes))
    return Growth(likely_bytes=growths[0], tried_bytes=max(growths))


def _list_scratches(
    trace: StepTrace, gpu: GpuKind | None, *, has_most_tried: bool
) -> dict[int, list[Scratch]]:
    """Return the workspaces by the number of events before each."""
    scratches: defaultdict[int, list[Scratch]] = defaultdict(list)
    tried = set()
    for place, number, passes in trace.computed:
        convolution = trace.convolutions[number]
        for direction in _split_passes(passes):
            found = size_workspace(convolution, direction, gpu)
            if not found.most_bytes:
                continue
            tried_bytes = None
            if convolution.has_benchmark and (number, direction) not in tried:
                tried.add((number, direction))
                tried_bytes = found.most_tried_bytes if has_most_tried else found.likely_tried_bytes
            scratches[place].append(Scratch(found.likely_bytes, tried_bytes))
    return scratches


def _split_passes(passes: int) -> Iterable[int]:
    return (direction for direction in PASSES if passes & direction)


def _is_native(convolution: Convolution) -> bool:
    """Return whether PyTorch computes it with kernels of its own, which need no workspace."""
    channels = convolution.input_shape[1]
    is_depthwise = convolution.groups == channels > 1 and convolution.weight_shape[0] % channels == 0
    is_half = ELEMENT_BYTES[convolution.dtype] == ELEMENT_BYTES["float16"]
    return is_depthwise and not convolution.is_transposed and not convolution.is_channels_last and not is_half


def _has_tensor_cores(convolution: Convolution, gpu: GpuKind | None) -> bool:
    if convolution.dtype != "float32":
        return convolution.dtype != "float64"
    capability = None if gpu is None else gpu.capability
    return convolution.allows_tf32 and (capability is None or capability >= AMPERE)


def _is_read_as_it_is(convolution: Convolution, gpu: GpuKind | None) -> bool:
    if not convolution.is_channels_last:
        return False
    return convolution.dtype != "float32" or (gpu is not None and gpu.capability in READS_CHANNELS_LAST)
