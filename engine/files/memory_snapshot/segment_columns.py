"""Segments into columns, in every dialect since PyTorch 1.13."""

import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain
from operator import itemgetter
from typing import NoReturn, cast

import msgspec

from ...errors import InputFileError
from ...model.memory_snapshot import UNMEASURED, BlockColumns, BlockState, Frame, SegmentColumns, StackTable

# Keys and positions from the root down.
Place = tuple[str | int, ...]

_NAMES = {
    dict: "a dict",
    list: "a list",
    tuple: "a tuple",
    str: "text",
    int: "an integer",
    float: "a float",
    bool: "true or false",
    bytes: "bytes",
    type(None): "None",
}


def show_place(place: Place) -> str:
    """`segments[3].blocks[17].size`"""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".") or "the root"


def name_type(value: object) -> str:
    return _NAMES.get(type(value), f"a {type(value).__name__}")


def refuse(place: Place, text: str) -> NoReturn:
    raise InputFileError(f"at {show_place(place)}: {text}")


def expect_dict(value: object, place: Place) -> dict[object, object]:
    if not isinstance(value, dict):
        refuse(place, f"expected a dict, got {name_type(value)}")
    return value


def expect_list(value: object, place: Place) -> list[object]:
    if not isinstance(value, list):
        refuse(place, f"expected a list, got {name_type(value)}")
    return value


def expect_int(value: object, place: Place, least: int = -(2**63), most: int = 2**63 - 1) -> int:
    """Return an integer within bounds, or refuse."""
    if not isinstance(value, int):
        refuse(place, f"expected an integer, got {name_type(value)}")
    if not least <= value <= most:
        shown = value if abs(value) < 2**70 else "a number of many digits"
        refuse(place, f"expected an integer from {least} to {most}, got {shown}")
    return value


def expect_address(value: object, place: Place) -> int:
    """An address of 64 bits; a negative one was written as signed and is meant unsigned."""
    return expect_int(value, place, least=-(2**63), most=2**64 - 1) % 2**64


def take(fields: dict[object, object], key: str, place: Place) -> object:
    if key not in fields:
        refuse(place, f"the key `{key}` is missing")
    return fields[key]


def make_getter(key: str) -> Callable[[object], object]:
    """Return a function that reads a key of a dict at the speed of C; it raises what Python raises."""
    return cast("Callable[[object], object]", itemgetter(key))


def make_int_getter(key: str) -> Callable[[object], int]:
    """The same for integers; the array that stores them checks that they are."""
    return cast("Callable[[object], int]", itemgetter(key))


