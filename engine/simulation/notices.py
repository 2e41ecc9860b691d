"""What the user is told on stderr: each thing once, in one line. stdout stays the script's own."""

from __future__ import annotations

import sys
from typing import NoReturn

PREFIX = "vramscope simulate:"
USAGE_EXIT_CODE = 2

_told: set[str] = set()


def tell(text: str) -> None:
    """Write one line to stderr, if it was not written before."""
    if text not in _told:
        _told.add(text)
        print(f"{PREFIX} {text}", file=sys.stderr, flush=True)  # noqa: T201  (stderr is for people)


def refuse(text: str) -> NoReturn:
    """End the script with one line on stderr.

    Raises:
        SystemExit: Always, with the exit code of a usage error.
    """
    tell(text)
    raise SystemExit(USAGE_EXIT_CODE)
