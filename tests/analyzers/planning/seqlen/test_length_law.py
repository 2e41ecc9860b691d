"""Laws of memory by length: found again where points follow one, and not made up where they are too few."""

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.vramscope.phases.studies import LENGTHS, MIB, make_run, make_study
from vramscope.analyzers.planning.seqlen import (
    PANELS,
    PHASES,
    find_difference,
    fit_law,
    make_cost_series,
    make_peak_series,
    make_series,
    say_law,
    say_residual,
    say_series,
    say_size,
)
from vramscope.engine.model.phase_memory import PhaseRun

_COEFFICIENTS = st.tuples(
    st.integers(-(10**11), 10**11), st.integers(-(10**7), 10**7), st.integers(-(10**4), 10**4)
)


@given(
    _COEFFICIENTS, st.lists(st.integers(1, 65_536), min_size=4, max_size=9, unique=True), st.integers(1, 3)
)
def test_points_on_a_law_give_it_back_to_the_byte(
    coefficients: tuple[int, int, int], lengths: list[int], terms: int
) -> None:
    assume(max(lengths) >= 4 * min(lengths))
    constant, slope, curvature = (*coefficients[:terms], 0, 0)[:3]
    law = fit_law(lengths, [constant + slope * n + curvature * n * n for n in lengths])
    assert law is not None
    if law.form == ("constant", "linear", "quadratic")[terms - 1]:
        assert (law.constant_bytes, law.bytes_per_token) == (constant, slope)
        assert law.bytes_per_token_squared == curvature
        assert law.residual_bytes == 0
    else:  # a term that a block of the allocator hides is not told
        assert law.left_out_bytes < 1024


def test_a_richer_law_is_taken_only_where_it_predicts_better() -> None:
    noise = (3, -5, 4, -2, 5, -4)
    linear = [8 * MIB + 800_000 * n + 100_000 * off for n, off in zip(LENGTHS, noise, strict=True)]
    law = fit_law(LENGTHS, linear)
    assert law is not None
    assert law.form == "linear"
    assert law.bytes_per_token == pytest.approx(800_000, rel=0.01)
    assert 300_000 < law.residual_bytes < 500_000
    constant = fit_law(LENGTHS, [100 * MIB + 100_000 * off for off in noise])
    assert constant is not None
    assert constant.form == "constant"


def test_too_few_points_have_no_law_and_three_none_with_a_square() -> None:
    assert fit_law([64, 128], [1000, 2000]) is None
    assert say_law(None, 2) == "2 points, no law"
    assert say_law(None, 1) == "1 point, no law"
    three = fit_law([64, 128, 256], [64**2, 128**2, 256**2])
    assert three is not None
    assert three.form == "linear"


def test_a_law_is_written_out_with_its_units_and_signs() -> None:
    law = fit_law(LENGTHS, [-5 * MIB + 829_440 * n - 12 * n * n for n in LENGTHS])
    assert law is not None
    assert say_law(law, 6) == "-5 MiB + 810 KiB/token - 12 B/token^2"
    assert say_residual(law.residual_bytes) == "residual 0 B"
    assert [say_size(value) for value in (0.0, 1 / 3, 1023.7 * 1024, 12.5 * 2**30)] == [
        "0 B",
        "0.333 B",
        "1024 KiB",
        "12.5 GiB",
    ]


def test_phases_of_a_study_follow_their_laws_and_panels_hold_the_loss_in_the_forward_pass() -> None:
    study = make_study()
    phases = {each.name: each.law for each in make_series(study, "hooks", PHASES)}
    assert {name: law.form for name, law in phases.items() if law is not None} == {
        "Model Creation": "constant",
        "DP Setup": "constant",
        "Forward": "quadratic",
        "Loss": "linear",
        "Backward": "quadratic",
        "Optimizer Step": "constant",
        "Zero Gradients": "constant",
    }
    panels = make_series(study, "hooks", PANELS)
    assert [panel.name for panel in panels] == list(PANELS)
    assert panels[2].law is not None
    assert panels[2].law.bytes_per_token == 1_000 + 4_000


