"""Bytes of the model, counted from real optimizers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.engine.probe.clocks import WoundClock
from tests.engine.probe.hub import listen
from tests.engine.probe.stand_in import StandInCuda, StandInOptimizer, make_torch
from tests.later import LaterModule
from tests.waiting import wait_until
from vramscope.engine.probe import model_state
from vramscope.engine.probe import session as hooks
from vramscope.engine.probe.base import current
from vramscope.engine.probe.base.current import Guard
from vramscope.engine.probe.model_state import (
    MOST_OPTIMIZERS,
    ModelStateWatch,
    hook_modules,
    measure_state,
)
from vramscope.engine.probe.session import Session

pytestmark = pytest.mark.loads_torch

if TYPE_CHECKING:
    import torch
else:
    torch = LaterModule("torch")

FLOAT_BYTES = 4
INDEX_BYTES = 8
UNMEASURED = dict.fromkeys(("parameters_bytes", "gradients_bytes", "optimizer_bytes", "grad_sample_bytes"))


@pytest.fixture(autouse=True)
def no_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the modules that other tests have built in this process."""
    monkeypatch.setattr(model_state, "_modules", {})


def measure(*optimizers: torch.optim.Optimizer) -> dict[str, int | None] | None:
    return measure_state(optimizers, lambda: 0.0, 1.0)


def train_once(model: torch.nn.Module, optimizer: torch.optim.Optimizer, *shape: int) -> None:
    model(torch.ones(*shape)).sum().backward()
    optimizer.step()


