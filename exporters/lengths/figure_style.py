"""The look of memory by length: a colour, a line and a shape for each algorithm, or the original's stages.

Colours of algorithms are those that findings are marked in, which are tested to be told apart; the original's
are of matplotlib's own cycle. In either look algorithms differ in dashes and shapes too.
"""

from typing import Literal, NamedTuple

import msgspec

from ...engine.model.phase_memory import PrivacyMode

LengthStyle = Literal["usenix", "original"]
LENGTH_STYLES: tuple[LengthStyle, ...] = ("usenix", "original")
DPI: dict[LengthStyle, int] = {"usenix": 600, "original": 300}


class AlgorithmStyle(NamedTuple):
    """How the points and the law of one algorithm look."""

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
"""Of the original, by panel."""


class LengthLook(msgspec.Struct, frozen=True):
    """What a person chose for a figure."""

    style: LengthStyle = "usenix"
    size_in: tuple[float, float] | None = None
    """Width and height; None for what suits the panels."""
    dpi: int | None = None
    """Dots per inch of a PNG; None for those of the style."""

    def choose_algorithm(self, privacy: PrivacyMode, panel: str) -> AlgorithmStyle:
        """Return the look of an algorithm in a panel."""
        style = ALGORITHMS[privacy]
        return style if self.style == "usenix" else style._replace(colour=STAGE_COLOURS[panel])