# With more stacks that differ only between the sampled frames, lists are hashed whole.
_MOST_CANDIDATES = 16
# The file of every frame in a snapshot that PyTorch makes from a profile.
_NO_FILE = "none"
# How a profile names a frame of Python: `train.py(9): step`.
_PROFILED = re.compile(r"(.+)\(([0-9]{1,9})\): (.+)")


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
        """Return the row of each stack, `UNMEASURED` for one without frames.

        Runs once a block and is written for speed: known stacks are found without calling Python code.
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
            key = tuple(map(id, frames))
            known = self._whole.get(key)
            if known is None:
                known = self._whole[key] = self._add(frames, place)
            return known
        row = self._add(frames, place)
        candidates.append((frames, row))
        return row

    def build(self) -> StackTable:
        return StackTable(frames=tuple(self._frames), members=self._members, starts=self._starts)

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


_MOST_INT32 = 2**31 - 1


class SegmentCollector:
    def __init__(self, stacks: StackInterner) -> None:
        self._stacks = stacks
        self._blocks = BlockCollector(stacks)
        self._lists_seen: set[int] = set()
        self._uneven_count = self._untyped_count = 0
        self.columns = SegmentColumns(
            device=array("i"),
            address=array("Q"),
            total_bytes=array("q"),
            stream=array("q"),
            is_large=array("b"),
            pool_owner=array("q"),
            pool_number=array("q"),
            is_expandable=array("b"),
            stack=array("i"),
            first_block=array("q", [0]),
        )

    @property
    def blocks(self) -> BlockColumns:
        return self._blocks.columns

    @property
    def notes(self) -> list[str]:
        notes = []
        if self._uneven_count:
            noun = "segment has" if self._uneven_count == 1 else "segments have"
            notes.append(f"{self._uneven_count:,} {noun} blocks that do not add up to their size")
        if self._untyped_count:
            notes.append(
                "the segments have no type, as in a snapshot that PyTorch made from a profile: "
                "reserved, free and stranded are ranges of addresses, not device memory"
            )
        return notes

    def add_all(self, segments: list[object], place: Place) -> None:
        try:
            self._add_at_once(segments, place)
        except (InputFileError, LookupError, TypeError, OverflowError, ValueError, AttributeError):
            # One by one, other dialects are understood, and what is wrong is found and named.
            for index, segment in enumerate(segments):
                self._add(segment, (*place, index))

    def _add_at_once(self, segments: list[object], place: Place) -> None:
        """Add segments as PyTorch writes them today, or raise before any is added."""
        lists = cast("list[list[object]]", [_GET_BLOCKS(segment) for segment in segments])
        filled = [id(blocks) for blocks in lists if blocks]
        pools = list(map(_GET_POOL, segments))
        if set(map(type, (*segments, *lists))) - {dict, list} or len(set(filled)) != len(filled):
            raise TypeError
        if not all(type(pool) is tuple and len(pool) == 2 for pool in pools):
            raise TypeError
        owner, number = cast("tuple[list[int], list[int]]", zip(*pools, strict=True) if pools else ([], []))
        total_bytes = array("q", map(_GET_TOTAL, segments))
        columns = (
            array("i", map(_GET_DEVICE, segments)),
            array("Q", map(_GET_ADDRESS, segments)),
            total_bytes,
            array("q", map(_GET_STREAM, segments)),
            array("b", map(_ARE_LARGE.__getitem__, map(_GET_TYPE, segments))),
            array("q", owner),
            array("q", number),
            array("b", map(bool, map(_GET_EXPANDABLE, segments))),
            array("i", self._stacks.intern_all(map(_GET_FRAMES, segments), (*place, "frames"))),
        )
        if min(total_bytes, default=0) < 0 or min(columns[0], default=0) < 0:
            raise ValueError
        sizes = self._blocks.add_at_once(list(chain.from_iterable(lists)), (*place, "blocks"))
        for whole, added in zip(_list_columns(self.columns)[:-1], columns, strict=True):
            whole.extend(added)
        ends = array("q", accumulate(map(len, lists)))
        self.columns.first_block.extend(ends)
        until = [0, *accumulate(sizes)]
        starts = (0, *ends[:-1])
        for start, end, total in zip(starts, ends, total_bytes, strict=False):
            self._uneven_count += until[end] - until[start] != total

    def _add(self, segment: object, place: Place) -> None:
        fields = expect_dict(segment, place)
        address = expect_address(take(fields, "address", place), (*place, "address"))
        total_bytes = expect_int(take(fields, "total_size", place), (*place, "total_size"), least=0)
        owner, number = _read_pool_id(fields.get("segment_pool_id", (0, 0)), (*place, "segment_pool_id"))
        device = expect_int(fields.get("device", 0), (*place, "device"), 0, _MOST_INT32)
        stream = expect_int(fields.get("stream", 0), (*place, "stream"))
        columns = self.columns
        columns.device.append(device)
        columns.address.append(address)
        columns.total_bytes.append(total_bytes)
        columns.stream.append(stream)
        columns.is_large.append(_read_type(fields, place))
        columns.pool_owner.append(owner)
        columns.pool_number.append(number)
        columns.is_expandable.append(bool(fields.get("is_expandable", False)))
        columns.stack.append(self._stacks.intern(fields.get("frames"), (*place, "frames")))
        self._untyped_count += "segment_type" not in fields
        blocks_place = (*place, "blocks")
        blocks = expect_list(take(fields, "blocks", place), blocks_place)
        if blocks and id(blocks) in self._lists_seen:
            # A few bytes could otherwise name the same million blocks a million times.
            refuse(blocks_place, "an earlier segment has the same list of blocks; expected its own")
        self._lists_seen.add(id(blocks))
        if self._blocks.add(blocks, address, blocks_place) != total_bytes:
            self._uneven_count += 1
        self.columns.first_block.append(len(self._blocks.columns))


def _read_pool_id(value: object, place: Place) -> tuple[int, int]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        refuse(place, f"expected two integers, got {name_type(value)}")
    owner, number = value
    return expect_int(owner, place), expect_int(number, place)


def _read_type(fields: dict[object, object], place: Place) -> bool:
    # Snapshots that PyTorch makes from a profile have no type.
    segment_type = fields.get("segment_type", "large")
    if segment_type not in ("large", "small"):
        refuse((*place, "segment_type"), f'expected "large" or "small", got {ascii(segment_type)[:40]}')
    return segment_type == "large"


_STATES: dict[object, int] = {
    "active_allocated": int(BlockState.ALLOCATED),
    "active_pending_free": int(BlockState.PENDING_FREE),
    "active_awaiting_free": int(BlockState.PENDING_FREE),
    "inactive": int(BlockState.INACTIVE),
}
_GET_ADDRESS, _GET_SIZE, _GET_REQUESTED = map(make_int_getter, ("address", "size", "requested_size"))
_GET_STATE, _GET_FRAMES = map(make_getter, ("state", "frames"))
_GET_TOTAL, _GET_DEVICE, _GET_STREAM = map(make_int_getter, ("total_size", "device", "stream"))
_GET_TYPE, _GET_POOL, _GET_EXPANDABLE, _GET_BLOCKS = map(
    make_getter, ("segment_type", "segment_pool_id", "is_expandable", "blocks")
)
_ARE_LARGE: dict[object, int] = {"large": 1, "small": 0}


def _make_columns() -> BlockColumns:
    return BlockColumns(
        address=array("Q"),
        size_bytes=array("q"),
        requested_bytes=array("q"),
        state=array("b"),
        stack=array("i"),
    )


class BlockCollector:
    def __init__(self, stacks: StackInterner) -> None:
        self.columns = _make_columns()
        self._stacks = stacks

    def add(self, blocks: list[object], segment_address: int, place: Place) -> int:
        """Add the blocks of a segment and return their total size in bytes.

        Args:
            blocks: As in the file, in address order.
            segment_address: Where the first one starts, for files that give blocks no address.
        """
        try:
            part = self._collect_at_once(blocks, place)
        except (InputFileError, KeyError, TypeError, OverflowError, ValueError):
            # One by one, other dialects are understood, and what is wrong is found and named.
            part = _make_columns()
            address = segment_address
            for index, block in enumerate(blocks):
                address = self._add_block(part, block, address, (*place, index))
        self._extend(part)
        return sum(part.size_bytes)

    def add_at_once(self, blocks: list[object], place: Place) -> "array[int]":
        """Add blocks as PyTorch writes them today, or raise before any is added; return their sizes."""
        part = self._collect_at_once(blocks, place)
        self._extend(part)
        return part.size_bytes

    def _extend(self, part: BlockColumns) -> None:
        for whole, added in zip(_list_columns(self.columns), _list_columns(part), strict=True):
            whole.extend(added)

    def _collect_at_once(self, blocks: list[object], place: Place) -> BlockColumns:
        part = BlockColumns(
            address=array("Q", map(_GET_ADDRESS, blocks)),
            size_bytes=array("q", map(_GET_SIZE, blocks)),
            requested_bytes=array("q", map(_GET_REQUESTED, blocks)),
            state=array("b", map(_STATES.__getitem__, map(_GET_STATE, blocks))),
            stack=array("i", self._stacks.intern_all(map(_GET_FRAMES, blocks), (*place, "frames"))),
        )
        if min(part.size_bytes, default=0) < 0 or min(part.requested_bytes, default=0) < 0:
            raise ValueError
        return part

    def _add_block(self, part: BlockColumns, block: object, address: int, place: Place) -> int:
        """Add one block of any dialect and return the address after it."""
        fields = expect_dict(block, place)
        size = expect_int(take(fields, "size", place), (*place, "size"), least=0)
        address = expect_address(fields.get("address", address), (*place, "address"))
        state = _read_state(fields, place)
        newest, newest_place = _find_newest(fields, place)
        requested = fields.get("requested_size", newest.get("real_size"))
        if requested is None:
            requested = UNMEASURED if state != BlockState.INACTIVE else 0
        else:
            requested = expect_int(requested, (*place, "requested_size"), least=0)
        part.address.append(address)
        part.size_bytes.append(size)
        part.requested_bytes.append(requested)
        part.state.append(state)
        part.stack.append(self._stacks.intern(newest.get("frames"), (*newest_place, "frames")))
        return (address + size) % 2**64


def _find_newest(fields: dict[object, object], place: Place) -> tuple[dict[object, object], Place]:
    """Return where the frames are: in the block, or, up to PyTorch 2.0, in the newest of its history."""
    history = fields.get("history")
    if history is None or "frames" in fields:
        return fields, place
    entries = expect_list(history, (*place, "history"))
    if not entries:
        return fields, place
    newest_place = (*place, "history", 0)
    return expect_dict(entries[0], newest_place), newest_place


def _read_state(fields: dict[object, object], place: Place) -> int:
    state = take(fields, "state", place)
    code = _STATES.get(state) if isinstance(state, str) else None
    if code is None:
        refuse((*place, "state"), f"expected one of {', '.join(map(str, _STATES))}, got {ascii(state)[:40]}")
    return code


def _list_columns(columns: BlockColumns | SegmentColumns) -> tuple["array[int]", ...]:
    return cast('tuple["array[int]", ...]', msgspec.structs.astuple(columns))
