"""Bytes of the model, counted from real optimizers."""

from collections.abc import Callable

import pytest
import torch

from tests.probe.clocks import WoundClock
from vramscope.engine.probe.model_state import ModelStateWatch, measure_state

FLOAT_BYTES = 4


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


def test_a_storage_that_is_shared_counts_once() -> None:
    flat = torch.zeros(60)
    views = [torch.nn.Parameter(flat[:20]), torch.nn.Parameter(flat[20:])]
    tied = torch.nn.Parameter(torch.zeros(7))
    first = torch.optim.SGD([*views, tied], lr=0.1)
    second = torch.optim.SGD([tied], lr=0.1)
    state = measure(first, second)
    assert state is not None
    assert state["parameters_bytes"] == (60 + 7) * FLOAT_BYTES


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
