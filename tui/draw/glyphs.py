"""Every character that draws a picture or stands for a word, in sets for what a terminal can show."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One complete set of characters; each is one cell wide."""

    name: str
    full: str
    """Gauge cell that is filled."""
    partial: str
    """Gauge cells that are filled in part, from least to most; none in ASCII."""
    band: str
    """Gauge cell between the least and the most of the tick."""
    empty: str
    """Gauge cell that is not filled."""
    cached: str
    """Gauge cell that the allocator holds and no tensor fills."""
    rest: str
    """Gauge cell that is used by something else than the allocator."""
    hatched: str
    """Cell of a bar for what is stranded, or a part that has no other glyph left."""
    others: str
    """Cell of a bar for what other processes hold."""
    unattributed: str
    """Cell of a bar for what nobody can name."""
    at_least: str
    """Before a figure that is a lower bound."""
    segment: str
    """Cell of a segment: full, mostly full, partly full, free and stranded, free to be given back."""
    tick: str
    """Mark on a horizontal line."""
    is_braille: bool
    """Whether history is drawn in braille, two columns of four dots a cell."""
    history: str
    """History cells from blank to full where there is no braille."""
    history_band: str
    """History cell between the least and the most of a bucket where there is no braille."""
    levels: str
    """One cell for a whole device, from nearly empty to full."""
    risks: Mapping[str, str]
    """One glyph for each level of risk."""
    unmeasured: str
    """What stands for a value nobody measured."""
    ellipsis: str
    separator: str
    """What stands between two facts on one line."""
    selected: str
    """Left edge of what is selected."""
    rule: str
    """Horizontal line."""
    degree: str
    """Unit of temperature."""
    lost: str
    """One cell for a device that is lost."""
    stale: str
    """One cell for a device whose figures are old."""
    recording: str
    """Before the word that says that the node is recorded."""
    limit: str
    """Where the capacity stands on a bar that may go beyond it."""
    measured: str
    """Where the measured peak of allocated bytes stands on the bar of what was planned."""
    measured_reserved: str
    """Where that of reserved bytes stands."""

    def risk(self, level: str) -> str:
        """Return the glyph of a level of risk; an unknown word has the glyph of `unknown`."""
        return self.risks.get(level, self.risks["unknown"])


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
    risks={"low": "·", "medium": "▲", "high": "◆", "critical": "✖", "unknown": "?"},
    unmeasured="—",
    ellipsis="…",
    separator="·",
    selected="▌",
    rule="─",
    degree="°C",
    lost="×",
    stale="~",
    recording="●",
    limit="┃",
    measured="▼",
    measured_reserved="▽",
)
"""For terminals with a full font."""

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
    risks={"low": ".", "medium": "^", "high": "*", "critical": "X", "unknown": "?"},
    unmeasured="-",
    ellipsis="~",
    separator="|",
    selected=">",
    rule="-",
    degree="C",
    lost="x",
    stale="~",
    recording="*",
    limit="|",
    measured="v",
    measured_reserved="V",
)
"""For everything else: seven bits, no code above 126."""
