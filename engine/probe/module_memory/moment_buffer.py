"""The newest moments of a profile, kept in memory for whoever asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .memory_log import Kind, Moment, encode_header, encode_moment

MOST_MOMENTS = 64
MOST_ENTRIES = 60_000
"""Entries of trees that are told at once; of older moments first none are told."""


class MomentBuffer:
    """Keeps moments; written by one thread and read by any.

    A tree is kept of the newest moment whose kind came to the same bytes: readers find it from there.
    """

    def __init__(self) -> None:
        self.header: Mapping[str, Any] = {}
        self._moments: tuple[Moment, ...] = ()  # replaced whole, so that it can be read meanwhile

    def clear(self) -> None:
        """Forget all moments."""
        self._moments = ()

    def write(self, moment: Moment, *, is_first: bool) -> None:
        """Take a moment, the first of a profile too; where there are many, the oldest without a tree goes."""
        moments = [
            *(_leave_out(known, moment) for known in self._moments),
            _keep_only(moment, moment.layouts),
        ]
        if len(moments) > MOST_MOMENTS:
            moments.pop(next((at for at, known in enumerate(moments) if not known.layouts), 0))
        self._moments = tuple(moments)

    def list_lines(self) -> Iterator[str]:
        """Yield the lines of `module_memory.jsonl` in pieces."""
        moments = list(self._moments)
        room = MOST_ENTRIES
        for place in reversed(range(len(moments))):
            fitting, room = _fit(moments[place], room)
            moments[place] = moments[place]._replace(layouts=fitting)
        yield encode_header(self.header)
        for moment in moments:
            yield from encode_moment(moment)


def _leave_out(known: Moment, newer: Moment) -> Moment:
    """Return a moment without the trees that a newer one has of as many bytes."""
    alike = {name for name in newer.layouts if known.kinds[name][:2] == newer.kinds[name][:2]}
    if alike.isdisjoint(known.layouts):
        return known
    return _keep_only(known, tuple(name for name in known.layouts if name not in alike))


def _keep_only(moment: Moment, layouts: tuple[str, ...]) -> Moment:
    """Return a moment with these trees and no others."""
    kinds = {
        name: kind if name in layouts else Kind(kind.computed_bytes, kind.measured_bytes, {}, {})
        for name, kind in moment.kinds.items()
    }
    return moment._replace(kinds=kinds, layouts=layouts)


def _fit(moment: Moment, room: int) -> tuple[tuple[str, ...], int]:
    """Return the kinds whose trees find room, and the room that is left."""
    fitting = []
    for name in moment.layouts:
        kind = moment.kinds[name]
        entries = max(len(kind.computed), len(kind.measured))
        if entries <= room:
            room -= entries
            fitting.append(name)
    return tuple(fitting), room
