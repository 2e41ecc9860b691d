"""How this process prints: width, colours and characters of its standard output."""

import os
import shutil
import sys

from vramscope.engine.settings import Settings
from vramscope.exporters.table import TableStyle

LEAST_WIDTH = 20
_COLORLESS_TERMINALS = ("dumb", "unknown", "")


def choose_style(settings: Settings) -> TableStyle:
    """Return how a table is printed here: fitted to the terminal, or to 80 columns or COLUMNS in a pipe."""
    width = shutil.get_terminal_size(fallback=(80, 24)).columns
    return TableStyle(
        width=max(LEAST_WIDTH, width), has_color=has_color(settings), is_ascii=is_ascii(settings)
    )


def has_color(settings: Settings) -> bool:
    """Return whether to print in colour: as set, else on a terminal that has it (NO_COLOR is a setting)."""
    if settings.theme == "mono":
        return False
    if settings.color is not None:
        return settings.color
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in _COLORLESS_TERMINALS


def is_ascii(settings: Settings) -> bool:
    """Return whether to print ASCII only: as set, else where standard output is not UTF-8."""
    if settings.ascii is not None:
        return settings.ascii
    return (sys.stdout.encoding or "ascii").lower().replace("-", "") != "utf8"
