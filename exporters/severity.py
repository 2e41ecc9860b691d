"""Severity in print: a glyph and a style, so that colour is never the only carrier of meaning."""

from ..engine.model import RiskLevel

GLYPHS: dict[RiskLevel, str] = {"unknown": "?", "low": "·", "medium": "▲", "high": "◆", "critical": "✖"}
"""One character for each level of risk."""

STYLES: dict[RiskLevel, str] = {
    "unknown": "bold",
    "low": "green",
    "medium": "yellow",
    "high": "bold yellow",
    "critical": "bold red",
}
"""Rich styles that light and dark terminals both show."""