def test_parameters_gradients_and_moments_are_counted_in_their_own_sizes() -> None:
    model = torch.nn.Linear(100, 50, dtype=torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 100, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    numbers = 100 * 50 + 50
    assert measure(optimizer) == {
        "parameters_bytes": 2 * numbers,
        "gradients_bytes": 2 * numbers,
        "optimizer_bytes": 2 * 2 * numbers + 2 * FLOAT_BYTES,
        "grad_sample_bytes": None,
    }
    optimizer.zero_grad()
    state = measure(optimizer)
    assert state is not None
    assert state["gradients_bytes"] == 0


def test_moments_of_eight_bits_are_optimizer_states_with_their_scales_and_maps() -> None:
    class EightBits(torch.optim.SGD):
        """Keeps moments as bitsandbytes does: bytes, a scale for each block, and maps that all share."""

        def step(self, closure: None = None) -> None:
            maps = [torch.zeros(256), torch.zeros(256)]
            for parameter in self.param_groups[0]["params"]:
                self.state[parameter] = {"step": 1}
                for number, each in enumerate(maps, 1):
                    self.state[parameter] |= {
                        f"state{number}": torch.zeros(parameter.shape, dtype=torch.uint8),
                        f"qmap{number}": each,
                        f"absmax{number}": torch.zeros(-(-parameter.numel() // 256)),
                    }

    model = torch.nn.Linear(100, 50)
    optimizer = EightBits(model.parameters(), 0.1)
    train_once(model, optimizer, 2, 100)
    state = measure(optimizer)
    assert state is not None
    blocks = -(-5000 // 256) + 1
    assert state["optimizer_bytes"] == 2 * (5050 + FLOAT_BYTES * blocks + FLOAT_BYTES * 256)


def test_a_storage_that_is_shared_counts_once() -> None:
    flat = torch.zeros(60)
    views = [torch.nn.Parameter(flat[:20]), torch.nn.Parameter(flat[20:])]
    tied = torch.nn.Parameter(torch.zeros(7))
    first = torch.optim.SGD([*views, tied], lr=0.1)
    second = torch.optim.SGD([tied], lr=0.1)
    state = measure(first, second)
    assert state is not None
    assert state["parameters_bytes"] == (60 + 7) * FLOAT_BYTES


def test_frozen_weights_are_parameters_as_those_that_train_are() -> None:
    hook_modules(torch)
    layer = torch.nn.Linear(8, 8, bias=False)
    base = torch.nn.Sequential(layer, torch.nn.ModuleList([copy.deepcopy(layer) for _ in range(3)]))
    base.requires_grad_(requires_grad=False)
    adapter = torch.nn.Linear(2, 2, bias=False)
    optimizer = torch.optim.SGD(adapter.parameters(), lr=0.1)
    discarded = torch.nn.Linear(100, 100)
    del discarded
    state = measure(optimizer)
    assert state is not None
    assert state["parameters_bytes"] == (4 * 64 + 4) * FLOAT_BYTES
    del base
    state = measure(optimizer)
    assert state is not None
    assert state["parameters_bytes"] == (64 + 4) * FLOAT_BYTES


def test_weights_whose_optimizer_holds_a_part_in_full_precision_count_with_their_gradients() -> None:
    # As ZeRO and Megatron-LM's distributed optimizer train.
    hook_modules(torch)
    model = torch.nn.Linear(8, 8, bias=False, dtype=torch.bfloat16)
    model.weight.main_grad = torch.zeros(64)
    part = torch.nn.Parameter(torch.zeros(32))
    state = measure(torch.optim.SGD([part], lr=0.1))
    assert state is not None
    assert state["parameters_bytes"] == 64 * 2 + 32 * FLOAT_BYTES
    assert state["gradients_bytes"] == 64 * FLOAT_BYTES


def test_modules_on_other_devices_and_without_a_shape_yet_are_left_out() -> None:
    hook_modules(torch)
    on_the_host = torch.nn.Linear(8, 8)
    lazy = torch.nn.LazyLinear(5, device="meta")
    trained = torch.nn.Linear(4, 4, bias=False, device="meta")
    state = measure(torch.optim.SGD(trained.parameters(), lr=0.1))
    assert (on_the_host.out_features, lazy.out_features) == (8, 5)
    assert state is not None
    assert state["parameters_bytes"] == 16 * FLOAT_BYTES


def test_looking_leaves_an_optimizer_as_it_was() -> None:
    optimizer = torch.optim.Adam(torch.nn.Linear(3, 3).parameters())
    measure(optimizer)
    assert len(optimizer.state) == 0


def test_wrappers_and_tensors_without_memory_are_counted_by_what_is_inside() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    two = pytest.importorskip("torch.testing._internal.two_tensor").TwoTensor
    wrapped = torch.nn.Parameter(two(torch.ones(10), torch.ones(10)))
    with FakeTensorMode():
        fakes = [torch.nn.Parameter(torch.empty(1000, 1000)) for _ in range(2)]
    meta = torch.nn.Parameter(torch.empty(5, device="meta"))
    for parameters, numbers in (([wrapped], 20), (fakes, 2_000_000), ([meta], 5)):
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        state = measure(optimizer)
        assert state is not None
        assert state["parameters_bytes"] == numbers * FLOAT_BYTES


@pytest.mark.filterwarnings("error")
def test_fake_tensors_that_say_they_lie_on_a_card_are_counted_without_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fakes = [torch.nn.Parameter(torch.empty(1000, 1000)) for _ in range(2)]
    optimizer = torch.optim.SGD(fakes, lr=0.1)
    monkeypatch.setattr(torch.UntypedStorage, "device", property(lambda _: torch.device("cuda", 0)))
    state = measure(optimizer)
    assert state is not None
    assert state["parameters_bytes"] == 2_000_000 * FLOAT_BYTES


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gradients_per_sample_of_opacus_are_counted_where_they_are() -> None:
    opacus = pytest.importorskip("opacus")
    model = torch.nn.Linear(20, 10)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(64, 20)), batch_size=16)
    private, optimizer, _ = opacus.PrivacyEngine(accountant="rdp").make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=data,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
    )
    seen = []
    optimizer.original_optimizer.register_step_post_hook(lambda it, *_: seen.append(measure(it)))
    train_once(private, optimizer, 16, 20)
    numbers = 20 * 10 + 10
    (state,) = seen
    assert state is not None
    assert state["parameters_bytes"] == numbers * FLOAT_BYTES
    # One gradient for each of 16 samples, and their clipped sum; that sum becomes the gradient's own storage
    # or a second one, by version, so only the samples are certain.
    assert state["grad_sample_bytes"] is not None
    assert 16 * numbers * FLOAT_BYTES <= state["grad_sample_bytes"] <= 17 * numbers * FLOAT_BYTES


def test_a_walk_that_takes_too_long_is_given_up_and_measures_nothing() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1)) for _ in range(10)], lr=0.1)
    times = iter(range(100))
    assert measure_state([optimizer], lambda: float(next(times)), 5.0) is None


def count_walks(watch: ModelStateWatch, steps: int, pass_time: Callable[[], None]) -> list[int]:
    walked = []
    for step in range(1, steps + 1):
        if watch.measure() is not None:
            walked.append(step)
        pass_time()
    return walked


def test_walks_are_rare_after_the_first_steps() -> None:
    clock = WoundClock()
    watch = ModelStateWatch(clock)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    watch.note_optimizer(optimizer)
    assert count_walks(watch, 100, lambda: clock.advance(1.0)) == [1, 2, 3, 33, 63, 93]


def test_more_parameters_or_state_are_counted_at_once() -> None:
    clock = WoundClock()
    watch = ModelStateWatch(clock)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    watch.note_optimizer(optimizer)
    count_walks(watch, 3, lambda: clock.advance(0.1))
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(5))]})
    state = watch.measure()
    assert state is not None
    assert state["parameters_bytes"] == 6 * FLOAT_BYTES
    assert watch.measure() is None


def test_an_optimizer_is_not_kept_alive() -> None:
    watch = ModelStateWatch(WoundClock())
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(4))], lr=0.1)
    watch.note_optimizer(optimizer)
    del optimizer
    import gc

    gc.collect()
    state = watch.measure()
    assert state is not None
    assert state["parameters_bytes"] == 0


