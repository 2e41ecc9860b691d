"""Every character that draws a picture or replaces a word, in sets for what a terminal can show."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...exporters.text import ASCII_MARKS, MARKS


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One complete set of characters; each is one cell wide."""

    name: str
    # Gauge cell that is filled.
    full: str
    # Gauge cells that are filled in part, from least to most; none in ASCII.
    partial: str
    # Gauge cell between the least and the most of the tick.
    band: str
    # Gauge cell that is not filled.
    empty: str
    # Gauge cell that the allocator holds and no tensor fills.
    cached: str
    # Gauge cell that is used by something else than the allocator.
    rest: str
    # Cell of a bar for what is stranded, or a part that has no other glyph left.
    hatched: str
    # Cell of a bar for what other processes hold.
    others: str
    # Cell of a bar for memory without a known owner.
    unattributed: str
    # Before a number that is a lower bound.
    at_least: str
    # Cell of a segment: full, mostly full, partly full, free and stranded, free to be given back.
    segment: str
    # Mark on a horizontal line.
    tick: str
    # Whether history is drawn in braille, two columns of four dots a cell.
    is_braille: bool
    # History cells from blank to full where there is no braille.
    history: str
    # History cell between the least and the most of a bucket where there is no braille.
    history_band: str
    # One cell for a whole device, from nearly empty to full.
    levels: str
    # By level of risk.
    risks: Mapping[str, str]
    # By how full a device is.
    fullness: Mapping[str, str]
    # By the word of a trend of used memory.
    trends: Mapping[str, str]
    # Mark of an unmeasured value.
    unmeasured: str
    ellipsis: str
    # Between two facts on one line.
    separator: str
    # Left edge of a selected row.
    selected: str
    # Horizontal line.
    rule: str
    # Below a graph, at a moment of it.
    pointer: str
    # Unit of temperature.
    degree: str
    # One cell for a device that is lost.
    lost: str
    # One cell for a device whose values are old.
    stale: str
    # Before the word that says that the node is recorded.
    recording: str
    # Mark of the capacity on a bar that may exceed it.
    limit: str
    # Mark of the measured peak of allocated bytes on a bar of planned bytes.
    measured: str
    # Mark of the measured peak of reserved bytes.
    measured_reserved: str

    def risk(self, level: str) -> str:
        """Return the glyph of a level of risk; an unknown word has the glyph of `unknown`."""
        return self.risks.get(level, self.risks["unknown"])


# For terminals with a full font.
UNICODE = Glyphs(
    name="unicode",
    full="█",
    partial="▏▎▍▌▋▊▉",
    band="▒",
    empty="░",
    cached="▓",
    rest="▄",
    hatched="▚",
    others="▀",
    unattributed="▁",
    at_least="≥",
    segment="█▓▒░·",
    tick="┴",
    is_braille=True,
    history="",
    history_band="",
    levels="▁▂▃▄▅▆▇█",
    risks=MARKS.risks,
    fullness={"nearly": "◕", "full": "●"},
    trends=MARKS.trends,
    unmeasured="—",
    ellipsis="…",
    separator="·",
    selected="▌",
    rule="─",
    pointer="▲",
    degree="°C",
    lost="×",
    stale="~",
    recording="●",
    limit="┃",
    measured="▼",
    measured_reserved="▽",
)

# For everything else: seven bits, no code above 126.
ASCII = Glyphs(
    name="ascii",
    full="#",
    partial="",
    band="=",
    empty=".",
    cached="%",
    rest=":",
    hatched="/",
    others="^",
    unattributed="_",
    at_least=">",
    segment="#%+o.",
    tick="+",
    is_braille=False,
    history=" .+#",
    history_band="=",
    levels="0123456789",
    risks=ASCII_MARKS.risks,
    fullness={"nearly": "o", "full": "O"},
    trends=ASCII_MARKS.trends,
    unmeasured="-",
    ellipsis="~",
    separator="|",
    selected=">",
    rule="-",
    pointer="^",
    degree="C",
    lost="x",
    stale="~",
    recording="*",
    limit="|",
    measured="v",
    measured_reserved="V",
)

# Gauges that are lower than their row, so that a gap separates them from those above and below.
_LOW = replace(UNICODE, full="▆", partial="", band="▃", empty="▁", cached="▄", rest="▂")


def lower(glyphs: Glyphs) -> Glyphs:
    """Return the glyphs for gauges in adjacent rows; in ASCII the characters have gaps of their own."""
    return _LOW if glyphs is UNICODE else glyphs
