"""What the user is told on stderr: each thing once, in one line. stdout stays the script's own."""

from __future__ import annotations

import sys
from typing import NoReturn

PREFIX = "vramscope simulate:"
USAGE_EXIT_CODE = 2

_told: set[str] = set()
_is_silent = False


class Refusal(SystemExit):
    """The script cannot go on; `text` says why. It passes every handler of exceptions that a script has."""

    def __init__(self, text: str) -> None:
        super().__init__(USAGE_EXIT_CODE)
        self.text = text


def be_silent() -> None:
    """Tell nothing from here on, for a program that says by itself what it was refused."""
    global _is_silent  # noqa: PLW0603 - one stderr, one switch
    _is_silent = True


def tell(text: str) -> None:
    """Write one line to stderr, if it was not written before."""
    if text not in _told and not _is_silent:
        _told.add(text)
        print(f"{PREFIX} {text}", file=sys.stderr, flush=True)  # noqa: T201  (stderr is for people)


def refuse(text: str) -> NoReturn:
    """End the script with one line on stderr.

    Raises:
        SystemExit: Always, with the exit code of a usage error.
    """
    tell(text)
    raise Refusal(text)
