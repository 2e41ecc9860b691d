"""Memory by length of sequences: a panel a phase, its points, the law they follow, where memory ran out."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from ...analyzers.planning.seqlen import PANELS, LengthSeries, make_series, say_law, say_residual
from ...engine.model.phase_memory import LengthStudy, PrivacyMode
from ...engine.units import MIB
from ..figures.page import TEXT_IN, FigurePage, hold_settings, open_figure_page
from ..figures.style import FAINT, INK, PAPER, UNMEASURED_INK, show_text
from ..sweep.figure import settle
from .text import describe_devices, describe_training, name_memory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D
    from matplotlib.text import Annotation


# The look of memory by length: a colour, a line and a shape for each algorithm, or the original's stages.
#
# Colours of algorithms are those that findings are marked in, which are tested to be told apart; the
# original's are of matplotlib's own cycle. In either look algorithms differ in dashes and shapes too.

LengthStyle = Literal["usenix", "original"]
DPI: dict[LengthStyle, int] = {"usenix": 600, "original": 300}


class AlgorithmStyle(NamedTuple):
    colour: str
    dashes: tuple[float, tuple[float, ...]]
    """As matplotlib knows them; none is a whole line."""
    shape: str


ALGORITHMS: dict[PrivacyMode, AlgorithmStyle] = {
    "hooks": AlgorithmStyle("#0072b2", (0, ()), "o"),
    "ghost": AlgorithmStyle("#d55e00", (0, (6, 2)), "s"),
    "none": AlgorithmStyle("#767676", (0, (1.5, 1.5)), "D"),
    "functorch": AlgorithmStyle("#8a0f3c", (0, (8, 2, 1.5, 2)), "^"),
}
STAGE_COLOURS = {
    "Model Creation": "#1f77b4",
    "DP Setup": "#ff7f0e",
    "Forward Pass": "#2ca02c",
    "Backward Pass": "#d62728",
    "Optimizer Step": "#9467bd",
    "Zero Gradients": "#8c564b",
}
"""As in the original, by panel."""


class LengthLook(msgspec.Struct, frozen=True):
    """What a person chose for a figure."""

    style: LengthStyle = "usenix"
    size_in: tuple[float, float] | None = None
    """Width and height; None for what suits the panels."""
    dpi: int | None = None
    """Dots per inch of a PNG; None for those of the style."""

    def choose_algorithm(self, privacy: PrivacyMode, panel: str) -> AlgorithmStyle:
        style = ALGORITHMS[privacy]
        return style if self.style == "usenix" else style._replace(colour=STAGE_COLOURS[panel])


_ACROSS = 3
_DOWN = 2
_PANEL_IN = 1.55
_LINE_IN = 0.1
_FRAME_IN = 0.75
"""Inches: of a panel with its frame, of a line of text over it, of the space above and below all."""
_HEAD_PT = {"usenix": 6.5, "original": 9.0}
_ORIGINAL_IN = (14.0, 8.5)
_MARGIN = 0.1
"""Share of the height left free above and below the curves."""
_MIB = 1 << 20


def draw_lengths(study: LengthStudy, look: LengthLook | None = None) -> FigurePage:
    """Return the six panels as a figure of matplotlib.

    Raises:
        UsageError: The size that was chosen is too small.
    """
    look = look or LengthLook()
    series = {mode: make_series(study, mode, PANELS) for mode in study.privacy_modes}
    laws = [describe_laws([each[at] for each in series.values()], look) for at in range(len(PANELS))]
    with hold_settings("usenix"):
        page = open_figure_page("usenix", _choose_size(laws, look), look.dpi or DPI[look.style])
        axes = list(page.subplots(_DOWN, _ACROSS).flatten())
        texts = [write_laws(panel, lines, look) for panel, lines in zip(axes, laws, strict=True)]
        for at, panel in enumerate(axes):
            _draw_panel(panel, study, [each[at] for each in series.values()], look)
        for start in range(0, len(axes), _ACROSS):
            name_panels(axes[start : start + _ACROSS], list(PANELS)[start:], texts[start : start + _ACROSS])
        _name_axes(axes)
        page.suptitle(_describe(study), x=0.01, ha="left", fontsize=_HEAD_PT[look.style])
        draw_key(page, study, look)
        settle(page)
    return page


def _describe(study: LengthStudy) -> str:
    simulated = " (simulated)" if study.is_simulated else ""
    lines = (
        describe_training(study),
        f"{describe_devices(study)}: change of {name_memory(study)} memory over each phase of the last step"
        f"{simulated}",
        "Forward Pass includes the loss; 1 MiB is 1,048,576 bytes",
    )
    return "\n".join(map(show_text, lines))


def _choose_size(laws: Sequence[Sequence[str]], look: LengthLook) -> tuple[float, float]:
    if look.size_in is not None:
        return look.size_in
    if look.style == "original":
        return _ORIGINAL_IN
    return TEXT_IN, _DOWN * (_PANEL_IN + _LINE_IN * max(map(len, laws))) + _FRAME_IN


def _draw_panel(axes: "Axes", study: LengthStudy, drawn: Sequence[LengthSeries], look: LengthLook) -> None:
    axes.set_axisbelow(True)
    axes.grid(visible=True, color=FAINT, linewidth=0.4)
    _frame_lengths(axes, study.lengths)
    _frame_height(axes, drawn)
    for each in drawn:
        draw_series(axes, each, look)
    has_phase = drawn[0].name != "DP Setup" or set(study.privacy_modes) != {"none"}
    if has_phase:
        mark_out_of_memory(axes, study, drawn, look)
    if not any(each.is_measured for each in drawn):
        axes.text(
            0.5,
            0.5,
            "not measured" if has_phase else "no such phase without privacy",
            ha="center",
            va="center",
            color=UNMEASURED_INK,
            transform=axes.transAxes,
        )


def _name_axes(axes: Sequence["Axes"]) -> None:
    for panel in axes[-_ACROSS:]:
        panel.set_xlabel("sequence length, tokens")
    for panel in axes[::_ACROSS]:
        panel.set_ylabel("difference, MiB")


def _frame_lengths(axes: "Axes", lengths: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xlim(lengths[0] / 2**0.5, lengths[-1] * 2**0.5)
    axes.set_xticks(list(lengths), [str(length) for length in lengths])
    axes.minorticks_off()
    if len(lengths) > 8:
        axes.tick_params(axis="x", labelrotation=90)


def _frame_height(axes: "Axes", drawn: Sequence[LengthSeries]) -> None:
    """Let the axis begin at nothing, so that what hardly changes looks as if it hardly changed."""
    values = [value for each in drawn for value in each.values_bytes if value is not None]
    values += [round(value) for each in drawn for value in each.predicted_bytes.values()]
    low = min([0, *values]) / _MIB
    high = max([0, *values]) / _MIB
    room = (high - low) * _MARGIN or 0.5
    axes.set_ylim(low - room, high + room)


_MOST_LETTERS = {"usenix": 56, "original": 90}
"""Characters of a line over a panel."""
_LAW_PT = {"usenix": 6.0, "original": 8.5}
_POINTS_PER_INCH = 72
_FOOT_PT = 2.5
"""From a panel to the text over it."""


def describe_laws(drawn: Sequence[LengthSeries], look: LengthLook) -> list[str]:
    """Return the laws of a panel as lines; algorithms of one law share it."""
    named: dict[str, list[str]] = {}
    for series in drawn:
        if series.is_measured:
            named.setdefault(_describe_law(series), []).append(series.privacy)
    most = _MOST_LETTERS[look.style]
    laws = (f"{', '.join(modes)}: {law}" if len(drawn) > 1 else law for law, modes in named.items())
    return [line for each in laws for line in _wrap(each, most)]


def write_laws(axes: "Axes", lines: Sequence[str], look: LengthLook) -> "Annotation":
    text = axes.annotate(
        "\n".join(lines),
        (0, 1),
        xytext=(0, _FOOT_PT),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=_LAW_PT[look.style],
        linespacing=1.0,
        color=INK,
        va="bottom",
        annotation_clip=False,
    )
    text.set_in_layout(False)
    return text


def name_panels(axes: Sequence["Axes"], names: Sequence[str], texts: Sequence["Annotation"]) -> None:
    """Write names over the panels of a row, and the texts over them right below."""
    heights_pt = [
        _POINTS_PER_INCH * text.get_window_extent().height / panel.figure.dpi
        for text, panel in zip(texts, axes, strict=True)
    ]
    for panel, name, text, height_pt in zip(axes, names, texts, heights_pt, strict=False):
        text.xyann = (0, _FOOT_PT + max(heights_pt) - height_pt)
        panel.set_title(name, pad=_FOOT_PT + max(heights_pt) + 1.5, fontweight="bold")


def _describe_law(series: LengthSeries) -> str:
    """Return the law of an algorithm; a number stays on one line with its unit."""
    law = say_law(series.law, series.points).replace("^2", "²")
    law = re.sub(r"(?<=\d) (?=[KMG]?i?B)", "\N{NO-BREAK SPACE}", law)
    return law if series.law is None else f"{law}, {say_residual(series.residual_bytes)}"


def _wrap(text: str, most: int) -> list[str]:
    """Return a law in lines, what it leaves over on one of its own where both do not fit."""
    law, comma, residual = text.rpartition(", residual")
    if len(text) <= most or len(law) >= most or not comma:
        return textwrap.wrap(text, most)
    return [*textwrap.wrap(f"{law},", most), f"residual{residual}"]


_LAW_STEPS = 96
_CROSS_FOOT = 0.05
_CROSS_STEP = 0.09
"""Height of the lowest cross, and from one algorithm's to the next, as shares of the panel."""
OUT_OF_MEMORY = "out of memory"
PREDICTED = "as the law predicts"


