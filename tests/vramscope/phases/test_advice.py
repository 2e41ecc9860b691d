"""Advice about a training by phase: figures follow from the run, and savings count only at the peak."""

from typing import Any

import msgspec
import pytest

from vramscope.analyzers.planning.phases import PhaseAdvice, PhaseChange, advise_phases
from vramscope.cli.verbs.phases import refuse_ranks
from vramscope.engine.errors import UsageError
from vramscope.engine.model.phase_memory import PhaseMemory, PhaseRun, PhaseTraining, TrainingState
from vramscope.exporters.phases.report import report_phases
from vramscope.exporters.phases.text import describe_advice, describe_phases
from vramscope.phases.seqlen import try_advice

from ...exporters.phases.test_text import OUT
from .runs import MIB, SETUP, STATE, levels, make_run, phase, take_step

PLAIN = PhaseTraining(model_size="tiny", batch_size=4, num_steps=1, privacy="none", optimizer="adam")
PLAIN_STATE = TrainingState(
    parameters=25 * MIB,
    parameter_bytes=100 * MIB,
    gradient_bytes=100 * MIB,
    per_sample_gradient_bytes=0,
    optimizer_bytes=200 * MIB,
)
PLAIN_STEP = (
    phase("Forward", 100, 600, 600, step=1),
    phase("Loss", 600, 600, 650, step=1),
    phase("Backward", 600, 200, 700, step=1),
    phase("Optimizer Step", 200, 400, 640, step=1),
    phase("Zero Gradients", 400, 300, 400, step=1),
)
"""Without privacy: activations of 500, two states of Adam, and 240 while it updates."""


def make_plain(**other: Any) -> PhaseRun:
    """Return a plain training of one step."""
    fields = {"training": PLAIN, "state": PLAIN_STATE, "phases": (SETUP[0], *PLAIN_STEP)} | other
    return make_run(**fields)


def advise(run: PhaseRun) -> PhaseAdvice:
    """Return advice, which there is."""
    advice = advise_phases([run])
    assert advice is not None
    return advice


def find(advice: PhaseAdvice, words: str) -> PhaseChange:
    """Return the change whose name begins so."""
    (change,) = (each for each in advice.changes if each.name.startswith(words))
    return change


