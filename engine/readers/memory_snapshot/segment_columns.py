"""Segments into columns, in every dialect since PyTorch 1.13."""

from array import array

from ...model.memory_snapshot import BlockColumns, SegmentColumns
from .block_columns import BlockCollector
from .places import Place, expect_address, expect_dict, expect_int, expect_list, name_type, refuse, take
from .stack_interning import StackInterner

_MOST_INT32 = 2**31 - 1


class SegmentCollector:
    """Takes the segments of a snapshot, and with each its blocks."""

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
        """The blocks of the segments so far."""
        return self._blocks.columns

    @property
    def notes(self) -> list[str]:
        """What is amiss in the segments so far."""
        notes = []
        if self._uneven_count:
            noun = "segment has" if self._uneven_count == 1 else "segments have"
            notes.append(f"{self._uneven_count:,} {noun} blocks that do not add up to the size")
        if self._untyped_count:
            notes.append(
                "the segments have no type, as where PyTorch made the snapshot from a profile: reserved, "
                "free and stranded are then ranges of addresses, not memory of a device"
            )
        return notes

    def add(self, segment: object, place: Place) -> None:
        """Add one segment.

        Raises:
            InputFileError: It is not a segment.
        """
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
        self._add_blocks(fields, address, total_bytes, place)

    def _add_blocks(self, fields: dict[object, object], address: int, total_bytes: int, place: Place) -> None:
        blocks_place = (*place, "blocks")
        blocks = expect_list(take(fields, "blocks", place), blocks_place)
        if blocks and id(blocks) in self._lists_seen:
            # A few bytes could otherwise name the same million blocks a million times.
            refuse(blocks_place, "the same list of blocks stands in an earlier segment; expected its own")
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