def draw_series(axes: "Axes", series: LengthSeries, look: LengthLook) -> None:
    """Draw the points of one algorithm and its law, hollow where only the law speaks."""
    style = look.choose_algorithm(series.privacy, series.name)
    known = {
        length: value / MIB
        for length, value in zip(series.lengths, series.values_bytes, strict=True)
        if value is not None
    }
    if series.law is not None:
        lengths = _spread(series.lengths[0], series.lengths[-1])
        law = [series.law.predict(length) / MIB for length in lengths]
        axes.plot(lengths, law, color=style.colour, linestyle=style.dashes, linewidth=0.9, zorder=2)
    axes.plot(
        list(known),
        list(known.values()),
        color=style.colour,
        marker=style.shape,
        markersize=3.2,
        linestyle="none",
        zorder=3,
        label=series.privacy,
    )
    missing = {length: value / MIB for length, value in series.predicted_bytes.items()}
    axes.plot(
        list(missing),
        list(missing.values()),
        color=style.colour,
        marker=style.shape,
        markersize=3.6,
        markerfacecolor=PAPER,
        linestyle="none",
        zorder=3,
    )
    if look.style == "original":
        _write_values(axes, known)


def mark_out_of_memory(
    axes: "Axes", study: LengthStudy, drawn: Sequence[LengthSeries], look: LengthLook
) -> None:
    """Put a cross on the axis at each length whose run ran out of memory, a row an algorithm."""
    for row, series in enumerate(drawn):
        points = (study.find_point(series.privacy, length) for length in series.lengths)
        lengths = [
            point.seq_length
            for point in points
            if point is not None and point.run is not None and point.run.end == "out_of_memory"
        ]
        axes.plot(
            lengths,
            [_CROSS_FOOT + row * _CROSS_STEP] * len(lengths),
            color=look.choose_algorithm(series.privacy, series.name).colour,
            marker="x",
            markersize=4.5,
            markeredgewidth=1.2,
            linestyle="none",
            transform=axes.get_xaxis_transform(),
            zorder=4,
        )


