"""Blocks of a segment into columns: at once where all have today's keys, else one by one."""

from array import array

from ...errors import InputFileError
from ...model.memory_snapshot import UNMEASURED, BlockColumns, BlockState
from .places import (
    Place,
    expect_address,
    expect_dict,
    expect_int,
    expect_list,
    make_getter,
    make_int_getter,
    refuse,
    take,
)
from .stack_interning import StackInterner

_STATES: dict[object, int] = {
    "active_allocated": int(BlockState.ALLOCATED),
    "active_pending_free": int(BlockState.PENDING_FREE),
    "active_awaiting_free": int(BlockState.PENDING_FREE),
    "inactive": int(BlockState.INACTIVE),
}
_GET_ADDRESS, _GET_SIZE, _GET_REQUESTED = map(make_int_getter, ("address", "size", "requested_size"))
_GET_STATE, _GET_FRAMES = map(make_getter, ("state", "frames"))


def _make_columns() -> BlockColumns:
    return BlockColumns(
        address=array("Q"),
        size_bytes=array("q"),
        requested_bytes=array("q"),
        state=array("b"),
        stack=array("i"),
    )


class BlockCollector:
    """Takes the blocks of one segment after another."""

    def __init__(self, stacks: StackInterner) -> None:
        self.columns = _make_columns()
        self._stacks = stacks

    def add(self, blocks: list[object], segment_address: int, place: Place) -> int:
        """Add the blocks of a segment and return their total size in bytes.

        Args:
            blocks: As the file has them, in address order.
            segment_address: Where the first one starts, for files that give blocks no address.
            place: Where in the file they stand.

        Raises:
            InputFileError: One of them is not a block.
        """
        try:
            part = self._collect_at_once(blocks, place)
        except (InputFileError, KeyError, TypeError, OverflowError, ValueError):
            # One by one, other dialects are understood, and what is wrong is found and named.
            part = self._collect_one_by_one(blocks, segment_address, place)
        for whole, added in zip(_list_columns(self.columns), _list_columns(part), strict=True):
            whole.extend(added)
        return sum(part.size_bytes)

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

    def _collect_one_by_one(self, blocks: list[object], segment_address: int, place: Place) -> BlockColumns:
        part = _make_columns()
        address = segment_address
        for index, block in enumerate(blocks):
            address = self._add_block(part, block, address, (*place, index))
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
    """Return where the frames stand: in the block, or, up to PyTorch 2.0, in the newest of its history."""
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


def _list_columns(columns: BlockColumns) -> tuple["array[int]", ...]:
    return columns.address, columns.size_bytes, columns.requested_bytes, columns.state, columns.stack
