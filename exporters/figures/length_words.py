"""What is written over a panel of memory by length: its name, and the laws of the algorithms in it."""

import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...analyzers.length_law import LengthSeries, say_law, say_residual
from .length_style import LengthLook
from .style import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation

_MOST_LETTERS = {"usenix": 56, "original": 90}
"""Of a line over a panel."""
_LAW_PT = {"usenix": 6.0, "original": 8.5}
_POINTS_PER_INCH = 72
_FOOT_PT = 2.5
"""From a panel to the text over it."""


def describe_laws(drawn: Sequence[LengthSeries], look: LengthLook) -> list[str]:
    """Return the laws of a panel as lines; algorithms of one law share it.

    Args:
        drawn: An algorithm each.
        look: Style of the figure.
    """
    named: dict[str, list[str]] = {}
    for series in drawn:
        if series.is_measured:
            named.setdefault(_describe_law(series), []).append(series.privacy)
    most = _MOST_LETTERS[look.style]
    told = (f"{', '.join(modes)}: {law}" if len(drawn) > 1 else law for law, modes in named.items())
    return [line for each in told for line in _wrap(each, most)]


def write_laws(axes: "Axes", lines: Sequence[str], look: LengthLook) -> "Annotation":
    """Write lines over a panel and return the text."""
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
