"""The sizes of workspaces next to those that cuDNN 9.24.0 gave, asked without a GPU."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.analyzers.planning.steps import GpuKind
from vramscope.analyzers.planning.steps.convolutions import size_largest, size_workspace
from vramscope.analyzers.planning.steps.outside import size_workspaces
from vramscope.engine.model.outside import BACKWARD_DATA as DATA
from vramscope.engine.model.outside import BACKWARD_FILTER as FILTER
from vramscope.engine.model.outside import FORWARD, Convolution, OutsideUse
from vramscope.engine.units import MIB

A100 = GpuKind("A100", (8, 0), 108)
H100 = GpuKind("H100", (9, 0), 132)
T4 = GpuKind("T4", (7, 5), 40)
RTX_4090 = GpuKind("RTX 4090", (8, 9), 128)


def make_convolution(**changes: Any) -> Convolution:
    known: dict[str, Any] = {
        "input_shape": (4, 64, 56, 56),
        "weight_shape": (128, 64, 3, 3),
        "output_shape": (4, 128, 28, 28),
        "groups": 1,
        "is_transposed": False,
        "dtype": "float32",
        "is_channels_last": False,
        "has_benchmark": False,
        "allows_tf32": True,
    }
    return Convolution(**{**known, **changes})


class Answer(NamedTuple):
    """What cuDNN proposed for a convolution of 32 square images, in bytes of workspace."""

    gpu: GpuKind
    dtype: str
    is_channels_last: bool
    computed: int
    taken: tuple[int, int]
    """Channels, and height of the images."""
    weight: tuple[int, int]
    """Channels that are made, and height of the filter."""
    height: int
    groups: int
    first: int
    """Of the proposal that PyTorch takes if it runs."""
    middle: int
    """The median of the first ten."""
    most: int
    """Of all that benchmark mode tries."""

    @property
    def convolution(self) -> Convolution:
        channels, height = self.taken
        made, size = self.weight
        return make_convolution(
            input_shape=(32, channels, height, height),
            weight_shape=(made, channels // self.groups, size, size),
            output_shape=(32, made, self.height, self.height),
            groups=self.groups,
            dtype=self.dtype,
            is_channels_last=self.is_channels_last,
        )


# fmt: off
ANSWERS = (
    Answer(A100, "float32", False, FORWARD, (64, 56), (64, 3), 56, 1, 25837584, 51527696, 77230511),
    Answer(A100, "float32", False, DATA, (64, 56), (64, 3), 56, 1, 51527696, 51527696, 102920623),
    Answer(A100, "float32", False, FILTER, (64, 56), (64, 3), 56, 1, 54641215, 54034576, 62014275),
    Answer(A100, "float32", False, FORWARD, (256, 56), (64, 1), 56, 1, 102826000, 128516112, 154218927),
    Answer(A100, "float32", False, DATA, (256, 56), (64, 1), 56, 1, 128516112, 128516112, 231289263),
    Answer(A100, "float32", False, FILTER, (256, 56), (64, 1), 56, 1, 130875536, 130875536, 134087183),
    Answer(A100, "float32", False, FILTER, (3, 224), (64, 7), 112, 1, 133418128, 130307216, 134137359),
    Answer(A100, "float32", False, DATA, (256, 14), (256, 3), 14, 1, 15204368, 15204368, 21633327),
    Answer(A100, "float32", False, DATA, (512, 56), (512, 3), 28, 32, 257196048, 64299136, 257196048),
    Answer(A100, "float32", False, FORWARD, (384, 56), (96, 1), 56, 1, 154288144, 192823312, 244228783),
    Answer(A100, "float32", False, FORWARD, (384, 56), (384, 3), 56, 384, 0, 0, 1233346576),
    Answer(A100, "float16", True, FILTER, (64, 56), (64, 3), 56, 1, 1180455, 2506880, 52562351),
    Answer(A100, "float16", True, FORWARD, (384, 56), (96, 1), 56, 1, 0, 0, 102773151),
    Answer(H100, "float16", False, FORWARD, (64, 56), (64, 3), 56, 1, 25763987, 25763987, 27861203),
    Answer(H100, "float16", False, FILTER, (64, 56), (64, 3), 56, 1, 26058963, 25763856, 40837775),
    Answer(H100, "float16", False, FORWARD, (256, 56), (64, 1), 56, 1, 64225427, 64225427, 64225427),
    Answer(H100, "float16", False, DATA, (512, 56), (512, 3), 28, 32, 128611216, 32645248, 128611216),
    Answer(H100, "float16", True, FORWARD, (64, 56), (64, 3), 56, 1, 131, 131, 25766160),
    Answer(H100, "float16", True, DATA, (64, 56), (64, 3), 56, 1, 131, 131, 25763856),
    Answer(H100, "float16", True, FORWARD, (256, 56), (64, 1), 56, 1, 131, 131, 64226320),
    Answer(H100, "float16", True, FORWARD, (384, 56), (384, 3), 56, 384, 7054, 7054, 1233346707),
    Answer(H100, "float32", True, FORWARD, (64, 56), (64, 3), 56, 1, 131, 131, 77243055),
    Answer(H100, "float32", True, DATA, (256, 56), (64, 1), 56, 1, 131, 131, 128450576),
    Answer(T4, "float32", False, FORWARD, (64, 56), (64, 3), 56, 1, 409856, 18944, 51546640),
    Answer(T4, "float32", False, DATA, (64, 56), (64, 3), 56, 1, 409856, 0, 409856),
    Answer(T4, "float32", False, FORWARD, (256, 56), (64, 1), 56, 1, 18944, 18944, 128469520),
    Answer(RTX_4090, "float32", False, DATA, (64, 56), (64, 3), 56, 1, 51527696, 51527696, 103058623),
    Answer(RTX_4090, "float32", False, FILTER, (256, 56), (64, 1), 56, 1, 134611503, 131596432, 135660143),
    Answer(RTX_4090, "float32", False, FILTER, (3, 224), (64, 7), 112, 1, 131310736, 131310736, 136758959),
    Answer(A100, "float32", True, FORWARD, (256, 56), (64, 1), 56, 1, 102826000, 102826000, 179902767),
    Answer(A100, "float32", True, DATA, (256, 56), (64, 1), 56, 1, 25755664, 25755664, 128528815),
    Answer(A100, "float32", True, FILTER, (256, 56), (64, 1), 56, 1, 131268752, 130744783, 134087183),
)
# fmt: on


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_workspace_is_what_cudnn_proposes(answer: Answer) -> None:
    found = size_workspace(answer.convolution, answer.computed, answer.gpu)
    if not found.most_bytes:
        assert answer.first == 0, "PyTorch computes it itself"
        return
    assert answer.first <= found.most_bytes * 1.01
    assert answer.most <= found.most_tried_bytes * 1.025
    # Some proposals copy one tensor less.
    least, most = sorted((answer.first, answer.middle))
    assert 0.85 * least - MIB <= found.likely_bytes <= 1.15 * most + MIB


def test_without_tensor_cores_nothing_is_copied() -> None:
    convolution = make_convolution()
    assert size_workspace(make_convolution(allows_tf32=False), FORWARD, A100).likely_bytes == 0
    assert size_workspace(convolution, FORWARD, T4).likely_bytes == 0
    assert size_workspace(make_convolution(dtype="float64"), FORWARD, A100).likely_bytes == 0
    copies = 4 * (4 * 64 * 56 * 56 + 128 * 64 * 9 + 4 * 128 * 28 * 28)
    assert size_workspace(convolution, FORWARD).likely_bytes == copies


@pytest.mark.parametrize(
    ("changes", "is_native"),
    [
        ({}, True),
        ({"is_transposed": True}, False),
        ({"is_channels_last": True}, False),
        ({"dtype": "bfloat16"}, False),
        ({"groups": 32, "weight_shape": (64, 2, 3, 3)}, False),
    ],
)
def test_depthwise_kernels_of_pytorch_need_no_workspace(changes: dict[str, Any], is_native: bool) -> None:
    sizes = {"groups": 64, "weight_shape": (64, 1, 3, 3), "output_shape": (4, 64, 56, 56)}
    found = size_workspace(make_convolution(**{**sizes, **changes}), FORWARD)
    assert (found.most_bytes == 0) == is_native


def test_types_that_cudnn_does_not_convolve_need_none() -> None:
    assert size_workspace(make_convolution(dtype="complex64"), FORWARD).most_tried_bytes == 0


def test_only_benchmark_mode_tries() -> None:
    plain, tried = (
        size_largest(OutsideUse(convolutions=((make_convolution(has_benchmark=it), FORWARD | FILTER),)))
        for it in (False, True)
    )
    assert plain.most_tried_bytes == plain.likely_tried_bytes == 0
    assert tried.most_tried_bytes > tried.likely_tried_bytes > tried.likely_bytes == plain.likely_bytes
    assert tried.most_bytes == plain.most_bytes


def test_without_a_trace_the_largest_workspace_counts_twice() -> None:
    plain, tried = (
        OutsideUse(convolutions=((make_convolution(has_benchmark=it), FORWARD),)) for it in (False, True)
    )
    reserved = 1000 * MIB
    largest = size_largest(tried)
    part = size_workspaces(plain, reserved)
    assert (part.least_bytes, part.likely_bytes) == (0, 17 * MIB + largest.likely_bytes)
    assert part.most_bytes == 64 * MIB + 2 * largest.most_bytes + 50 * MIB
    assert part.note is None
    raised = size_workspaces(tried, reserved)
    assert raised.most_bytes == 64 * MIB + largest.most_bytes + largest.most_tried_bytes + 50 * MIB
    assert "benchmark is on" in (raised.note or "")


SIZES = st.integers(1, 600)


@given(
    taken=st.tuples(st.integers(1, 512), SIZES, SIZES, SIZES),
    made=SIZES,
    window=st.tuples(st.integers(1, 13), st.integers(1, 13)),
    stride=st.integers(1, 4),
    flags=st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
            "is_channels_last": st.booleans(),
            "allows_tf32": st.booleans(),
            "is_transposed": st.booleans(),
        }
    ),
    is_depthwise=st.booleans(),
    computed=st.sampled_from([FORWARD, DATA, FILTER]),
    gpu=st.sampled_from([None, A100, H100, T4, GpuKind("unknown")]),
)
def test_the_most_is_never_less_than_what_is_likely(
    taken: tuple[int, ...],
    made: int,
    window: tuple[int, int],
    stride: int,
    flags: dict[str, Any],
    is_depthwise: bool,
    computed: int,
    gpu: GpuKind | None,
) -> None:
    images, channels, height, width = taken
    groups = channels if is_depthwise else 1
    convolution = make_convolution(
        input_shape=taken,
        weight_shape=(made, channels // groups, *window),
        output_shape=(images, made, -(-height // stride), -(-width // stride)),
        groups=groups,
        **flags,
    )
    found = size_workspace(convolution, computed, gpu)
    assert 0 <= found.likely_bytes <= found.most_bytes <= found.most_tried_bytes
    assert found.likely_bytes <= found.likely_tried_bytes <= found.most_tried_bytes
