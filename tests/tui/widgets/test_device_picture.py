"""What a person reads of devices, at every density and in every size."""

import re

import pytest
from msgspec.structs import replace

from tests.tui.widgets.devices import forecast, gpu, node, odd_devices
from vramscope.engine.model import DeviceSample
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.draw.glyphs import ASCII, UNICODE, Glyphs
from vramscope.tui.draw.spans import line_text, line_width
from vramscope.tui.live.device_picture import DevicePicture


def _draw(
    devices: list[DeviceSample],
    width: int,
    height: int,
    glyphs: Glyphs = UNICODE,
    *,
    selected: str | None = None,
) -> list[str]:
    snapshot, history = node(devices)
    lines = DevicePicture(glyphs).draw(snapshot, history, width, height, selected=selected)
    return [line_text(line) for line in lines]


def test_a_sliver_of_a_terminal_has_a_line_a_device_with_gaps_between_the_bars() -> None:
    assert _draw([gpu(index, 10.0 * index) for index in range(8)], 40, 8, selected="GPU-1") == [
        " 0 ▁▁▁▁▁▁▁▁▁▁   0 %   0.0/80.0  —  98 %u",
        "▌1 ▆▁▁▁▁▁▁▁▁▁  12 %  10.0/80.0  —  98 %u",
        " 2 ▆▆▁▁▁▁▁▁▁▁  25 %  20.0/80.0  —  98 %u",
        " 3 ▆▆▆▆▁▁▁▁▁▁  38 %  30.0/80.0  —  98 %u",
        " 4 ▆▆▆▆▆▁▁▁▁▁  50 %  40.0/80.0  —  98 %u",
        " 5 ▆▆▆▆▆▆▁▁▁▁  62 %  50.0/80.0  —  98 %u",
        " 6 ▆▆▆▆▆▆▆▆▁▁  75 %  60.0/80.0  —  98 %u",
        " 7 ▆▆▆▆▆▆▆▆▆▁◕ 88 %  70.0/80.0  —  98 %u",
    ]


def test_a_row_that_is_left_over_names_the_columns() -> None:
    devices = [gpu(index, 11.3 * index) for index in range(8)]
    assert _draw(devices, 80, 9)[::8] == [
        " GPU MODEL        MEMORY      USED        GiB  RISK         UTIL    TEMP   POWER",
        " 7 H100 80GB HBM3 ▆▆▆▆▆▆▆▆▆▆● 99 %  79.1/80.0  —            98 %   64 °C   612 W",
    ]
    assert _draw(devices, 20, 9)[0] == " GPU MEMORY  USED   "
    assert _draw(devices, 120, 9)[0].endswith("  -30 s ────── now   ")
    # Every title ends, or begins, where its column does.
    for width in range(40, 201, 8):
        header, row = _draw(devices, width, 9)[::8]
        assert header.index("USED") + 4 == row.index("99 %") + 4, width
        assert header.index("UTIL") + 4 == row.index("98 %") + 4, width
        if "POWER" in header:
            assert header.index("POWER") + 5 == row.index("612 W") + 5, width


def test_ascii_draws_the_same_in_seven_bits() -> None:
    assert _draw([gpu(0, 40.0, swing_gib=8.0), gpu(1)], 40, 2, ASCII) == [
        " 0 ####==....  50 %  40.0/80.0  -  98 %u",
        " 1 #####.....  50 %  40.0/80.0  -  98 %u",
    ]


def test_two_rows_a_device_hold_facts_and_history() -> None:
    lines = _draw([gpu(index) for index in range(8)], 100, 16)
    assert lines[0][:64] == " 0 H100 80GB HBM3   " + "util 98 %  64 °C  612 W".rjust(44)
    assert lines[1][:64] == "  ███████████████████▌░░░░░░░░░░░░░░░░░░░  40.0 / 80.0 GiB  50 %"
    assert len(lines) == 16


