"""The one session of this process, what failed before there was one, and what a fork left behind."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from .session import Session

session: Session | None = None
"""None where nothing runs: then every call of a user's program returns at once."""

dormant: Callable[[], None] | None = None
"""In a forked child: starts a session of its own, should the child turn out to train."""

leftover: Callable[[Any], None] | None = None
"""What an ended session left to be done by the thread that trains; takes the module torch."""

failures: deque[str] = deque(maxlen=8)
"""Sentences about what failed at the entries of the probe, newest last; they go out as notes."""
