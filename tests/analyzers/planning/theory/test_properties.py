"""What must hold of every run, whatever its sizes."""

from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.analyzers.planning.theory import (
    ModelShape,
    ParallelLayout,
    RankMemory,
    TrainingSetup,
    count_parameters,
    count_states,
    estimate_stages,
)
from vramscope.analyzers.planning.theory.activations import list_layer_activations
from vramscope.analyzers.planning.theory.estimate import share_turns
from vramscope.analyzers.planning.theory.shape import count_in_flight
from vramscope.analyzers.planning.theory.weights import list_layer_weights

from .runs import Run, runs

PER_PIECE = ("recomputed layers", "gradients of activations", "batch")


def estimate(run: Run) -> tuple[RankMemory, ...]:
    return estimate_stages(run.shape, run.layout, run.setup)


@given(runs(), st.sampled_from(["seq_length", "micro_batch_size", "micro_batches", "layers", "vocab"]))
@settings(max_examples=120, deadline=None)
def test_more_of_anything_needs_no_less(run: Run, what: str) -> None:
    """Twice the tokens, the batch, the micro-batches, the layers or the words: no stage gets smaller."""
    part: Literal["shape", "setup"] = "shape" if what in ("layers", "vocab") else "setup"
    values: dict[str, object] = {what: 2 * getattr(getattr(run, part), what)}
    twice = run.change(part, **values)
    for small, large in zip(estimate(run), estimate(twice), strict=True):
        assert large.peak_bytes >= small.peak_bytes
        assert large.allocated_bytes >= small.allocated_bytes


@given(runs())
@settings(max_examples=100, deadline=None)
def test_parts_add_up_and_the_peak_is_no_less_than_the_rest(run: Run) -> None:
    for memory in estimate(run):
        assert all(part.size_bytes > 0 for moment in memory.moments for part in moment.parts)
        for moment in memory.moments:
            names = [part.name for part in moment.parts]
            assert len(names) == len(set(names))
            assert moment.total_bytes == sum(part.size_bytes for part in moment.parts)
        assert memory.peak_bytes >= memory.allocated_bytes


@given(runs())
@settings(max_examples=60, deadline=None)
def test_stages_hold_every_parameter_once(run: Run) -> None:
    """Without tensor and expert parallelism; a tied head is there twice, on first and last stage."""
    layout = ParallelLayout(pipeline=run.layout.pipeline, virtual_stages=run.layout.virtual_stages)
    stages = estimate(run._replace(layout=layout))
    copies = run.shape.is_tied and layout.pipeline > 1
    head = run.shape.pad_vocab(1) * run.shape.hidden if copies else 0
    assert sum(memory.parameters for memory in stages) == count_parameters(run.shape) + head
    assert sorted(layer for memory in stages for layer in memory.layers) == list(range(run.shape.layers))


@given(runs(), st.sampled_from([2, 4]))
@settings(max_examples=60, deadline=None)
def test_sequence_and_tensor_parallelism_divide_every_activation(run: Run, tensor: int) -> None:
    """arXiv 2205.05198, equation 4: with both, every term is divided by t; experts that stay whole, too."""
    split = ParallelLayout(tensor=tensor, expert_tensor=1, is_sequence_parallel=True)
    whole = list_layer_activations(run.shape, ParallelLayout(), run.setup, 0)
    shared = list_layer_activations(run.shape, split, run.setup, 0)
    assert {name: size * tensor for name, size in shared.items()} == whole


@given(runs())
@settings(max_examples=60, deadline=None)
def test_a_higher_zero_stage_holds_no_more(run: Run) -> None:
    weights = list_layer_weights(run.shape, run.layout, 0)
    totals = [
        count_states(weights, run.layout, run.change("setup", zero_stage=stage).setup).total
        for stage in range(4)
    ]
    assert totals == sorted(totals, reverse=True)


@given(runs())
@settings(max_examples=60, deadline=None)
def test_recompute_saves(run: Run) -> None:
    held = []
    for recompute in ("full", "selective", "none"):
        moments = [memory.moments[1] for memory in estimate(run.change("setup", recompute=recompute))]
        held.append(
            [
                sum(
                    part.size_bytes
                    for part in moment.parts
                    if part.group == "activations" and part.name not in PER_PIECE
                )
                for moment in moments
            ]
        )
    for full, selective, none in zip(*held, strict=True):
        assert full <= selective <= none


@pytest.mark.parametrize(
    ("pieces", "micro_batches", "is_gpipe", "counts"),
    [
        (1, 8, False, [4, 3, 2, 1]),
        (1, 2, False, [2, 2, 2, 1]),
        (1, 8, True, [8, 8, 8, 8]),
        (2, 8, False, [11, 9, 7, 5]),
        (2, 4, False, [8, 8, 7, 5]),
    ],
    ids=["1F1B", "few micro-batches", "GPipe", "interleaved", "interleaved, few"],
)
def test_micro_batches_in_flight_are_those_of_the_schedule(
    pieces: int, micro_batches: int, is_gpipe: bool, counts: list[int]
) -> None:
    """Counted by hand from figures 3 and 4 of arXiv 2104.04473, with four stages."""
    layout = ParallelLayout(pipeline=4, virtual_stages=pieces)
    setup = TrainingSetup(seq_length=8, micro_batch_size=1, micro_batches=micro_batches, is_gpipe=is_gpipe)
    assert [count_in_flight(layout, setup, stage) for stage in range(4)] == counts


@given(
    st.integers(1, 4), st.integers(1, 4), st.integers(1, 12), st.sampled_from([None, 1, 3, 5]), st.booleans()
)
@settings(max_examples=150, deadline=None)
def test_no_piece_holds_more_micro_batches_than_there_are_and_none_is_lost(
    pipeline: int, pieces: int, micro_batches: int, group: int | None, is_gpipe: bool
) -> None:
    layout = ParallelLayout(pipeline=pipeline, virtual_stages=pieces)
    setup = TrainingSetup(
        seq_length=8,
        micro_batch_size=1,
        micro_batches=micro_batches,
        micro_batch_group=group,
        is_gpipe=is_gpipe,
    )
    for stage in range(pipeline):
        in_flight = count_in_flight(layout, setup, stage)
        turns = share_turns(layout, setup, in_flight, pieces)
        assert sum(turns) == in_flight
        assert all(0 <= turn <= micro_batches for turn in turns)
        assert turns[-1] >= 1 or in_flight < pieces * min(group or pipeline, micro_batches)


def test_the_head_of_a_small_model_decides_its_peak() -> None:
    """GPT of 12 layers, h 512, s 1024, b 4: 6 bytes for each of s b V logits, on the last stage alone."""
    shape = ModelShape(
        layers=12,
        hidden=512,
        heads=8,
        kv_groups=8,
        head_channels=64,
        ffn=2048,
        vocab=50257,
        vocab_multiple=128,
        is_tied=True,
    )
    setup = TrainingSetup(seq_length=1024, micro_batch_size=4, micro_batches=8)
    first, last = estimate_stages(shape, ParallelLayout(pipeline=2), setup)
    assert last.peak.name == "loss"
    assert last.peak.sum_group("loss") == 6 * 1024 * 4 * 50304
    assert {moment.name for moment in first.moments} == {"between steps", "backward"}
