"""Text that is safe on any terminal: no control characters, and ASCII where nothing else can be shown."""

_ASCII_FORMS = str.maketrans(
    {
        "·": "-",
        "—": "-",
        "–": "-",
        "…": "~",
        "█": "#",
        "▒": "+",
        "░": ".",
        "°": " ",
        "✖": "X",
        "◆": "!",
        "▲": "^",
        "→": ">",
        "×": "x",
        "▁": "_",
        "▂": ".",
        "▃": ":",
        "▄": "-",
        "▅": "=",
        "▆": "+",
        "▇": "*",
    }
)


def make_printable(text: str) -> str:
    """Return a text of foreign origin on one line, with nothing in it that could steer a terminal."""
    return "".join(character if character.isprintable() else "�" for character in text)


def make_ascii(text: str) -> str:
    """Return a text in ASCII of the same width; characters without a likeness become a question mark."""
    return text.translate(_ASCII_FORMS).encode("ascii", "replace").decode("ascii")
