"""Stacks of a snapshot, each kept once: a million blocks come from some hundred places in a program."""

import re
from array import array
from collections.abc import Iterable, Sequence

from ...model.memory_snapshot import UNMEASURED, Frame, StackTable
from .places import Place, expect_dict, expect_int, expect_list

_MOST_CANDIDATES = 16
"""Beyond this many stacks that differ only between the sampled frames, lists are hashed whole."""
_NO_FILE = "none"
"""The file of every frame in a snapshot that PyTorch makes from a profile."""
_PROFILED = re.compile(r"(.+)\(([0-9]{1,9})\): (.+)")
"""How a profile names a frame of Python: `train.py(9): step`."""


class StackInterner:
    """Gives every distinct stack a row, and every distinct frame.

    PyTorch writes one list a block but shares the frames among the lists, and pickle keeps what was shared.
    Comparing lists of the same frames is fast, hashing them whole is not: so a few frames of a list choose
    the candidates, which are then compared.
    """

    def __init__(self) -> None:
        self._candidates: dict[tuple[int, ...], list[tuple[list[object], int]]] = {}
        self._whole: dict[tuple[int, ...], int] = {}
        self._frames: dict[Frame, int] = {}
        self._frame_rows: dict[int, int] = {}
        self._stacks: dict[bytes, int] = {}
        self._kept: list[object] = []
        self._members = array("i")
        self._starts = array("q", [0])

    def intern_all(self, lists: Iterable[object], place: Place) -> list[int]:
        """Return the row of each of some stacks, `UNMEASURED` for one without frames.

        This runs once a block and is written for speed: known stacks are found without a call of Python's.

        Raises:
            InputFileError: One of them is not a list of frames.
        """
        rows: list[int] = []
        add = rows.append
        find = self._candidates.get
        for frames in lists:
            if type(frames) is not list or not frames:
                add(self._intern_unusual(frames, place))
                continue
            count = len(frames)
            for known, row in find((count, id(frames[0]), id(frames[count >> 1])), ()):
                # Frames are shared objects, so equality is mostly one of identity.
                if known == frames:
                    add(row)
                    break
            else:
                add(self._intern_new(frames, place))
        return rows

    def intern(self, frames: object, place: Place) -> int:
        """Return the row of one stack.

        Raises:
            InputFileError: It is not a list of frames.
        """
        return self.intern_all((frames,), place)[0]

    def _intern_unusual(self, frames: object, place: Place) -> int:
        if frames is None or not expect_list(frames, place):
            return UNMEASURED
        return self._intern_new(expect_list(frames, place), place)

    def _intern_new(self, frames: list[object], place: Place) -> int:
        count = len(frames)
        sample = (count, id(frames[0]), id(frames[count >> 1]))
        candidates = self._candidates.setdefault(sample, [])
        if len(candidates) >= _MOST_CANDIDATES:
            return self._intern_whole(frames, place)
        row = self._add(frames, place)
        candidates.append((frames, row))
        return row

    def build(self) -> StackTable:
        """Return what was interned."""
        return StackTable(frames=tuple(self._frames), members=self._members, starts=self._starts)

    def _intern_whole(self, frames: list[object], place: Place) -> int:
        key = tuple(map(id, frames))
        row = self._whole.get(key)
        if row is None:
            row = self._whole[key] = self._add(frames, place)
        return row

    def _add(self, frames: Sequence[object], place: Place) -> int:
        rows = array("i", (self._intern_frame(frame, (*place, index)) for index, frame in enumerate(frames)))
        key = rows.tobytes()
        found = self._stacks.get(key)
        if found is None:
            found = self._stacks[key] = len(self._stacks)
            self._members.extend(rows)
            self._starts.append(len(self._members))
        return found

    def _intern_frame(self, frame: object, place: Place) -> int:
        row = self._frame_rows.get(id(frame))
        if row is None:
            row = self._frame_rows[id(frame)] = self._frames.setdefault(
                _read_frame(frame, place), len(self._frames)
            )
            # The object must live on, or its id would come to mean another.
            self._kept.append(frame)
        return row


def _read_frame(frame: object, place: Place) -> Frame:
    fields = expect_dict(frame, place)
    line = expect_int(fields.get("line", 0), (*place, "line"))
    filename = str(fields.get("filename", "??"))
    name = str(fields.get("name", "??"))
    if filename == _NO_FILE:
        profiled = _PROFILED.fullmatch(name)
        if profiled is not None:
            return Frame(filename=profiled[1], line=int(profiled[2]), name=profiled[3])
    return Frame(filename=filename, line=line, name=name)
