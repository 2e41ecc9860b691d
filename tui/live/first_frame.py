"""The first frame: title, verdict and devices where the live screen shows them, drawn without Textual.

Textual takes longer to load than a sample takes to measure. So the first figures are drawn by the functions
that the widgets call, and the application then paints the same cells once more.
"""

from collections.abc import Iterable
from typing import NamedTuple

from rich.color import Color, ColorSystem

from ...analyzers.verdict import Remedy, summarize
from ...engine.history import History
from ...engine.settings import ThemeName
from ...engine.viewer.snapshot import Snapshot
from ..draw.glyphs import ASCII, UNICODE, Glyphs
from ..draw.palettes import PALETTES, Palette
from ..draw.pens import ATTRIBUTES, PLAIN, Pen, change_pen
from ..draw.pieces import Piece, fill_line
from ..draw.spans import ROLES, Role, clean_text
from ..terminal.abilities import ColorDepth, TerminalAbilities, choose_theme
from ..widgets.title_words import word_title
from ..widgets.verdict_words import word_verdict
from .arrangement import arrange, measure_needs
from .device_picture import DevicePicture

_SYSTEMS = {"16": ColorSystem.STANDARD, "256": ColorSystem.EIGHT_BIT, "truecolor": ColorSystem.TRUECOLOR}

# Cells left empty at both ends of the title and of the verdict.
PADDING = 1


class FrameSize(NamedTuple):
    width: int
    height: int


class _Row(NamedTuple):
    """One row: text in roles, on the background of the screen or of a surface."""

    texts: tuple[tuple[str, Role], ...]
    is_surface: bool = False


def draw_first_frame(
    snapshot: Snapshot,
    history: History,
    size: FrameSize,
    abilities: TerminalAbilities,
    *,
    theme: ThemeName | None = None,
    history_window_s: float = 600.0,
    remedy: Remedy | None = None,
) -> str:
    """Return the escape sequences that draw a snapshot on a cleared screen.

    Args:
        theme: The look asked for; None for the one that suits the terminal.
        remedy: What the verdict names where the risk is unknown for want of a probe.
    """
    glyphs = ASCII if abilities.is_ascii else UNICODE
    rows = _compose(snapshot, history, size, glyphs, history_window_s, remedy)
    return _write(rows, size, abilities, PALETTES[choose_theme(theme, abilities)])


def _compose(
    snapshot: Snapshot,
    history: History,
    size: FrameSize,
    glyphs: Glyphs,
    history_window_s: float,
    remedy: Remedy | None,
) -> list[_Row]:
    sample = snapshot.sample
    devices = sample.devices if sample else ()
    count = sum(len(device.processes or ()) for device in devices)
    chosen = arrange(size.height, measure_needs(sample, size.width, count))
    room = size.height - chosen.chrome_rows - chosen.process_rows
    inner = max(0, size.width - 2 * PADDING)
    verdict = summarize(sample, snapshot.findings, history.peak, snapshot.assessments, remedy=remedy)
    rows = [_line(*word_title(snapshot, inner, glyphs), inner)] if chosen.has_title else []
    rows.append(_line(word_verdict(verdict, (), inner, glyphs), (), inner, is_surface=True))
    rows += [_Row(())] * chosen.has_gap
    picture = DevicePicture(glyphs)
    lines = picture.draw(snapshot, history, size.width, room, window_s=history_window_s)
    if len(lines) > room:  # the last column is the scroll bar's
        lines = picture.draw(snapshot, history, size.width - 1, room, window_s=history_window_s)
    return [*rows, *(_Row(tuple(line)) for line in lines[: max(0, room)])][: size.height]


def _line(left: Iterable[Piece], right: Iterable[Piece], width: int, *, is_surface: bool = False) -> _Row:
    blank: tuple[str, Role] = (" " * PADDING, "text")
    pieces = fill_line(tuple(left), tuple(right), width)
    return _Row((blank, *((piece.text, piece.role) for piece in pieces), blank), is_surface)


def _write(rows: list[_Row], size: FrameSize, abilities: TerminalAbilities, palette: Palette) -> str:
    grounds = {
        is_surface: _make_pens(palette, "surface" if is_surface else "background", abilities.color_depth)
        for is_surface in (False, True)
    }
    parts: list[str] = []
    pen = PLAIN
    for y in range(size.height):
        row = rows[y] if y < len(rows) else _Row(())
        pens = grounds[row.is_surface]
        parts.append(f"\x1b[{y + 1}H")
        texts = row.texts or ((" " * size.width, "text"),)
        for text, role in texts:
            parts += (change_pen(pen, pens[role]), clean_text(text, is_ascii=abilities.is_ascii))
            pen = pens[role]
    return "".join((*parts, change_pen(pen, PLAIN)))


def _make_pens(palette: Palette, ground: str, depth: ColorDepth) -> dict[Role, Pen]:
    """Return the pen of each role on a background, in the colours that the terminal has."""
    background = _code(palette.colors[ground], depth, is_foreground=False)
    return {
        role: Pen(
            tuple(sorted(ATTRIBUTES[word] for word in palette.styles.get(role, "").split())),
            _code(palette.color_of(role), depth, is_foreground=True),
            background,
        )
        for role in ROLES
    }


def _code(name: str, depth: ColorDepth, *, is_foreground: bool) -> str:
    """Return the parameters of the escape sequence (SGR) that sets a colour."""
    if depth == "none" or name == "ansi_default":
        return "39" if is_foreground else "49"
    return ";".join(Color.parse(name).downgrade(_SYSTEMS[depth]).get_ansi_codes(is_foreground))