def test_a_large_device_says_everything_in_words() -> None:
    lines = _draw([gpu(0)], 110, 12)
    assert lines[0].startswith(" 0 H100 80GB HBM3      ")
    assert "unknown" not in "".join(lines), "the verdict says it, once"
    assert lines[0].endswith("util 98 %  64 °C  612 W ")
    assert lines[1].endswith("  40.0 / 80.0 GiB  50 % ")
    assert lines[2].startswith("  peak 40.0 at ")
    assert "1 process" in lines[2]
    assert lines[3].rstrip().endswith("80.0 GiB")
    assert lines[10].startswith("  -30 s ─")
    assert "┴08:53:30" in lines[10]
    assert lines[10].rstrip().endswith("now")


@pytest.mark.parametrize(("celsius", "end"), [(64.0, "util 100 % 64 °C"), (100.0, "util 100 % 100 °C")])
def test_a_device_that_is_wholly_busy_has_a_space_before_its_share(celsius: float, end: str) -> None:
    busy = replace(gpu(0), utilization_percent=100.0, temperature_c=celsius)
    assert end in _draw([busy], 110, 12)[0]


def test_a_forecast_has_a_glyph_a_word_and_a_reason() -> None:
    snapshot, history = node([gpu(0)], findings=(forecast("GPU-0"),))
    lines = DevicePicture(UNICODE).draw(snapshot, history, 110, 12)
    assert "✖ critical: out of memory in 1 m 16 s" in line_text(lines[0])
    assert {span.role for span in lines[1] if "█" in span.text} == {"fill-critical"}


def test_old_figures_say_how_old_and_why() -> None:
    text = "\n".join(_draw(odd_devices(), 150, 60))
    assert "stale 7 s: a call has not returned" in text
    assert "LOST 41 s ago: fell off the bus" in text
    assert "unsupported: the driver does not tell its memory" in text
    assert "\x1b" not in text


def test_details_that_a_slow_driver_keeps_from_being_read_say_how_old_they_are() -> None:
    slow = replace(gpu(0), details_age_s=12.7)
    text = "\n".join(_draw([slow], 110, 12))
    assert "util 98 %  64 °C  612 W 12 s ago" in text
    assert "1 process 12 s ago" in text
    assert "40.0 / 80.0 GiB" in text
    (line,) = _draw([slow], 110, 1)  # no room to say it: nothing of some earlier time is shown as current
    assert "50 %" in line
    assert not any(figure in line for figure in ("98", "64", "612"))


def test_a_silent_hub_makes_every_device_stale() -> None:
    snapshot, history = node([gpu(0)])
    lost = Snapshot("lost", reason="the agent is gone", silent_s=12.4, sample=snapshot.sample)
    lines = DevicePicture(UNICODE).draw(lost, history, 100, 3)
    assert "stale 12 s" in line_text(lines[0])
    assert "strong" not in {span.role for line in lines for span in line if "40.0" in span.text}


def test_unified_memory_and_unknown_capacity_are_labelled() -> None:
    text = "\n".join(_draw(odd_devices(), 200, 60))
    assert re.search(r"1 GB10 +unified", text)
    assert "scale 0–20.0 GiB (highest seen), capacity not recorded" in text
    assert "20.0 /      — GiB     —" in text


def test_mig_instances_stand_under_their_gpu_in_one_row() -> None:
    devices = odd_devices()[:3]
    lines = _draw([devices[1], devices[0], devices[2]], 100, 10)
    starts = [line[:6] for line in lines]
    assert starts.index("   0:0") == starts.index("   0:1") - 1
    assert "A100-SXM4-80GB" in lines[0]


def test_sixty_four_devices_are_columns_then_cells_then_dots() -> None:
    devices = [gpu(index, 69.0 if index == 9 else 40.0) for index in range(64)]
    assert _draw(devices, 120, 20)[1].count("50 %") == 4
    assert _draw(devices, 80, 14)[0].startswith("  0 ▅  50 —  1 ▅  50 —")
    dots = _draw(devices, 80, 5)
    assert dots[0].strip() == "node03 ▅▅▅▅▅▅▅▅▅▇" + "▅" * 54
    assert dots[2].startswith("  9 H100")


@pytest.mark.parametrize(("width", "height"), [(200, 30), (120, 20), (80, 14), (80, 5)])
def test_the_chart_of_the_described_device_has_a_time_axis_in_the_row_that_sets_it_apart(
    width: int, height: int
) -> None:
    lines = _draw([gpu(index) for index in range(64)], width, height)
    at = next(row for row, line in enumerate(lines) if line.startswith("  0 H100"))
    axis, facts = lines[at - 1], lines[at]
    assert axis.rstrip().endswith(" now")
    # It begins where the chart does, behind the facts.
    assert facts.index(" W") < axis.index("-") < width - len("-0 s now")


