"""Forks: a child is silent, and the fork itself finds no thread of ours."""

from __future__ import annotations

import os
from typing import Callable

from .base import current

_is_watching = False
_noted: set[str] = set()
"""Hooks that have failed; each leaves one note, however often the program forks."""


def watch_forks() -> None:
    """Be told of forks from here on; once for the process and all its descendants."""
    global _is_watching  # noqa: PLW0603 - what os registers cannot be taken back
    if not _is_watching:
        os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
        _is_watching = True


def _before() -> None:
    """End the thread: what it holds at that moment would be held in the child for ever."""
    session = current.session
    if session is not None:
        _try("what comes before a fork", session.pause)


def _after_in_parent() -> None:
    session = current.session
    if session is not None:
        _try("what follows a fork in the parent", session.go_on)


def _after_in_child() -> None:
    session = current.session
    if session is not None:
        _try("what follows a fork in the child", session.fall_silent)


def _try(what: str, action: Callable[[], None]) -> None:
    """Do it; what a hook of a fork raises is printed by the interpreter, at every fork."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 - the program forks whatever fails here
        if what not in _noted:
            _noted.add(what)
            current.note_failure(what, error)
