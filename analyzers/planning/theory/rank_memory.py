"""What one rank holds, part by part and moment by moment."""

import msgspec


class MemoryPart(msgspec.Struct, frozen=True, gc=False):
    """One part of a rank's memory."""

    group: str
    """`states`, `activations`, `loss`, `communication`, `libraries` or `rounding`."""
    name: str
    size_bytes: int


class Moment(msgspec.Struct, frozen=True):
    """One moment of a training step."""

    name: str
    """`between steps`, `backward`, `loss`, or `reduction`: of a layer's gradients to their shards."""
    parts: tuple[MemoryPart, ...]

    @property
    def total_bytes(self) -> int:
        """Return the bytes that are allocated then."""
        return sum(part.size_bytes for part in self.parts)

    def sum_group(self, group: str) -> int:
        """Return the bytes of one group of parts."""
        return sum(part.size_bytes for part in self.parts if part.group == group)


class RankMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of all ranks of one pipeline stage: they hold the same."""

    stage: int
    """Pipeline rank, from 0."""
    layers: tuple[int, ...]
    """Which layers it holds, from 0."""
    parameters: int
    """Parameters on one rank, sharding over data ranks aside."""
    in_flight: int
    """Most pieces of forward work held at once: a micro-batch in one piece of the rank's layers."""
    moments: tuple[Moment, ...]

    @property
    def allocated_bytes(self) -> int:
        """Return what stays allocated between steps."""
        return self.moments[0].total_bytes

    @property
    def peak(self) -> Moment:
        """Return the moment at which most is allocated; the first of equals."""
        return max(self.moments, key=lambda moment: moment.total_bytes)

    @property
    def peak_bytes(self) -> int:
        """Return the most that is allocated."""
        return self.peak.total_bytes


def make_parts(group: str, sizes: dict[str, int]) -> list[MemoryPart]:
    """Return parts of one group, those of no bytes left out."""
    return [MemoryPart(group, name, size) for name, size in sizes.items() if size]
