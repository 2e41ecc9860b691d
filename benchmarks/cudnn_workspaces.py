"""How cuDNN's own workspaces compare with ours: python -m benchmarks.cudnn_workspaces LIBRARY MODEL…

The library is a `libcudnn.so.9` of 9.8 or newer, as in the wheel of nvidia-cudnn-cu13; no GPU is needed.
Since 9.8 cuDNN plans for a device whose properties it gets as JSON ("deviceless ahead-of-time compilation");
their names are those that OpenXLA writes (xla/backends/gpu/target_config/cudnn_device_props.cc). It is asked
for each convolution of the timm models, each pass, type and layout, and gives its proposals in the order in
which PyTorch runs them, with their workspaces. `KINDS` lists how the GPUs differ. It needs timm, which the
project does not.
"""

import argparse
import ctypes
import json
import os
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

from vramscope.analyzers.planning.steps import GpuKind
from vramscope.analyzers.planning.steps.convolutions import PASSES, size_workspace
from vramscope.engine.model.outside import BACKWARD_DATA, BACKWARD_FILTER, FORWARD, Convolution
from vramscope.engine.units import KIB, MIB
from vramscope.estimates import StepRequest, trace_steps

from .card_estimate import STEP
from .measure.tables import format_table


class Kind(NamedTuple):
    """A kind of GPU, as its data sheet and the CUDA programming guide describe it."""

    gpu: GpuKind
    shared_kib: int
    blocks: int
    """Of one multiprocessor."""
    threads: int
    memory_gib: int
    cache_mib: int


KINDS = (
    Kind(GpuKind("T4", (7, 5), 40), 64, 16, 1024, 15, 4),
    Kind(GpuKind("A100", (8, 0), 108), 163, 32, 2048, 39, 40),
    Kind(GpuKind("RTX 3090", (8, 6), 82), 99, 16, 1536, 24, 6),
    Kind(GpuKind("RTX 4090", (8, 9), 128), 99, 24, 1536, 24, 72),
    Kind(GpuKind("H100", (9, 0), 132), 227, 32, 2048, 79, 50),
    Kind(GpuKind("B200", (10, 0), 148), 227, 32, 2048, 178, 126),
    Kind(GpuKind("RTX 5090", (12, 0), 170), 99, 24, 1536, 32, 96),
)
TYPES = {"float32": 0, "float16": 2}
LEAST_BYTES = 20 * MIB
"""Of the tensors of a convolution; smaller ones decide nothing."""
ROOM_BYTES = 2 * MIB

# Numbers of cudnn_graph_v9.h.
TENSOR, CONVOLUTION, GRAPH, HEURISTIC, CONFIG, PLAN, DEVICE = 17, 1, 15, 4, 3, 5, 38
TYPE, INT64, FLOAT, DESCRIPTOR, MODE, HEURISTIC_MODE, CHAR = 1, 3, 4, 15, 7, 8, 24
INSTANT, FALLBACK = 0, 2
CROSS_CORRELATION = 1
# Descriptor of the operation, and its attributes: alpha, beta, convolution, weight, input, output.
OPERATIONS = {FORWARD: (10, 700), BACKWARD_DATA: (12, 706), BACKWARD_FILTER: (11, 712)}


class Proposal(NamedTuple):
    workspace_bytes: int
    is_fallback: bool


