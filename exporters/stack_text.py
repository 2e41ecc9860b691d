"""Stacks as plain text: bytes, count and share, the user's own line as headline, the frames beneath."""

import os
from collections.abc import Iterator, Sequence

from ..analyzers.sentence import count, count_cells, cut_words
from ..analyzers.snapshot_summary import StackGroup
from ..engine.model.memory_snapshot import Frame
from ..engine.text import make_printable
from ..engine.units import format_bytes, format_share

MOST_FRAMES = 12
"""Frames of one stack; the outermost of a longer one are left out and counted."""


def render_stacks(groups: Sequence[StackGroup], width: int, *, is_brief: bool = False) -> Iterator[str]:
    """Yield the lines of some groups, none wider than `width` cells; only their headlines if `is_brief`."""
    for group in groups:
        figures = f"  {format_bytes(group.size_bytes)}  {format_share(group.share, 1)}"
        figures += f"  {count(group.count, 'block')}"
        if group.headline is None:
            yield cut_words(f"{figures}  (no stack recorded)", width)
            continue
        yield cut_words(f"{figures}  {make_printable(group.headline.name)}", width)
        if is_brief:
            yield show_frame(group.headline, width, "    > ")
        else:
            yield from render_frames(group.frames, width, group.headline)


def render_frames(frames: Sequence[Frame], width: int, headline: Frame | None = None) -> Iterator[str]:
    """Yield one line a frame, innermost first; the headline is marked by `>` and always shown."""
    shown = list(enumerate(frames[:MOST_FRAMES]))
    left_out = len(frames) - len(shown)
    lead = next((row for row, frame in enumerate(frames) if frame == headline), None)
    if lead is not None and lead >= MOST_FRAMES:
        shown[-1] = lead, frames[lead]
    for row, frame in shown:
        yield show_frame(frame, width, f"    {'>' if row == lead else ' '} ")
    if left_out:
        yield f"      … {left_out:,} more"


def show_frame(frame: Frame, width: int, lead: str = "") -> str:
    """Return a frame on one line: `name  folder/file.py:12`, long paths cut in their middle.

    A file below the current folder is named from there, as most are where a person looks at their own job.
    """
    name = make_printable(frame.name)
    path = make_printable(f"{_shorten_path(frame.filename)}:{frame.line}")
    room = width - count_cells(lead) - count_cells(name) - 2
    if room < 12:
        return f"{lead}{cut_start(path, width - count_cells(lead))}"
    return f"{lead}{name}  {cut_middle(path, room)}"


def _shorten_path(filename: str) -> str:
    try:
        folder = os.getcwd()  # noqa: PTH109 - of text, as frames are
    except OSError:
        return filename
    return filename.removeprefix(f"{folder.rstrip('/')}/")


def cut_middle(path: str, width: int) -> str:
    """Return a path in at most `width` cells: its beginning, an ellipsis, and its end with name and line."""
    if count_cells(path) <= width:
        return path
    name_cells = count_cells(path.rpartition("/")[2])
    end = cut_start(path, min(width, max(width * 2 // 3, name_cells + 2)))
    head = ""
    room = width - count_cells(end)
    for character in path:
        if count_cells(head + character) > room:
            break
        head += character
    return head + end


def cut_start(text: str, width: int) -> str:
    """Return the end of a text in at most `width` cells, with an ellipsis for the rest."""
    if count_cells(text) <= width:
        return text
    while text and count_cells(text) > width - 1:
        text = text[1:]
    return f"…{text}"