def test_in_a_narrow_pane_the_described_device_has_no_chart_and_no_axis() -> None:
    lines = _draw([gpu(index) for index in range(64)], 60, 20)
    at = next(row for row, line in enumerate(lines) if line.startswith("  0 H100"))
    assert not lines[at - 1].strip()


def test_a_filter_that_matches_nothing_says_so() -> None:
    snapshot, history = node([gpu(0)])
    lines = DevicePicture(UNICODE).draw(
        snapshot, history, 60, 5, device_filter=lambda device: device.index > 3
    )
    assert [line_text(line).strip() for line in lines] == ["no device matches the filter"]


def test_figures_never_move_when_they_grow() -> None:
    small, large = gpu(0, 0.4), gpu(0, 79.9)
    tiny = DeviceSample(
        "GPU-0", 0, large.name, memory=small.memory, utilization_percent=0.0, temperature_c=5.0, power_w=9.0
    )
    for width, height in ((40, 1), (100, 2), (100, 3), (120, 12)):
        before, after = _draw([tiny], width, height), _draw([large], width, height)
        for mark in ("80.0", "%", "W", "°C"):
            for old, new in zip(before, after, strict=True):
                assert old.find(mark) == new.find(mark)


COUNTS = [0, 1, 8, 16, 72, 128]


@pytest.mark.parametrize("count", [*COUNTS, -1], ids=[*map(str, COUNTS), "odd"])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=lambda glyphs: glyphs.name)
def test_every_size_has_exact_rows(count: int, glyphs: Glyphs) -> None:
    devices = (
        odd_devices() if count < 0 else [gpu(index, index % 80, swing_gib=2.0) for index in range(count)]
    )
    snapshot, history = node(devices, ticks=3)
    picture = DevicePicture(glyphs)
    step = 29 if glyphs is ASCII else 13  # what goes where is the same in both
    sizes = [(width, width * 37 % 201) for width in range(0, 401, step)]
    sizes += [(height * 53 % 401, height) for height in range(0, 201, step)]
    sizes += [(width, height) for width in (0, 1, 2, 3, 20, 40, 80) for height in (0, 1, 2, 3, 8, 24)]
    for width, height in sizes:
        lines = picture.draw(snapshot, history, width, height, selected="GPU-3")
        assert {line_width(line) for line in lines} <= {width}
        if glyphs is ASCII:
            assert all(line_text(line).isascii() for line in lines)
        for place in picture.layout.placements:
            if width and height:
                assert 0 <= place.y < len(lines)
                assert place.y + place.height <= len(lines)


@pytest.mark.parametrize(("width", "height"), [(80, 16), (120, 21), (200, 35), (40, 8)])
def test_eight_devices_fit(width: int, height: int) -> None:
    snapshot, history = node([gpu(index) for index in range(8)])
    assert len(DevicePicture(UNICODE).draw(snapshot, history, width, height)) <= height


def test_a_device_that_did_not_change_is_not_drawn_again() -> None:
    snapshot, history = node([gpu(0), gpu(1)])
    picture = DevicePicture(UNICODE)
    picture.draw(snapshot, history, 120, 20)
    before = dict(picture._drawn)
    picture.draw(snapshot, history, 120, 20)
    assert all(picture._drawn[slot].lines is drawn.lines for slot, drawn in before.items())


def test_neighbours_follow_the_picture() -> None:
    snapshot, history = node([gpu(index) for index in range(64)])
    picture = DevicePicture(UNICODE)
    picture.draw(snapshot, history, 120, 20)
    assert picture.neighbor(None, 0, 1) == "GPU-0"
    assert picture.neighbor("GPU-0", 0, 1) == "GPU-1"
    assert picture.neighbor("GPU-0", 1, 0) == "GPU-16"
    assert picture.neighbor("GPU-63", 1, 1) == "GPU-63"
    assert picture.device_at(31, 0) is None, "a title"
    assert picture.device_at(31, 1) == "GPU-16"
    assert picture.device_at(0, 99) is None