def draw_key(page: "FigurePage", study: LengthStudy, look: LengthLook) -> None:
    """Say below the panels what lines and crosses are, where there are several or any."""
    handles = (
        [_make_handle(look, mode) for mode in study.privacy_modes] if len(study.privacy_modes) > 1 else []
    )
    if any(run.end == "out_of_memory" for run in study.runs):
        handles += [_make_mark("x", OUT_OF_MEMORY), _make_mark("o", PREDICTED)]
    if handles:
        page.legend(handles=handles, loc="outside lower center", ncols=len(handles), handlelength=2.8)


def _make_handle(look: LengthLook, mode: PrivacyMode) -> "Line2D":
    from matplotlib.lines import Line2D

    style = ALGORITHMS[mode]
    colour = style.colour if look.style == "usenix" else INK
    handle = Line2D([], [], color=colour, marker=style.shape, markersize=3.2, linewidth=0.9, label=mode)
    handle.set_linestyle(style.dashes)
    return handle


def _make_mark(shape: str, label: str) -> "Line2D":
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], color=INK, marker=shape, markerfacecolor=PAPER, linestyle="none", markersize=4, label=label
    )


def _write_values(axes: "Axes", known: dict[int, float]) -> None:
    for length, value in known.items():
        axes.annotate(
            f"{value:,.1f}",
            (length, value),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            fontsize=7,
            color=INK,
        )


def _spread(first: int, last: int) -> list[float]:
    """Return lengths from the first to the last, evenly on an axis of logarithms."""
    return [first * (last / first) ** (step / _LAW_STEPS) for step in range(_LAW_STEPS + 1)]


# A study by length as the table of Opacus's memory visualiser, which calls MiB MB.

_WIDTH = 80
_STAGE = 20
_CELL = 10


def describe_study_as_original(study: LengthStudy) -> str:
    """Return the table, or one table an algorithm where several are compared.

    The loss counts as part of the forward pass: the original's model computes it there.
    What ran out of memory, or was not reached, is `N/A`.
    """
    tables = ("\n".join(_describe_original(study, mode)) for mode in study.privacy_modes)
    return "\n".join(tables) + "\n"


def _describe_original(study: LengthStudy, mode: PrivacyMode) -> Iterator[str]:
    yield ""
    yield "=" * _WIDTH
    yield "MEMORY USAGE SUMMARY TABLE"
    yield "=" * _WIDTH
    yield "Stage".ljust(_STAGE) + "".join(str(length).rjust(_CELL) for length in study.lengths)
    yield "-" * _WIDTH
    for series in make_series(study, mode, PANELS):
        if series.is_measured:
            yield series.name.ljust(_STAGE) + "".join(_show(value) for value in series.values_bytes)
    yield "=" * _WIDTH
    yield "单位: MB (内存差异)"
    # Facts that the original does not print.
    if len(study.privacy_modes) > 1:
        yield f"dp-mode: {mode}"
    if study.is_simulated:
        yield "simulated"
    if name_memory(study) == "resident":
        yield "cpu: resident memory"


def _show(value_bytes: int | None) -> str:
    return ("N/A" if value_bytes is None else f"{value_bytes / MIB:.1f}").rjust(_CELL)
