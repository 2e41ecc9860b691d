"""Memory by length of sequences: a panel a phase, its points, the law they follow, where memory ran out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...analyzers.length_law import PANELS, LengthSeries, make_series
from ...engine.model.length_memory import LengthStudy
from ..length_words import describe_devices, describe_training, name_memory
from .canvas import show_text
from .length_marks import draw_key, draw_series, mark_out_of_memory
from .length_style import DPI, LengthLook
from .length_words import describe_laws, name_panels, write_laws
from .style import FAINT, UNMEASURED_INK
from .sweep import settle
from .sweep_page import SweepPage, hold_settings, open_sweep_page
from .sweep_style import TEXT_IN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ACROSS, _DOWN = 3, 2
_PANEL_IN, _LINE_IN, _FRAME_IN = 1.55, 0.1, 0.75
"""Inches: of a panel with its frame, of a line of text over it, of what stands above and below all."""
_HEAD_PT = {"usenix": 6.5, "original": 9.0}
_ORIGINAL_IN = (14.0, 8.5)
_MARGIN = 0.1
"""Share of the height left free above and below what is drawn."""
_MIB = 1 << 20


def draw_lengths(study: LengthStudy, look: LengthLook | None = None) -> SweepPage:
    """Return the six panels as a figure of matplotlib.

    Args:
        study: What ran.
        look: Style, size and resolution.

    Raises:
        UsageError: The size that was chosen is too small.
    """
    look = look or LengthLook()
    series = {mode: make_series(study, mode, PANELS) for mode in study.privacy_modes}
    laws = [describe_laws([each[at] for each in series.values()], look) for at in range(len(PANELS))]
    with hold_settings("usenix"):
        page = open_sweep_page("usenix", _choose_size(laws, look), look.dpi or DPI[look.style])
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
    low, high = min([0, *values]) / _MIB, max([0, *values]) / _MIB
    room = (high - low) * _MARGIN or 0.5
    axes.set_ylim(low - room, high + room)
