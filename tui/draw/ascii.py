"""Text in seven bits: a look-alike for each character that the screens draw."""

from functools import lru_cache

from rich.cells import cell_len

from ...engine.text import ASCII_FORMS


@lru_cache(maxsize=1024)
def to_ascii(text: str) -> str:
    """Return text in ASCII that takes the same cells; characters without a look-alike become `?`."""
    if text.isascii():
        return text
    translated = text.translate(ASCII_FORMS)
    if translated.isascii():
        return translated
    return "".join(c if c.isascii() else "?" * cell_len(c) for c in translated)