def test_sparse_gradients_are_counted_by_their_parts() -> None:
    table = torch.nn.Embedding(100, 8, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    train = table(torch.tensor([7, 7, 42])).sum()
    train.backward()
    optimizer.step()
    state = measure(optimizer)
    assert state is not None
    assert state["parameters_bytes"] == 100 * 8 * FLOAT_BYTES
    assert state["gradients_bytes"] == 3 * INDEX_BYTES + 3 * 8 * FLOAT_BYTES


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_compressed_sparse_tensors_are_counted_by_their_parts() -> None:
    starts, places, values = torch.arange(4), torch.arange(3), torch.ones(3)
    for make in (torch.sparse_csr_tensor, torch.sparse_csc_tensor):
        parameter = torch.nn.Parameter(make(starts, places, values, size=(3, 3)))
        state = measure(torch.optim.SGD([parameter], lr=0.1))
        assert state is not None
        assert state["parameters_bytes"] == (4 + 3) * INDEX_BYTES + 3 * FLOAT_BYTES


def test_a_tensor_without_a_storage_leaves_its_own_figure_unmeasured() -> None:
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this build of PyTorch has no MKL-DNN")
    parameter = torch.nn.Parameter(torch.zeros(4, 4))
    optimizer = torch.optim.SGD([parameter, torch.nn.Parameter(torch.zeros(2))], lr=0.1)
    optimizer.state[parameter]["opaque"] = torch.zeros(4, 4).to_mkldnn()
    state = measure(optimizer)
    assert state is not None
    assert state["optimizer_bytes"] is None
    assert (state["parameters_bytes"], state["gradients_bytes"]) == (18 * FLOAT_BYTES, 0)


def test_an_optimizer_for_every_parameter_is_counted_whole() -> None:
    watch = ModelStateWatch(WoundClock())
    optimizers = [torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))], lr=0.1) for _ in range(300)]
    for optimizer in optimizers:
        watch.note_optimizer(optimizer)
    state = watch.measure()
    assert state is not None
    assert state["parameters_bytes"] == 300 * 3 * FLOAT_BYTES
    assert watch.note is None


def test_more_optimizers_than_are_kept_make_the_bytes_unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramscope.engine.probe.model_state.MOST_OPTIMIZERS", 5)
    watch = ModelStateWatch(WoundClock())
    optimizers = [torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))], lr=0.1) for _ in range(6)]
    for optimizer in optimizers:
        watch.note_optimizer(optimizer)
    assert watch.measure() == UNMEASURED
    assert "more than 5 optimizers" in str(watch.note)
    assert MOST_OPTIMIZERS >= 1000


class HurriedClock(WoundClock):
    """Lets time pass whenever it is asked, while it hurries."""

    pace_s = 0.0

    def monotonic_s(self) -> float:
        self.now_s += self.pace_s
        return self.now_s


def test_a_walk_that_was_given_up_tells_no_older_figures_and_says_why() -> None:
    clock = HurriedClock()
    watch = ModelStateWatch(clock)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1)) for _ in range(10)], lr=0.1)
    watch.note_optimizer(optimizer)
    assert watch.measure() != UNMEASURED
    clock.pace_s = 0.02
    assert watch.measure() == UNMEASURED
    assert "longer than 50 ms" in str(watch.note)
    clock.pace_s = 0.0
    assert watch.measure() != UNMEASURED
    assert watch.note is None


def test_an_optimizer_that_cannot_be_looked_into_never_raises_and_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(current, "failures", [])
    watch = ModelStateWatch(WoundClock())
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(4))], lr=0.1)
    watch.note_optimizer(optimizer)
    optimizer.state = None
    assert [watch.measure() for _ in range(5)] == [UNMEASURED] * 3 + [None] * 2
    assert not watch.is_new
    assert current.failures[-1].endswith("it was switched off")


def test_steps_are_told_on_when_the_bytes_of_the_model_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(current, "failures", [])
    monkeypatch.setattr(hooks, "_guard", Guard("the hook"))
    clock, optimizer = WoundClock(), StandInOptimizer()
    optimizer.state = None  # type: ignore[assignment]
    with listen(tmp_path) as hub:
        session = Session(make_torch(StandInCuda()), str(tmp_path), None, is_explicit=True, clock=clock)
        monkeypatch.setattr(current, "session", session)
        for _ in range(10):
            hooks._notify_session(optimizer)
            clock.advance(1.0)
        session._tick()
        wait_until(lambda: len(hub.steps()) == 10)
        session.end("exit")


def test_the_hello_says_why_the_bytes_of_the_model_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listen(tmp_path) as hub:
        session = Session(
            make_torch(StandInCuda()), str(tmp_path), None, is_explicit=True, clock=WoundClock()
        )
        monkeypatch.setattr(current, "session", session)
        session._model.note = "the model's size is not reported"
        session._tick()
        wait_until(lambda: bool(hub.connections and hub.connections[0]))
        assert "the model's size is not reported" in hub.hello().notes
        session.end("exit")
