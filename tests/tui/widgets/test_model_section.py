"""The peak of a step, cut into parts that are as certain as they are shown."""

from vramscope.engine.model import ModelStateReading, RankSample, StepReading
from vramscope.engine.units import GIB
from vramscope.tui.device.page import draw_model
from vramscope.tui.draw.glyphs import UNICODE

STATE = ModelStateReading(4 * GIB, 4 * GIB, 8 * GIB)


def read(step: StepReading | None) -> str:
    rank = RankSample(pid=1, started_s=1.0, backend="cuda", step=step, model_state=STATE)
    lines = draw_model(rank, 200, UNICODE)
    return "".join(span.text for span in lines[0]).strip()


def test_a_peak_that_was_measured_is_told_as_it_is() -> None:
    said = read(StepReading(7, 1.0, peak_bytes=30 * GIB, is_peak_exact=True))
    assert said.startswith("peak of step 7 30.0 = ")
    assert said.endswith("activations 14.0")
    assert "≥" not in said


def test_a_peak_that_was_sampled_and_its_activations_are_the_least_they_can_be() -> None:
    said = read(StepReading(7, 1.0, peak_bytes=30 * GIB))
    assert said.startswith("peak of step 7 ≥30.0 = ")
    assert said.endswith("activations ≥14.0")
    assert said.count("≥") == 2


def test_activations_are_unknown_where_the_sampled_peak_is_below_what_is_held() -> None:
    said = read(StepReading(7, 1.0, peak_bytes=8 * GIB))
    assert said.startswith("peak of step 7 ≥16.0 = ")
    assert said.endswith("activations —")


def test_without_a_step_the_state_alone_is_told() -> None:
    assert read(None).startswith("model state 16.0 = ")