class Planner:
    """cuDNN, planning for one kind of GPU."""

    def __init__(self, library: str, kind: Kind) -> None:
        self._cudnn = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        major, minor = kind.gpu.capability or (0, 0)
        limits = {
            "maxThreadsPerBlock": 1024,
            "regsPerBlock": 65536,
            "maxRegistersPerSM": 65536,
            "warpSize": 32,
        }
        properties = limits | {
            "deviceVer": major * 100 + minor * 10,
            "multiProcessorCount": kind.gpu.multiprocessors,
            "maxSharedMemoryPerBlock": 48 * KIB,
            "maxSharedMemoryPerBlockOptin": kind.shared_kib * KIB,
            "reservedSharedMemoryPerBlock": KIB,
            "maxCtasPerSM": kind.blocks,
            "maxThreadsPerSM": kind.threads,
            "totalGlobalMem": kind.memory_gib * KIB * MIB,
            "l2CacheSize": kind.cache_mib * MIB,
            "smClockRateKHz": 1_500_000,
            "memClockRateKHz": 1_500_000,
            "maxBlockSize": [1024, 1024, 64],
            "maxGridSize": [2**31 - 1, 65535, 65535],
            "supportCoopLaunch": 1,
            "pciDeviceId": 0,
            "isTccDriver": 0,
            "cudaDeviceId": 0,
            "driverVer": 13000,
            "deviceName": kind.gpu.name,
        }
        self._device = self._make(DEVICE, (2702, CHAR, [*json.dumps(properties).encode()]))

    def propose(self, convolution: Convolution, computed: int) -> Iterator[Proposal]:
        graph = self._describe(convolution, computed)
        for mode in (INSTANT, FALLBACK):
            asked = self._make(
                HEURISTIC,
                (201, DESCRIPTOR, [graph]),
                (200, HEURISTIC_MODE, [mode]),
                (204, DESCRIPTOR, [self._device]),
            )
            for config in self._list_configs(asked):
                try:
                    plan = self._make(PLAN, (407, DESCRIPTOR, [self._device]), (401, DESCRIPTOR, [config]))
                except RuntimeError:
                    continue  # a proposal that cannot be built is passed over, as PyTorch does
                size = ctypes.c_int64()
                self._cudnn.cudnnBackendGetAttribute(
                    ctypes.c_void_p(plan), 402, INT64, ctypes.c_int64(1), None, ctypes.byref(size)
                )
                yield Proposal(size.value, is_fallback=mode == FALLBACK)

    def _describe(self, convolution: Convolution, computed: int) -> int:
        kind = TYPES[convolution.dtype]
        strides, padding = zip(*map(_infer_step, *_spatial(convolution)), strict=True)
        places = [
            (key, INT64, list(value)) for key, value in ((105, padding), (104, padding), (103, strides))
        ]
        described = self._make(
            CONVOLUTION,
            (100, TYPE, [TYPES["float32"]]),
            (101, MODE, [CROSS_CORRELATION]),
            (106, INT64, [len(strides)]),
            (102, INT64, [1] * len(strides)),
            *places,
        )
        shapes = convolution.weight_shape, convolution.input_shape, convolution.output_shape
        tensors = [
            self._make(
                TENSOR,
                (901, TYPE, [kind]),
                (902, INT64, list(shape)),
                (903, INT64, _stride(shape, is_last=convolution.is_channels_last)),
                (906, INT64, [number]),
                (900, INT64, [16]),
            )
            for number, shape in enumerate(shapes, 1)
        ]
        operation, first = OPERATIONS[computed]
        parts = [(first + 2 + place, DESCRIPTOR, [it]) for place, it in enumerate((described, *tensors))]
        scales = [(first, FLOAT, [1.0]), (first + 1, FLOAT, [0.0])]
        return self._make(GRAPH, (801, DESCRIPTOR, [self._make(operation, *scales, *parts)]))

    def _list_configs(self, asked: int) -> list[int]:
        count = ctypes.c_int64()
        get = self._cudnn.cudnnBackendGetAttribute
        handle = ctypes.c_void_p(asked)
        get(handle, 202, DESCRIPTOR, ctypes.c_int64(0), ctypes.byref(count), None)
        configs = (ctypes.c_void_p * count.value)(*(self._create(CONFIG) for _ in range(count.value)))
        get(handle, 202, DESCRIPTOR, ctypes.c_int64(count.value), ctypes.byref(count), configs)
        return [it or 0 for it in configs][: count.value]

    def _create(self, kind: int) -> int:
        made = ctypes.c_void_p()
        self._check(self._cudnn.cudnnBackendCreateDescriptor(kind, ctypes.byref(made)))
        return made.value or 0

    def _make(self, kind: int, *attributes: tuple[int, int, list[Any]]) -> int:
        made = self._create(kind)
        types: dict[int, Any] = {INT64: ctypes.c_int64, FLOAT: ctypes.c_float, CHAR: ctypes.c_ubyte}
        types[DESCRIPTOR] = ctypes.c_void_p
        for name, type_number, values in attributes:
            array = (types.get(type_number, ctypes.c_int) * len(values))(*values)
            count = ctypes.c_int64(len(values))
            self._check(
                self._cudnn.cudnnBackendSetAttribute(ctypes.c_void_p(made), name, type_number, count, array)
            )
        self._check(self._cudnn.cudnnBackendFinalize(ctypes.c_void_p(made)))
        return made

    @staticmethod
    def _check(status: int) -> None:
        if status:
            raise RuntimeError(f"cuDNN answers with status {status}")


