"""What the screen of a device says of the largest step that would fit."""

import msgspec

from tests.exporters.reports.test_profile_headroom import ESTIMATE, REFUSED
from tests.tui.assessed_cases import make_assessment
from tests.tui.canned import NOON_S
from tests.tui.canned_ranks import make_job
from vramscope.tui.device.sections import draw_forecast
from vramscope.tui.draw.glyphs import UNICODE
from vramscope.tui.draw.spans import line_text


def test_what_would_fit_stands_below_the_risk_as_an_estimate_at_any_width() -> None:
    word = make_assessment(make_job(1)[1][0], headroom=(ESTIMATE, REFUSED))
    without = draw_forecast(msgspec.structs.replace(word, headroom=()), NOON_S, 200, UNICODE)
    for width in (40, 80, 200):
        lines = [line_text(line) for line in draw_forecast(word, NOON_S, width, UNICODE)]
        text = " ".join(" ".join(lines).split())
        assert "Estimate: 2.50 MiB a token over 20.0 GiB; 20,480 tokens would fit 78.0 GiB with 90 %" in text
        assert text.endswith("Headroom in samples is unknown: one size of steps seen")
    assert len(lines) == len(without) + 2, "a line for each where there is room"