def test_a_length_that_ran_out_of_memory_has_no_peak_and_is_predicted() -> None:
    study = make_study(out_of_memory={2048: "Backward"})
    forward = make_series(study, "hooks", PANELS)[2]
    assert forward.points == 6, "what was measured before memory ran out counts"
    peak, reserved = make_peak_series(study, "hooks")
    assert peak.values_bytes[-1] is None
    whole, _ = make_peak_series(make_study(), "hooks")
    assert peak.predicted_bytes[2048] == pytest.approx(whole.values_bytes[-1], rel=0.004), (
        "by the forward pass, which holds most from this length on"
    )
    assert reserved.points == 5


def test_an_earlier_step_does_not_stand_for_the_last() -> None:
    run = make_run(fails_in="Backward")
    asked_for_two = msgspec.structs.replace(run.training, num_steps=2)
    cut = msgspec.structs.replace(run, training=asked_for_two)
    assert find_difference(run, ("Forward", "Loss")) is not None
    assert find_difference(cut, ("Forward", "Loss")) is None
    assert find_difference(cut, ("Model Creation",)) == 100 * MIB


def test_a_peak_is_the_largest_of_laws_of_phases() -> None:
    peak, _ = make_peak_series(make_study(("none",)), "none")
    assert [(each.phase, each.law.form) for each in peak.largest_of] == [
        ("Backward", "constant"),
        ("Loss", "quadratic"),
    ]
    assert say_series(peak) == (
        "the largest of 218 MiB (Backward of step 1), "
        "102 MiB + 4.88 KiB/token + 48 B/token^2 (Loss of step 1)"
    )
    assert peak.residual_bytes == pytest.approx(15.8 * MIB, rel=0.01), "the backward pass itself has a bend"


def test_a_peak_at_two_lengths_has_no_law_either() -> None:
    peak, _ = make_peak_series(make_study(lengths=(64, 128)), "hooks")
    assert (say_series(peak), peak.residual_bytes) == ("2 points, no law", None)


def test_nothing_is_predicted_while_a_phase_was_seen_at_one_length_only() -> None:
    study = make_study(lengths=(64, 128, 256), out_of_memory={128: "Backward", 256: "Backward"})
    assert make_peak_series(study, "hooks")[0].predicted_bytes == {}
    told = make_peak_series(make_study(lengths=(64, 128, 256), out_of_memory={256: "Backward"}), "hooks")
    assert list(told[0].predicted_bytes) == [256]


def test_an_algorithm_costs_what_it_needs_more_than_none() -> None:
    hooks, ghost = make_cost_series(make_study(("none", "hooks", "ghost")))
    assert (hooks.privacy, ghost.privacy) == ("hooks", "ghost")
    short_of = dict(zip(ghost.lengths, ghost.values_bytes, strict=True))
    assert short_of[64] == 10 * MIB
    assert hooks.values_bytes[0] == 100 * MIB
    assert make_cost_series(make_study(("hooks", "ghost"))) == ()


def test_no_less_is_predicted_to_be_reserved_than_to_be_allocated() -> None:
    study = make_study(lengths=(64, 128, 256, 512, 8192), out_of_memory={8192: "Forward"})
    # While sequences are short, what the model took at first is enough for all that follows.
    points = [msgspec.structs.replace(point, run=_reserve(point.run, 400 * MIB)) for point in study.points]
    peaks = make_peak_series(msgspec.structs.replace(study, points=tuple(points)), "hooks")
    allocated, reserved = (each.predicted_bytes[8192] for each in peaks)
    assert reserved >= allocated > 400 * MIB


def _reserve(run: PhaseRun | None, size_bytes: int) -> PhaseRun:
    assert run is not None
    phases = [
        msgspec.structs.replace(each, peak=msgspec.structs.replace(each.peak, reserved_bytes=size_bytes))
        for each in run.phases
    ]
    return msgspec.structs.replace(run, phases=tuple(phases))