def _spatial(convolution: Convolution) -> tuple[Sequence[int], ...]:
    return convolution.input_shape[2:], convolution.weight_shape[2:], convolution.output_shape[2:]


def _infer_step(taken: int, window: int, made: int) -> tuple[int, int]:
    """Return a stride and a padding, without dilation, that give these sizes."""
    stride = max(1, round(taken / made))
    return stride, max(0, -(-((made - 1) * stride + window - taken) // 2))


def _stride(shape: Sequence[int], *, is_last: bool) -> list[int]:
    order = [0, *range(2, len(shape)), 1] if is_last else list(range(len(shape)))
    strides = [0] * len(shape)
    step = 1
    for place in reversed(order):
        strides[place] = step
        step *= shape[place]
    return strides


def list_convolutions(models: Sequence[str]) -> dict[Convolution, int]:
    """Return the convolutions of timm models with the passes of each, in the type and layout of the model."""
    found: dict[Convolution, int] = {}
    for model in models:
        os.environ["VRAMSCOPE_BENCH_MODEL"] = model
        (trace,) = trace_steps(StepRequest(factory=STEP, batch_size=32)).result.traces
        for _, number, passes in trace.computed:
            convolution = trace.convolutions[number]
            found[convolution] = found.get(convolution, 0) | passes
    return found


def compare(planner: Planner, kind: Kind, asked: dict[Convolution, int]) -> list[str]:
    """Return how many there were, and how often what cuDNN proposes is no more than what we count."""
    rows = []
    for convolution, passes in asked.items():
        for computed in PASSES:
            found = size_workspace(convolution, computed, kind.gpu)
            if not passes & computed or found.most_bytes < LEAST_BYTES:
                continue
            sizes = [it.workspace_bytes for it in planner.propose(convolution, computed)]
            if sizes:
                first = (sizes[0], median(sizes[:10]))
                is_likely = (
                    min(first) * 0.9 - ROOM_BYTES <= found.likely_bytes <= max(first) * 1.1 + ROOM_BYTES
                )
                is_within = sizes[0] <= found.most_bytes + ROOM_BYTES
                rows.append((is_likely, is_within, max(sizes) <= found.most_tried_bytes + ROOM_BYTES))
    shares = [f"{sum(column) / len(rows):.1%}" for column in zip(*rows, strict=True)] or ["—"] * 3
    return [str(len(rows)), *shares]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("models", nargs="+")
    options = parser.parse_args()
    convolutions = list_convolutions(options.models)
    lines = []
    for kind in KINDS:
        planner = Planner(options.library, kind)
        for dtype in TYPES:
            for is_last in (False, True):
                asked = {
                    Convolution(
                        input_shape=it.input_shape,
                        weight_shape=it.weight_shape,
                        output_shape=it.output_shape,
                        groups=it.groups,
                        is_transposed=it.is_transposed,
                        dtype=dtype,
                        is_channels_last=is_last,
                        has_benchmark=True,
                        allows_tf32=it.allows_tf32,
                    ): passes
                    for it, passes in convolutions.items()
                    if not it.is_transposed
                }
                layout = "channels last" if is_last else "channels first"
                lines.append([f"{kind.gpu.name}, {dtype}, {layout}", *compare(planner, kind, asked)])
    head = ["kind", "asked", "as likely", "first within the most", "tried within the most"]
    print(format_table("Workspaces that cuDNN proposes", head, lines))


if __name__ == "__main__":
    main()
