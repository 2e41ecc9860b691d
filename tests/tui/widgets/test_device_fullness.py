"""A gauge has the level of its device, by colour and by a sign: the risk, else how full the device is."""

import re

import pytest
from msgspec.structs import replace

from tests.tui.widgets.devices import forecast, gpu, node
from vramscope.engine.model import DeviceAllocation, DeviceSample, MemoryReading, ProcessReading
from vramscope.tui.draw.glyphs import ASCII, UNICODE, Glyphs
from vramscope.tui.draw.spans import Line, line_text
from vramscope.tui.live.device_picture import DevicePicture
from vramscope.tui.widgets.device_view import FULLNESS_DWELL_S, FullnessLevels

GAUGE = "█▆#"
# Single rows with and without a header, panels of two to four rows, large panels.
SIZES = [(40, 2), (80, 3), (120, 4), (100, 6), (100, 8), (110, 24)]


def _draw(
    device: DeviceSample, width: int, height: int, glyphs: Glyphs, *, is_at_risk: bool = False
) -> list[Line]:
    findings = (forecast("GPU-0"),) if is_at_risk else ()
    snapshot, history = node([device, gpu(1, 10.0)], findings=findings)
    return DevicePicture(glyphs).draw(snapshot, history, width, height)


def _find_gauge(lines: list[Line]) -> Line:
    return next(line for line in lines if re.search(r"/ ?80\.0", line_text(line)))


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=lambda glyphs: glyphs.name)
@pytest.mark.parametrize(
    ("used_gib", "is_at_risk", "role", "signs"),
    [
        (40.0, False, "fill", "  "),
        (66.0, False, "fill-nearly", "◕o"),
        (79.0, False, "fill-full", "●O"),
        (40.0, True, "fill-critical", "✖X"),
        (79.0, True, "fill-critical", "✖X"),
    ],
)
def test_every_density_has_the_colour_and_the_sign_of_the_level(
    width: int, height: int, glyphs: Glyphs, used_gib: float, is_at_risk: bool, role: str, signs: str
) -> None:
    lines = _draw(gpu(0, used_gib), width, height, glyphs, is_at_risk=is_at_risk)
    gauge = _find_gauge(lines)
    fill = next(at for at, span in enumerate(gauge) if span.text[:1] and span.text[0] in GAUGE)
    assert gauge[fill].role == role
    sign = signs[glyphs is ASCII]
    rest = line_text(gauge[fill:])
    after = rest.lstrip("█▉▊▋▌▍▎▏▆▓▄▂▒▃░▁#=.")
    assert after[0] == sign, rest
    if not is_at_risk:
        assert "OOM" not in "".join(line_text(line) for line in lines), "full is no risk"


def test_a_full_device_that_does_not_answer_is_grey() -> None:
    stale = replace(gpu(0, 79.0), state="stale", age_s=9.0, reason="the driver does not answer")
    gauge = _find_gauge(_draw(stale, 100, 6, UNICODE))
    assert {span.role for span in gauge if "█" in span.text} == {"muted"}
    assert "●" not in line_text(gauge)


def _grade(levels: FullnessLevels, used_gib: float | None, time_s: float) -> str:
    memory = MemoryReading(80 << 30, None if used_gib is None else int(used_gib * (1 << 30)))
    return levels.grade(replace(gpu(0), memory=memory), time_s)


def test_a_level_rises_at_once_and_falls_after_a_while() -> None:
    levels = FullnessLevels()
    assert _grade(levels, 40.0, 0.0) == ""
    assert _grade(levels, 70.0, 1.0) == "nearly"
    assert _grade(levels, 79.0, 2.0) == "full"
    # A sawtooth: every second tick is low.
    assert {_grade(levels, 79.0 if tick % 2 else 40.0, 3.0 + tick) for tick in range(60)} == {"full"}
    low_s = 100.0
    assert _grade(levels, 40.0, low_s) == "full"
    assert _grade(levels, 40.0, low_s + FULLNESS_DWELL_S - 0.1) == "full"
    assert _grade(levels, 40.0, low_s + FULLNESS_DWELL_S) == ""
    assert _grade(levels, 64.5, 200.0) == "nearly"
    assert {_grade(levels, 63.5, 201.0 + tick) for tick in range(60)} == {"nearly"}, "just below the mark"
    assert _grade(levels, None, 300.0) == "", "unmeasured is not full"


def test_a_clock_that_goes_back_leaves_no_level_behind() -> None:
    levels = FullnessLevels()
    assert _grade(levels, 79.0, 1000.0) == "full"
    assert _grade(levels, 40.0, 1001.0) == "full"
    assert _grade(levels, 40.0, 10.0) == "", "a replay that was moved back"


def test_only_devices_that_are_there_are_remembered() -> None:
    levels = FullnessLevels()
    assert _grade(levels, 79.0, 0.0) == "full"
    levels.keep(())
    assert _grade(levels, 40.0, 1.0) == ""


def test_a_device_that_was_given_away_and_is_not_used_says_to_whom() -> None:
    given = DeviceAllocation("ml", "idle-0", "main", "nvidia.com/gpu")
    other = replace(given, pod_name="idle-1", shares=1)

    def shown(device: DeviceSample) -> str:
        return "\n".join(line_text(line) for line in _draw(device, 160, 24, UNICODE))

    idle = replace(gpu(0, 1.0), processes=(), allocations=(given,))
    assert "given to ml/idle-0, not used" in shown(idle)
    assert "given to 2 pods, not used" in shown(replace(idle, allocations=(given, other)))
    assert "given" not in shown(replace(idle, processes=(ProcessReading(1),)))
    assert "given" not in shown(replace(idle, allocations=()))