def test_the_phase_of_the_peak_is_attacked_and_its_parts_add_up() -> None:
    advice = advise(make_run())
    assert (advice.phase, advice.step, advice.peak_bytes) == ("Optimizer Step", 1, 750 * MIB)
    assert (advice.next_phase, advice.next_peak_bytes) == ("Zero Gradients", 700 * MIB)
    assert [(part.name, part.size_bytes // MIB, part.basis) for part in advice.parts] == [
        ("per-sample gradients", 400, "counted"),
        ("parameters", 100, "counted"),
        ("gradients", 100, "counted"),
        ("everything else", 150, "remainder"),
    ]
    assert advice.missing_bytes is None


def test_ghost_clipping_frees_gradients_by_sample_and_holds_activations_longer() -> None:
    change = find(advise(make_run()), "ghost")
    # Optimizer Step: 700 - 400, and 50 on top. Backward: 170 and gradients of 100, and 50 on top, is less.
    assert (change.peak_bytes, change.peak_phase, change.saved_bytes) == (
        350 * MIB,
        "Optimizer Step",
        400 * MIB,
    )
    assert change.part_saved_bytes == 400 * MIB
    long = take_step(1, Forward=(100, 500, 500), Loss=(500, 510, 520), Backward=(510, 600, 700))
    change = find(advise(make_run(phases=(*SETUP, *long))), "ghost")
    assert (change.peak_bytes, change.peak_phase) == (710 * MIB, "Backward")


def test_a_saving_in_another_phase_does_not_lower_the_peak() -> None:
    advice = advise(make_run())
    change = find(advice, "sequences of 64")
    assert (change.part, change.part_saved_bytes, change.saved_bytes) == ("activations", 35 * MIB, 0)
    assert change.peak_phase == "Optimizer Step"
    text = "\n".join(describe_advice(advice, 200))
    assert "35.00 MiB of activations would be saved, but the peak would stay, in Optimizer Step." in text
    assert find(advise(make_plain()), "SGD").saved_bytes == 0, "state that the first backward pass lacks"


def test_a_saving_counts_down_to_the_next_phase() -> None:
    advice = advise(make_plain())
    assert (advice.phase, advice.next_phase) == ("Backward", "Loss")
    change = find(advice, "sequences of 64")
    # Backward falls to 400, and what is left is the update of Adam.
    assert (change.peak_bytes, change.peak_phase, change.saved_bytes) == (
        640 * MIB,
        "Optimizer Step",
        60 * MIB,
    )


def test_virtual_steps_keep_the_sum_of_gradients() -> None:
    private = find(advise(make_run()), "virtual steps of 2")
    # Backward: 600 - 200, and 50 on top, and the kept sum of 100.
    assert private.peak_bytes == 550 * MIB
    assert private.flags == ("--batch-size", "2")
    single = msgspec.structs.replace(PLAIN, batch_size=1)
    assert not any("virtual" in change.name for change in advise(make_plain(training=single)).changes)


def test_state_of_the_optimizer_counts_from_the_second_step_on() -> None:
    later = [
        phase(each.phase, *(figure + 200 for figure in figures), step=2)
        for each, figures in zip(
            PLAIN_STEP[:3], [(100, 600, 600), (600, 600, 650), (600, 200, 700)], strict=True
        )
    ]
    advice = advise(make_plain(phases=(SETUP[0], *PLAIN_STEP, *later)))
    assert (advice.step, advice.peak_bytes) == (2, 900 * MIB)
    assert ("optimizer state", 200 * MIB) in [(part.name, part.size_bytes) for part in advice.parts]
    assert find(advice, "SGD").saved_bytes == 200 * MIB


def test_gradients_that_outlive_their_step_are_found() -> None:
    figures = {"Forward": (200, 600, 600), "Loss": (600, 600, 650), "Backward": (600, 200, 700)}
    later = [phase(name, *told, step=2) for name, told in figures.items()]
    plain = msgspec.structs.replace(PLAIN, optimizer="sgd")
    state = msgspec.structs.replace(PLAIN_STATE, optimizer_bytes=0)
    run = make_plain(training=plain, state=state, phases=(SETUP[0], *PLAIN_STEP[:3], *later))
    change = find(advise(run), "gradients set to None")
    assert (change.part_saved_bytes, change.flags) == (100 * MIB, ())
    assert not any("set to None" in each.name for each in advise(make_plain()).changes)


def test_checkpointing_is_computed_from_the_sizes_of_the_model_or_unknown() -> None:
    tokens = 4 * 128
    hidden, logarithms = tokens * 64 * 4, tokens * 1000 * 4
    kept = 2 * hidden + 2 * hidden + logarithms
    change = find(advise(make_plain()), "checkpointing")
    assert change.part_saved_bytes == 500 * MIB - kept
    unsized = find(advise(make_plain(model={})), "checkpointing")
    assert (unsized.part_saved_bytes, unsized.peak_bytes, unsized.saved_bytes) == (None, None, None)
    text = "\n".join(describe_advice(advise(make_plain(model={})), 200))
    assert "checkpointing of each block (--checkpoint): saves activations; the amount depends" in text
    done = msgspec.structs.replace(PLAIN, is_checkpointed=True)
    assert not any("checkpoint" in each.name for each in advise(make_plain(training=done)).changes)


def test_shards_divide_what_every_rank_holds() -> None:
    ranks = msgspec.structs.replace(PLAIN, strategy="ddp")
    change = find(advise(make_plain(training=ranks, world_size=4)), "shards on 4")
    # Backward: 600 - 75 of parameters, and 100 on top, and a layer of 50 gathered.
    assert change.peak_bytes == (600 - 75 + 100 + 50) * MIB
    assert not any("shards" in each.name for each in advise(make_plain()).changes)


def test_memory_that_ran_out_names_what_is_missing_and_what_would_fit() -> None:
    advice = advise(make_run(**OUT))
    assert (advice.phase, advice.is_predicted, advice.missing_bytes) == ("Backward", True, 112 * MIB)
    assert advice.peak_bytes == 1012 * MIB
    named = {part.name: (part.size_bytes // MIB, part.basis) for part in advice.parts}
    assert named["per-sample gradients"] == (400, "computed")
    assert named["parameters"] == (100, "measured")
    assert find(advice, "ghost").does_fit is True
    assert find(advice, "virtual steps").name == "virtual steps of 1 at a time", "2 would be too close"


def test_what_would_have_followed_counts_where_a_small_request_failed() -> None:
    error = (
        "CUDA out of memory. Tried to allocate 5.00 MiB. GPU 0 has a total capacity of 1.00 GiB of which 0 "
    )
    small = {"held": levels(580, 590), "requested_bytes": 5 * MIB, "error": f"{error}bytes is free."}
    advice = advise(make_run(**{**OUT, **small}))
    # Parameters and gradients of 100 each, and those of 4 samples.
    assert (advice.peak_bytes, advice.missing_bytes, advice.stranded_bytes) == (600 * MIB, 10 * MIB, None)


def test_room_that_lies_in_pieces_is_not_called_missing() -> None:
    error = (
        "CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 2.00 GiB of which "
        "100.00 MiB is free. Of the allocated memory 500.00 MiB is allocated by PyTorch, and 600.00 MiB is "
        "reserved by PyTorch but unallocated."
    )
    advice = advise(make_run(**{**OUT, "held": levels(500, 1100), "error": error}))
    assert (advice.missing_bytes, advice.stranded_bytes) == (0, 600 * MIB)
    assert find(advice, "sequences").does_fit is None, "as much as before does not fit for sure"
    text = "\n".join(describe_advice(advice, 400))
    assert "in pieces: reserved memory without tensors (600.00 MiB) could not serve it" in text
    assert "expandable_segments:True" in text


def test_memory_that_runs_out_in_the_first_forward_pass_counts_its_activations() -> None:
    other = {**OUT, "failed_phase": "Forward", "phases": SETUP}
    advice = advise(make_run(**other))
    assert (advice.phase, advice.peak_bytes) == ("Forward", 1012 * MIB)
    assert ("activations", 912 * MIB) in [(part.name, part.size_bytes) for part in advice.parts]
    # Nobody knows what the rest of the forward pass would have kept.
    assert advice.is_open
    assert all(change.does_fit is not True for change in advice.changes)
    text = " ".join("\n".join(describe_advice(advice, 80)).split())
    assert "cannot be said whether it would fit" in text
    assert "would fit." not in text.replace("whether it would fit.", "")


def test_a_later_forward_pass_that_runs_out_of_memory_has_complete_activations() -> None:
    later = {**OUT, "failed_phase": "Forward", "failed_step": 2, "phases": (*SETUP, *PLAIN_STEP)}
    assert not advise(make_run(**later)).is_open


@pytest.mark.parametrize("came", range(len(PLAIN_STEP) + 1))
def test_an_interrupted_run_is_advised_on_as_far_as_it_came(came: int) -> None:
    run = make_plain(phases=(SETUP[0], *PLAIN_STEP[:came]), end="interrupted", state=None)
    advice = advise(run)
    assert advice.is_predicted == (came == 0)
    assert advice.missing_bytes is None
    assert all(change.does_fit is None for change in advice.changes)


def test_the_rank_that_holds_most_is_advised_on() -> None:
    more = tuple(_add(each, 10) for each in make_run().phases)
    runs = [make_run(rank=0, world_size=2), make_run(rank=1, world_size=2, phases=more)]
    advice = advise_phases(runs)
    assert advice is not None
    assert (advice.rank, advice.peak_bytes) == (1, 760 * MIB)


def _add(told: PhaseMemory, more_mib: int) -> PhaseMemory:
    """Return a phase with more allocated."""
    before, after, peak = (
        levels((each.allocated_bytes or 0) / MIB + more_mib) for each in (told.before, told.after, told.peak)
    )
    return msgspec.structs.replace(told, before=before, after=after, peak=peak)


def test_half_the_bytes_of_each_number_are_half_of_all_that_has_a_name() -> None:
    change = find(advise(make_run()), "bf16")
    assert change.part == "per-sample gradients"
    assert change.part_saved_bytes == STATE.per_sample_gradient_bytes // 2
    # 700 less half of 600, and 50 on top.
    assert change.peak_bytes == 450 * MIB


def test_what_is_advised_can_be_tried() -> None:
    tried: list[tuple[PhaseTraining, str]] = []

    def train(training: PhaseTraining, device: str) -> tuple[PhaseRun, ...]:
        tried.append((training, device))
        if training.privacy == "ghost":
            raise UsageError("ghost works on the values of tensors")
        if training.precision == "bf16":
            return (make_run(training=training, end="out_of_memory", error="CUDA out of memory."),)
        return (make_run(training=training, phases=(*SETUP, *take_step(1, Optimizer_Step=(300, 350, 380)))),)

    run = make_run()
    trials = try_advice(run.training, "simulate:2GiB", advise(run), run=train)
    assert [(each.privacy, each.precision, each.batch_size) for each, _ in tried] == [
        ("ghost", "fp32", 4),
        ("hooks", "bf16", 4),
        ("hooks", "fp32", 2),
    ]
    assert {device for _, device in tried} == {"simulate:2GiB"}
    ghost, half, batch = trials
    assert (ghost.end, ghost.peak_bytes, ghost.error) == (None, None, "ghost works on the values of tensors")
    assert (half.end, half.saved_bytes) == ("out_of_memory", None)
    assert (batch.end, batch.peak_bytes, batch.saved_bytes) == ("finished", 700 * MIB, 50 * MIB)
    rows = [line.split() for line in describe_phases([run], 80, trials).splitlines()]
    assert ["--batch-size", "2", "550.00", "700.00", "750.00", "50.00"] in rows
    assert ["--dp-mode", "ghost", "350.00", "—", "—", "—", "refused"] in rows
    assert report_phases([run], trials).trials == trials


def test_ranks_are_not_tried() -> None:
    refuse_ranks(PLAIN)
    with pytest.raises(UsageError, match="does not go with --strategy"):
        refuse_ranks(msgspec.structs.replace(PLAIN, strategy="ddp"))


def test_an_interruption_ends_the_trials_and_keeps_those_before() -> None:
    ends = iter(["finished", "interrupted"])

    def train(training: PhaseTraining, device: str) -> tuple[PhaseRun, ...]:
        return (make_run(training=training, end=next(ends)),)

    trials = try_advice(make_run().training, "cuda", advise(make_run()), run=train)
    assert [each.flags for each in trials] == [("--dp-mode", "ghost")]
