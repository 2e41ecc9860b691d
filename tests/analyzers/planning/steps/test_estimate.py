"""Estimates of small steps: by hand, beside the simulated device with real storage, extrapolated."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from vramscope import estimates
from vramscope.analyzers.planning.cluster import DEVICES
from vramscope.analyzers.planning.steps import GpuKind, StepEstimate, StepPeaks
from vramscope.analyzers.planning.steps.outside import (
    BARE_CONTEXTS,
    BareContext,
    size_context,
)
from vramscope.engine.errors import PackageMissingError, UsageError
from vramscope.engine.model.outside import BACKWARD_FILTER, FORWARD
from vramscope.estimates import StepRequest, estimate_step, find_gpu, judge_traces, trace_steps
from vramscope.exporters.estimates import describe_step_estimate

from ....components import require_package
from ....engine.simulation.simulated import run_ranks
from .tracing import warm  # noqa: F401 - a fixture

require_package("torch")
pytestmark = pytest.mark.usefixtures("warm")
MIB = 1 << 20
INPUT_BYTES = 8 * 1024 * 4


def shares(estimate: StepEstimate) -> dict[str, int]:
    return {share.name: share.size_bytes for share in estimate.kinds}


def test_a_matrix_under_adamw_is_what_one_works_out_by_hand() -> None:
    request = StepRequest(factory="trainings:square", inputs=("8x1024",), layers=None)
    traced = trace_steps(request)
    estimate = judge_traces(traced, request, None)
    # In the optimizer: weight, gradient, two states, and the square root that the foreach kernel takes. The
    # output and the loss of this step and of the one before are there too, as in the loop of a script.
    assert estimate.peak_phase == "optimizer"
    assert shares(estimate) == {
        "optimizer state": 8 * MIB,
        "parameter": 4 * MIB,
        "gradient": 4 * MIB,
        "temporary": 4 * MIB,
        "input": INPUT_BYTES,
        "activation": INPUT_BYTES + 512,
        "other": INPUT_BYTES + 512,
    }
    kept = 2 * (INPUT_BYTES + 512)
    assert estimate.live_peak_bytes == estimate.allocated_peak_bytes == 20 * MIB + INPUT_BYTES + kept
    backward = next(phase for phase in estimate.phases if phase.phase == "backward")
    # Of the size of the input are the input, the gradient of the output, and what is kept.
    assert backward.live_bytes == (12 + 4) * MIB + 2 * INPUT_BYTES + 512 + kept
    assert (backward.module, estimate.label) == ("Linear", "estimated, no GPU was used")
    assert estimate.reserved_peak_bytes == 20 * MIB + 2 * MIB
    exact = msgspec.structs.replace(request, context_bytes=512 * MIB)
    # cuBLAS may get 64 MiB more, and other kernels 5 % of what is reserved.
    most = 64 * MIB + round(0.05 * estimate.reserved_peak_bytes)
    small = judge_traces(traced, exact, (512 + 20) * MIB).capacity
    enough = judge_traces(traced, exact, (512 + 22) * MIB + most).capacity
    assert small is not None
    assert enough is not None
    # The matrices fill a segment of 20 MiB; the input needs another one.
    assert (small.does_fit, small.failed_bytes, small.failed_phase) == (False, INPUT_BYTES, "forward")
    assert (enough.does_fit, enough.retries) == (True, 0)
    assert (enough.outside_least_bytes, enough.outside_most_bytes) == (512 * MIB, 512 * MIB + most)


def test_what_no_tensor_holds_is_a_range_and_a_card_must_have_its_upper_end() -> None:
    request = StepRequest(factory="trainings:square", inputs=("8x1024",), layers=None)
    traced = trace_steps(request)
    found = judge_traces(traced, request, None)
    context, workspaces = found.outside
    assert context.least_bytes < context.likely_bytes < context.most_bytes
    assert context.source
    assert workspaces.most_bytes == 64 * MIB + round(0.05 * found.reserved_peak_bytes), "no convolution"
    most = context.most_bytes + workspaces.most_bytes
    assert found.card_least_bytes == found.reserved_peak_bytes + context.least_bytes
    assert found.card_most_bytes == found.reserved_peak_bytes + most
    assert found.card_least_bytes < found.card_likely_bytes < found.card_most_bytes

    def judge(capacity_bytes: int) -> bool | None:
        check = judge_traces(traced, request, capacity_bytes).capacity
        assert check is not None
        return check.does_fit

    assert judge(found.card_most_bytes) is True
    assert judge(found.card_most_bytes - 2 * MIB) is None, "only a smaller context leaves room"
    assert judge(found.card_least_bytes) is None
    assert judge(found.card_least_bytes - 2 * MIB) is False


@pytest.mark.parametrize("measured", BARE_CONTEXTS, ids=lambda it: it.gpu)
def test_a_context_that_was_measured_is_in_the_range_of_its_kind(measured: BareContext) -> None:
    kind = GpuKind(measured.gpu, measured.capability, measured.multiprocessors)
    part = size_context(gpu=kind)
    assert part.least_bytes <= measured.mib * MIB <= part.likely_bytes < part.most_bytes
    # Also where the other kinds of its architecture are all that is known, the size is close.
    others = [it for it in BARE_CONTEXTS if it.capability == measured.capability and it != measured]
    for other in others:
        assert other.bytes_per_multiprocessor * measured.multiprocessors == pytest.approx(
            measured.mib * MIB, rel=0.06
        )


def test_no_kind_of_gpu_has_a_wider_range_than_any_gpu() -> None:
    wide = size_context()
    narrower = 0
    for device in (it for it in DEVICES.values() if it.capability is not None):
        part = size_context(gpu=GpuKind(device.kind, device.capability, device.multiprocessors))
        assert part.most_bytes <= wide.most_bytes
        width, widest = (it.most_bytes - it.least_bytes for it in (part, wide))
        assert width <= widest
        assert (width < widest) == (part.note is None), "what is not narrower says why"
        narrower += width < widest
    assert narrower >= len(DEVICES) // 2


def test_workspaces_of_blas_are_those_of_the_architecture() -> None:
    request = StepRequest(factory="trainings:square", inputs=("8x1024",), layers=None)
    traced = trace_steps(request)

    def size(gpu: str | None) -> int:
        kind = None if gpu is None else find_gpu(gpu)[0]
        return judge_traces(traced, msgspec.structs.replace(request, gpu=kind), None).outside[1].likely_bytes

    assert (size(None), size("rtx4090"), size("h100")) == (17 * MIB, 17 * MIB, 64 * MIB)


def test_graphs_of_the_compiler_add_a_pool_of_their_own_at_the_upper_end() -> None:
    eager, graphed = (
        judge_traces(trace_steps(request), request, None)
        for request in (StepRequest(factory="trainings:plain"), StepRequest(factory="trainings:graphed"))
    )
    made = shares(graphed)["activation"] + shares(graphed)["temporary"]
    assert "CUDA graphs" not in [part.name for part in eager.outside]
    assert graphed.outside[-1].name == "CUDA graphs"
    assert graphed.outside[-1].least_bytes == 0
    assert graphed.outside[-1].most_bytes == made + 2 * 28 * MIB


def test_a_compiled_model_needs_less_and_the_text_says_how_it_was_counted() -> None:
    eager, compiled = (
        judge_traces(trace_steps(request), request, None)
        for request in (StepRequest(factory="trainings:plain"), StepRequest(factory="trainings:graphed"))
    )
    assert eager.compiled_graphs == 0
    assert compiled.compiled_graphs == 1
    assert compiled.run_eagerly == ()
    assert compiled.live_peak_bytes < eager.live_peak_bytes
    assert shares(compiled)["parameter"] == shares(eager)["parameter"]
    assert shares(compiled)["optimizer state"] == shares(eager)["optimizer state"]
    text = " ".join(describe_step_estimate(compiled, 80).split())
    assert "torch.compile: 1 graph traced as the programs that Inductor writes for CUDA" in text
    assert "not compared with a GPU" in text


def test_what_cannot_be_compiled_is_traced_as_it_is_and_called_an_upper_bound() -> None:
    plain, other = (
        judge_traces(trace_steps(request), request, None)
        for request in (
            StepRequest(factory="trainings:plain"),
            StepRequest(factory="trainings:compiled_else"),
        )
    )
    assert other.live_peak_bytes == plain.live_peak_bytes
    assert other.run_eagerly == ("the backend aot_eager is not Inductor",)
    assert "upper bound: the backend aot_eager" in " ".join(describe_step_estimate(other, 80).split())


@pytest.mark.parametrize("factory", ["convolving", "convolving_by_a_function", "convolving_compiled"])
def test_the_largest_convolution_is_found_with_its_input_and_output(factory: str) -> None:
    request = StepRequest(factory=f"trainings:{factory}", inputs=("2x8x64x64",), layers=None)
    largest, passes = trace_steps(request).result.uses.convolutions[0]
    assert (largest.input_shape, largest.output_shape) == ((2, 8, 64, 64), (2, 32, 64, 64))
    assert largest.weight_shape == (32, 8, 3, 3)
    assert passes & FORWARD
    assert passes & BACKWARD_FILTER


def estimate_convolving(name: str, **changes: Any) -> StepEstimate:
    request = StepRequest(factory=f"trainings:{name}", inputs=("64x8x64x64",), **changes)
    return judge_traces(trace_steps(request), request, None)


def test_that_cudnn_tries_algorithms_raises_the_upper_end() -> None:
    plain, tried = (estimate_convolving(name) for name in ("convolving", "benchmarking"))
    assert plain.outside[1].note is None
    assert "torch.backends.cudnn.benchmark is on" in (tried.outside[1].note or "")
    assert tried.reserved_peak_bytes == plain.reserved_peak_bytes
    # Sixteen parts of the largest result: 32 channels at 64 x 64, 64 images in fp32.
    assert tried.card_most_bytes > plain.card_most_bytes + 256 * MIB
    assert "torch.backends.cudnn.benchmark is on" in " ".join(describe_step_estimate(tried, 80).split())


def test_workspaces_of_convolutions_are_in_the_range_where_they_are_computed() -> None:
    ampere = estimate_convolving("convolving", gpu=GpuKind("A100", (8, 0), 108))
    turing = estimate_convolving("convolving", gpu=GpuKind("T4", (7, 5), 40))
    cublas = 17 * MIB
    assert turing.outside[1].likely_bytes == cublas
    # The convolution with 32 channels copies 8 + 32 of them.
    copies = 64 * (8 + 32) * 64 * 64 * 4
    assert cublas < ampere.outside[1].likely_bytes < cublas + 3 * copies
    # On top of that one more finds no room in the cache, with a part of its output.
    most = ampere.outside[1].likely_bytes - cublas + copies + 64 * 32 * 64 * 64 * 4
    share = 0.05 * ampere.reserved_peak_bytes
    assert ampere.outside[1].most_bytes == pytest.approx(most + 64 * MIB + share, rel=0.01)


def test_what_a_step_returns_lives_until_the_next_has_returned() -> None:
    dropped, kept = (
        judge_traces(trace_steps(request), request, None)
        for request in (
            StepRequest(factory="trainings:dropping_its_output"),
            StepRequest(factory="trainings:returning_its_output"),
        )
    )
    assert dropped.live_peak_bytes == 64 * MIB
    assert kept.live_peak_bytes == 2 * 64 * MIB, "that of the step before, while the next is made"


@pytest.mark.parametrize("name", ["plain", "mixed", "scaled", "tied", "checkpointed", "private"])
def test_without_storage_every_block_comes_and_goes_as_with_it(name: str) -> None:
    if name == "private":
        require_package("opacus")
    request = StepRequest(factory=f"trainings:{name}", batch_size=4)
    traced = trace_steps(request)
    assert traced.is_fake
    (fake,) = traced.result.traces
    (real,) = estimates._run(request, is_fake=False).traces
    assert fake.sizes == real.sizes
    if name not in ("mixed", "scaled"):  # autocast lets go of its copies in the order of their addresses
        assert fake.events == real.events
    estimate = judge_traces(traced, request, None)
    # What torch.cuda.max_memory_allocated() said there.
    assert estimate.allocated_peak_bytes == real.allocated_peak_bytes
    total = estimate.live_peak_bytes
    assert sum(shares(estimate).values()) == sum(it.size_bytes for it in estimate.modules) == total
    assert shares(estimate)["optimizer state"] > 2 * shares(estimate)["parameter"] * 0.99
    assert ("per-sample gradient" in shares(estimate)) == (name == "private")
    assert ("recomputation" in {it.phase for it in estimate.phases}) == (name == "checkpointed")


def test_a_deep_model_extrapolated_is_the_deep_model_traced() -> None:
    deep = StepRequest(factory="trainings:plain", layers=40)
    whole = trace_steps(StepRequest(factory=deep.factory, layers=40, is_full=True))
    short = trace_steps(deep)
    traced, extended = judge_traces(whole, deep, None), judge_traces(short, deep, 1 << 40)
    assert extended.traced_layers == (4, 8, 16)
    assert extended.live_peak_bytes == traced.live_peak_bytes
    assert (extended.kinds, extended.modules) == (traced.kinds, traced.modules)
    assert (extended.peak_phase, extended.peak_module) == (traced.peak_phase, traced.peak_module)
    assert extended.reserved_peak_bytes == pytest.approx(traced.reserved_peak_bytes, rel=0.05)
    assert extended.check is not None
    assert extended.check.predicted_live_bytes == extended.check.traced_live_bytes
    assert extended.capacity is not None
    assert extended.capacity.does_fit
    names = {peak.module for peak in StepPeaks(whole.result.traces[0]).by_place.values()}
    assert {"blocks.0.mix.0", "blocks.39.mix.0", "head"} <= names


def test_a_step_that_reads_a_value_gets_a_stand_in_and_is_named() -> None:
    estimate = estimate_step("trainings:reading", layers=6)
    shown: str = estimate._repr_html_()  # type: ignore[attr-defined]  # what a notebook asks for
    assert shown.startswith("<pre")
    assert "trainings:reading" in shown
    assert estimate.storage == "fake"
    (line,) = estimate.readings
    assert "trainings.py:" in line
    assert not estimate.is_upper_bound
    assert estimate.live_peak_bytes == estimate_step("trainings:plain", layers=6).live_peak_bytes


def test_a_step_with_sizes_that_depend_on_values_is_made_on_the_host_at_small_depth() -> None:
    estimate = estimate_step("trainings:choosing", layers=6, capacity_bytes=1)
    assert (estimate.storage, estimate.traced_layers) == ("host", (2, 3, 4))
    assert estimate.fallback is not None
    assert "trainings.py:" in estimate.fallback
    assert estimate.fallback.endswith("reads the value of a tensor")
    assert estimate.live_peak_bytes == estimate_step("trainings:plain", layers=6).live_peak_bytes
    assert estimate.capacity is not None
    assert estimate.capacity.does_fit is False


Peaks = dict[str, list[list[int]]]


def measure_ranks(folder: Path, ranks: int, *names: str) -> list[Peaks]:
    """Return allocated and reserved bytes at the peaks of steps that each rank makes among the others."""
    script = f"""
