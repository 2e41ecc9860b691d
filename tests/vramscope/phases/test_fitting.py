"""The largest size that fits: right where memory grows steadily or in steps, and found by few runs."""

import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vramscope.phases.studies import DEVICE, MIB, make_run
from vramscope.engine.errors import UsageError
from vramscope.engine.model.phase_memory import FitSearch, MemoryLevels, PhaseMemory, PhaseRun, PhaseTraining
from vramscope.phases.seqlen import FitTask, search_fit

CAPACITY = 24 << 30
CONTEXT = 512 * MIB
Needs = Callable[[int], int]


def search(
    needs: Needs, *, capacity: int = CAPACITY, known: tuple[int, ...] = (), step: int = 1
) -> FitSearch:
    """Search on a card on which a size needs so many bytes, and runs out of memory where it has fewer."""
    is_batch = step == 1
    task = FitTask(
        training=PhaseTraining(model_size="tiny"),
        device="simulate",
        varied="batch size" if is_batch else "sequence length",
        step=step,
        capacity_bytes=capacity,
        context_bytes=CONTEXT,
    )

    def run(training: PhaseTraining, device: str) -> PhaseRun:
        size = training.batch_size if is_batch else training.seq_length
        return run_of(needs(size), capacity - CONTEXT)

    return search_fit(task, known={size: run_of(needs(size), capacity - CONTEXT) for size in known}, run=run)


def run_of(needed: int, room: int) -> PhaseRun:
    """Return a run of a model of 100 MiB whose backward pass needs some bytes, as far as there is room."""
    model, peak = _levels(100 * MIB), _levels(needed)
    phases = [PhaseMemory(phase="Model Creation", before=_levels(0), after=model, peak=model)]
    if needed > room:
        run = make_run(fails_in="Backward")
        return msgspec.structs.replace(run, phases=tuple(phases))
    phases.append(PhaseMemory(phase="Backward", step=1, before=model, after=model, peak=peak))
    return PhaseRun(training=PhaseTraining(), device=DEVICE, phases=tuple(phases))


def _levels(size: int) -> MemoryLevels:
    return MemoryLevels(allocated_bytes=size, reserved_bytes=-(-size // (2 * MIB)) * 2 * MIB)


def test_memory_in_proportion_takes_four_small_sizes_and_both_sides_of_the_edge() -> None:
    found = search(lambda size: 1000 * MIB + 77 * MIB * size)
    assert [trial.size for trial in found.trials[:4]] == [1, 4, 16, 64]
    assert found.largest is not None
    assert found.refused is not None
    assert (found.largest.size, found.refused.size) == (299, 300)
    assert found.is_settled
    assert len(found.trials) == 6
    assert found.is_simulated
    assert found.refused.reason == "out of memory in Backward, 512 MiB requested"


def test_a_length_is_a_multiple_of_its_step_also_where_memory_grows_with_its_square() -> None:
    found = search(lambda size: 1000 * MIB + MIB * size + 300 * size * size, step=64)
    edge = max(n for n in range(64, 10_000, 64) if 1000 * MIB + MIB * n + 300 * n * n <= CAPACITY - CONTEXT)
    assert found.largest is not None
    assert found.largest.size == edge
    assert found.is_settled
    assert len(found.trials) <= 8


def test_runs_of_the_study_are_not_run_again() -> None:
    found = search(lambda size: 1000 * MIB + 2 * MIB * size, known=(64, 100, 1024, 2048, 16384), step=64)
    assert [trial.size for trial in found.trials[:4]] == [64, 1024, 2048, 16384]
    assert found.largest is not None
    assert found.largest.size == 11_520
    assert len(found.trials) <= 6


@settings(deadline=None)
@given(
    constant=st.integers(1, 900),
    slope=st.integers(1, 4000),
    noise=st.integers(0, 200),
    seed=st.integers(0, 2**32),
    is_square=st.booleans(),
)
def test_any_memory_that_grows_is_settled_within_few_runs(
    *, constant: int, slope: int, noise: int, seed: int, is_square: bool
) -> None:
    """Noise stands for blocks that are not split: up to some MiB more, alike each time."""

    def needs(size: int) -> int:
        off = random.Random(seed * 100_003 + size).randint(0, noise)
        return (constant + slope * (size * size if is_square else size) + off) * MIB

    found = search(needs, capacity=80 << 30)
    room = (80 << 30) - CONTEXT
    assert found.is_settled
    assert found.refusal is None
    assert len(found.trials) <= 24
    if found.largest is None:
        assert needs(1) > room
        return
    assert needs(found.largest.size) <= room
    assert found.largest.size == found.limit or needs(found.largest.size + 1) > room


def test_what_not_even_one_fits_and_what_never_ends_are_answers_too() -> None:
    nothing = search(lambda size: 30 << 30)
    assert nothing.largest is None
    assert (nothing.is_settled, len(nothing.trials)) == (True, 1)
    all_of_them = search(lambda size: 1000 * MIB)
    assert all_of_them.largest is not None
    assert all_of_them.largest.size == all_of_them.limit
    assert all_of_them.is_settled


def test_an_interruption_or_a_host_too_small_ends_it_with_what_is_known() -> None:
    task = FitTask(
        training=PhaseTraining(),
        device="simulate",
        varied="batch size",
        step=1,
        capacity_bytes=CAPACITY,
        context_bytes=CONTEXT,
    )

    def refuse(training: PhaseTraining, device: str) -> PhaseRun:
        if training.batch_size > 1:
            raise UsageError("ghost needs real tensors")
        return run_of(MIB, CAPACITY)

    found = search_fit(task, run=refuse)
    assert found.largest is not None
    assert (found.largest.size, found.is_settled) == (1, False)
    assert found.refusal == "4 cannot run here: ghost needs real tensors"

    def interrupt(training: PhaseTraining, device: str) -> PhaseRun:
        raise KeyboardInterrupt

    assert search_fit(task, run=interrupt).refusal == "interrupted"
    with pytest.raises(UsageError, match="ghost"):
        search_fit(msgspec.structs.replace(task, training=PhaseTraining(batch_size=2)), run=_refuse_all)


def _refuse_all(training: PhaseTraining, device: str) -> PhaseRun:
    raise UsageError("ghost needs real tensors")
