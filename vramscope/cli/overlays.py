"""What the keys of a view open over it; what they need is loaded when one is pressed."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError

if TYPE_CHECKING:
    from vramscope.analyzers.sweep.index import SweepIndex
    from vramscope.tui.launch import Overlays
    from vramscope.tui.planned import Planned
    from vramscope.tui.planning_app import JobDefaults
    from vramscope.tui.profiled import Profiled


def list_overlays() -> "Overlays":
    """Return what can be shown over a view."""
    from vramscope.tui.launch import Overlays

    return Overlays(plan_words, find_by_words, read_by_words)


def plan_words(words: str, defaults: "JobDefaults") -> "Planned":
    """Make the plan that words ask for: a model, then flags of `vramscope plan`.

    Raises:
        VramscopeError: The words mean nothing, or no plan can be made of them.
    """
    from .plan_screen import present_words

    return present_words(words, defaults)


def find_by_words(words: str) -> "SweepIndex":
    """Read the sweeps that words ask for: folders, then flags of `vramscope sweep`.

    Raises:
        UsageError: The words mean nothing.
        InputFileError: A folder cannot be read, or there is no sweep in any.
    """
    from .parser import parse
    from .sweeps import find_wanted
    from .verbs.sweep import read_job

    try:
        given = shlex.split(words)
    except ValueError as error:
        raise UsageError(f"{words}: expected folders, then flags of vramscope sweep") from error
    if not {"-h", "--help"}.isdisjoint(given):
        raise UsageError("run `vramscope sweep --help` in a shell to read about its flags")
    return find_wanted(read_job(parse(["sweep", *given]))).chosen


def read_by_words(words: str) -> "Sequence[Profiled]":
    """Read the profiles by module below the paths in a line.

    Raises:
        UsageError: The words mean nothing.
        InputFileError: A profile cannot be read or understood, or there is none.
    """
    from .modules import read_profiled

    try:
        given = shlex.split(words)
    except ValueError as error:
        raise UsageError(f"{words}: expected files of profiles, or folders with some") from error
    return read_profiled([Path(word).expanduser() for word in given])
