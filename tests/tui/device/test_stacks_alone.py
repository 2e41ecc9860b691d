"""A program of JAX lists what lives by line and has no segments: the page says so, and draws no empty map."""

from vramscope.engine.model import RankSample, SegmentMap
from vramscope.engine.model.sample import LiveStack
from vramscope.tui.device.sections import SegmentQuestion, SegmentSection, draw_stacks
from vramscope.tui.draw.glyphs import UNICODE
from vramscope.tui.draw.spans import Line

STACKS = (LiveStack(3 << 20, 2, (("/job/train.py", 21, "build"),)),)


def write(lines: list[Line]) -> list[str]:
    return ["".join(span.text for span in line) for line in lines]


def test_stacks_without_segments_are_listed_and_no_map_is_drawn() -> None:
    found = SegmentMap("node", 41, "GPU-0", 5.0, (), live_stacks=STACKS)
    section = SegmentSection(UNICODE)
    drawn = section.draw(RankSample(41, backend="cuda"), SegmentQuestion(found), 6.0, 100, 8)
    assert write(drawn) == [" No segments: this program lists what lives by line alone."]
    assert write(draw_stacks(found.live_stacks, 100, UNICODE))[1].split() == [
        *("3", "MiB", "2", "×"),
        *("/job/train.py:21", "build"),
    ]
