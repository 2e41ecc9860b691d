"""Forks: a child is silent, and the fork itself finds no thread of ours."""

from __future__ import annotations

import os

from . import current

_is_watching = False


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
        session.pause()


def _after_in_parent() -> None:
    session = current.session
    if session is not None:
        session.go_on()


def _after_in_child() -> None:
    session = current.session
    if session is not None:
        session.fall_silent()
