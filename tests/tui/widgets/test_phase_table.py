"""Named parts of steps as a small table: what they held before, after and at their peak."""

import msgspec
import pytest

from vramscope.engine.model import PhaseReading, RankSample, StepReading
from vramscope.engine.units import GIB, MIB
from vramscope.tui.device.sections import draw_phases
from vramscope.tui.draw.glyphs import ASCII, UNICODE
from vramscope.tui.draw.spans import line_text, line_width


def make_phase(name: str, *, most: int, is_exact: bool = True, **changes: int | None) -> PhaseReading:
    sizes: dict[str, int | None] = {
        "allocated_before_bytes": 2 * GIB,
        "allocated_after_bytes": 6 * GIB,
        **changes,
    }
    reading = PhaseReading(name, 1840, 1.0, most_bytes=most, is_most_exact=is_exact)
    return msgspec.structs.replace(reading, **sizes)


def make_rank(*phases: PhaseReading) -> RankSample:
    step = StepReading(7, 1.0, peak_bytes=8 * GIB, is_peak_exact=True)
    return RankSample(pid=1, backend="cuda", step=step, phases=phases)


def read(rank: RankSample, width: int = 100) -> list[list[str]]:
    return [line_text(line).replace("% ", "%").split() for line in draw_phases(rank, width, UNICODE)]


def test_each_phase_says_its_calls_its_levels_and_its_share_of_the_highest_peak() -> None:
    backward = make_phase(
        "backward", most=8 * GIB, allocated_before_bytes=6 * GIB, allocated_after_bytes=None
    )
    heading, first, second = read(make_rank(make_phase("forward", most=6 * GIB, is_exact=False), backward))
    assert heading == ["phase,", "GiB", "calls", "before", "after", "peak", "of", "peak"]
    assert first == ["forward", "1,840", "2.0", "6.0", "≥6.0", "≥75", "%"]
    assert second == ["backward", "1,840", "6.0", "—", "8.0", "100", "%"]


def test_small_phases_are_told_in_mib_and_nothing_is_drawn_without_any() -> None:
    small = RankSample(
        pid=1, phases=(make_phase("load", most=3 * MIB, allocated_before_bytes=0, allocated_after_bytes=MIB),)
    )
    assert read(small)[1] == ["load", "1,840", "0", "1", "3", "100", "%"]
    assert draw_phases(make_rank(), 100, UNICODE) == []


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_a_name_of_any_length_leaves_the_figures_whole(width: int) -> None:
    rank = make_rank(make_phase("前向" * 20, most=8 * GIB), make_phase("\x1b[31mred\n", most=GIB))
    for glyphs in (UNICODE, ASCII):
        lines = draw_phases(rank, width, glyphs)
        assert all(line_width(line) <= width for line in lines)
        assert "\x1b" not in "".join(map(line_text, lines))
        assert line_text(lines[1]).rstrip().endswith("8.0" if width < 60 else "100 %")