import json, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import trainings
print(json.dumps(trainings.measure({names!r})))
"""
    printed = run_ranks(folder, script, {"total_bytes": 1 << 30, "devices": ranks}, ranks)
    return [json.loads(it.splitlines()[-1]) for it in printed]


def check_rank(name: str, peaks: list[list[int]], ranks: int, rank: int) -> StepEstimate:
    """Check that a rank alone needs in every step what it needs among the others."""
    estimate = estimate_step(f"trainings:{name}", ranks=ranks, rank=rank)
    assert (estimate.ranks, estimate.rank, estimate.storage) == (ranks, rank, "fake")
    assert estimate.readings == ()
    expected = [estimate.allocated_peak_bytes, estimate.reserved_peak_bytes]
    assert peaks == [expected] * len(peaks), name
    return estimate


def test_each_rank_in_one_process_needs_what_it_needs_among_the_others(tmp_path: Path) -> None:
    # Sharded weights, a pipeline whose stages ask each other for shapes, and experts.
    names = ("sharded", "pipelined", "routed", "unlimited")
    real = measure_ranks(tmp_path, 2, *names)
    for rank, peaks in enumerate(real):
        for name in names[:-1]:
            estimate = check_rank(name, peaks[name], 2, rank)
            # Collectives among two, and in a pipeline only transfers to the one neighbour.
            sizes = (40, 544, 1638) if name == "sharded" else (4, 64, 448 + 512)
            buffers = next(part for part in estimate.outside if part.name == "NCCL")
            found = (buffers.least_bytes, buffers.likely_bytes, buffers.most_bytes)
            if name != "routed":
                assert found == tuple(size * MIB for size in sizes)
    # 63 columns are 32 rows on one rank and 31 on the other: the two differ.
    assert real[0]["sharded"] > real[1]["sharded"]
    # The last of 1,024 has no row of the 250 and 63.
    last = estimate_step("trainings:sharded", ranks=1024, rank=1023)
    assert shares(last).get("parameter", 0) == 0
    # Where values decide how many rows an expert gets, it is taken to get as many as the rank sends.
    balanced = estimate_step("trainings:unlimited", ranks=2, rank=0)
    assert "how many rows go to each rank depends on values" in (balanced.fallback or "")
    seen = [allocated for peaks in real for allocated, _ in peaks["unlimited"]]
    assert min(seen) <= balanced.allocated_peak_bytes <= max(seen)


def test_of_eight_ranks_each_needs_what_it_needs_alone(tmp_path: Path) -> None:
    """All parallelisms on two, four and eight ranks: `python -m benchmarks.rank_estimate`."""
    names = ("overlapping", "routed")
    real = measure_ranks(tmp_path, 8, *names)
    for name in names:
        assert all(peaks[name] == real[0][name] for peaks in real)
        check_rank(name, real[7][name], 8, 7)


def test_counts_that_ranks_send_each_other_are_known_without_storage() -> None:
    estimate = estimate_step("trainings:counted", ranks=4, rank=3)
    # Each of four gives 64 rows to each; a stand-in would be one row, and would need real tensors.
    assert (estimate.storage, estimate.readings, estimate.fallback) == ("fake", (), None)


def test_numbers_that_another_rank_knows_are_named_as_read_and_uneven_parts_are_gathered() -> None:
    estimate = estimate_step("trainings:unevenly_gathered", ranks=4, rank=2)
    (place,) = estimate.readings
    assert "trainings.py:" in place


def test_a_module_with_a_list_named_buffers_is_traced() -> None:
    assert shares(estimate_step("trainings:wrapped"))["buffer"] == 1024


def test_what_an_operation_reads_stays_until_somebody_waits() -> None:
    estimate = estimate_step("trainings:overlapping", ranks=2)
    # What it gathers into, three tensors that it makes, what is gathered from it, and what it gets.
    assert estimate.live_peak_bytes == 2 * (128 << 10) + 3 * (256 << 10) + (512 << 10) + 2 * (512 << 10)


def test_what_the_factory_raises_is_its_own(warm: list[str]) -> None:  # noqa: F811 - the fixture
    with pytest.raises(UsageError, match="trainings:broken raised KeyError: 'depth'"):
        estimate_step("trainings:broken")
    assert 'return settings["depth"]' in warm[-1]
    assert "step_trace" not in warm[-1]


def test_what_trains_a_module_alone_is_named() -> None:
    estimate = estimate_step("trainings:square", "8x1024", optimizer="sgd")
    assert estimate.made_with == ("SGD", "the mean of its first output as the loss")
    assert "its step has SGD and the mean of its first output" in describe_step_estimate(estimate, 400)
    assert estimate_step("trainings:plain").made_with == ()


@pytest.mark.parametrize(
    ("factory", "options", "said"),
    [
        (
            "trainings:broken",
            {"layers": 3},
            "no argument layers; its arguments are none: .* leave out layers$",
        ),
        ("trainings:square", {}, "returned a module: give inputs, for example 4x1024:int64"),
        ("trainings:needs_depth", {}, "^the factory needs an argument batch_size: give batch_size$"),
        (
            "trainings:needs_depth",
            {"batch_size": 2},
            "depth, which vramscope does not pass: add a default",
        ),
        ("trainings:left_on_host", {}, "allocated nothing on the GPU; expected .* moved there"),
        ("trainings", {}, "expected MODULE:FUNCTION"),
        ("trainings:plain", {"batch_size": 0}, "^batch_size 0: expected 1 or more"),
        ("trainings:plain", {"is_full": True}, "^is_full needs layers: without it"),
        ("trainings:plain", {"rank": 1}, "^rank needs ranks: how many there are"),
        ("jobs/train.py:make", {}, "^jobs/train.py:make: a module is named without .py: jobs.train:make$"),
        ("nowhere:make", {}, "^factory nowhere:make: No module named 'nowhere'"),
    ],
)
def test_what_makes_no_step_is_told_in_a_line(factory: str, options: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        estimate_step(factory, **options)  # type: ignore[arg-type]


def test_without_pytorch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "find_spec", lambda name: None)
    with pytest.raises(PackageMissingError, match=r"needs PyTorch: pip install 'vramscope\[train\]'"):
        estimate_step("trainings:plain")


def test_shallow_models_call_a_card_neither_large_enough_nor_too_small_where_a_flush_decides() -> None:
    request = StepRequest(factory="trainings:plain", layers=40, context_bytes=512 * MIB)
    traced = trace_steps(request)
    needed = judge_traces(traced, request, None)

    def ask(room_bytes: int) -> bool | None:
        capacity = judge_traces(traced, request, 512 * MIB + room_bytes).capacity
        assert capacity is not None
        return capacity.does_fit

    assert ask(needed.allocated_peak_bytes - 1) is False
    assert ask(needed.reserved_peak_bytes) is None
    assert ask(2 * needed.reserved_peak_bytes + (64 + 20) * MIB) is True
    # A little less than shallow models ask for, and enough for the whole depth.
    enough = 512 * MIB + needed.reserved_peak_bytes + needed.outside[1].most_bytes + 19 * MIB
    assert ask(enough - 512 * MIB) is None
    whole = estimate_step(
        request.factory, layers=40, capacity_bytes=enough, context_bytes=request.context_bytes
    )
    assert whole.capacity is not None
    assert whole.traced_layers == ()
    assert whole.capacity.does_fit is not None
