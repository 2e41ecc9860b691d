"""What the naive allocator holds: segments as lists of pieces, and statistics counted from scratch."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

State = Literal["allocated", "awaiting", "free", "unmapped"]
Pool = tuple[int, int]


@dataclass(eq=False)
class Piece:
    """A stretch of a segment."""

    address: int
    size: int
    state: State
    requested: int = 0
    uses: set[int] = field(default_factory=set)
    birth: int = 0


@dataclass(eq=False)
class Segment:
    """What the device gave in one go, or an expandable range."""

    is_small: bool
    stream: int
    pool: Pool
    pieces: list[Piece]
    page: int = 0

    @property
    def start(self) -> int:
        return self.pieces[0].address

    @property
    def is_cached(self) -> bool:
        """Whether nothing of it is in use."""
        return not self.page and [piece.state for piece in self.pieces] == ["free"]

    def join(self, piece: Piece) -> Piece:
        """Merge a piece with neighbours of its own state."""
        at = self.pieces.index(piece)
        for other in (at + 1, at - 1):
            if 0 <= other < len(self.pieces) and self.pieces[other].state == piece.state:
                piece.size += self.pieces[other].size
                piece.address = min(piece.address, self.pieces[other].address)
                self.pieces[other] = piece
        self.pieces[:] = [p for at, p in enumerate(self.pieces) if p not in self.pieces[:at]]
        return piece


class NaiveState:
    """Segments, and what there is to say of them."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.waiting: list[Piece] = []
        """Pieces that wait for other streams, in the order in which they were freed."""
        self.stats: dict[tuple[str, str], list[int]] = {}
        self.observe()

    def find(self, state: State) -> Iterator[tuple[Segment, Piece]]:
        """Yield the pieces in a state."""
        return ((s, p) for s in self.segments for p in s.pieces if p.state == state)

    @property
    def reserved(self) -> int:
        return sum(p.size for s in self.segments for p in s.pieces if p.state != "unmapped")

    def describe(self) -> list[tuple[int, int, str, int]]:
        """List address, size, state and requested bytes of all that is mapped, in order."""
        names = {"allocated": "active_allocated", "awaiting": "active_pending_free", "free": "inactive"}
        return sorted(
            (p.address, p.size, names[p.state], 0 if p.state == "free" else p.requested)
            for s in self.segments
            for p in s.pieces
            if p.state != "unmapped"
        )

    def observe(self) -> None:
        """Count everything, and take what rose or fell since the last time into the sums."""
        for name, kind, value in self._count():
            stat = self.stats.setdefault((name, kind), [0, 0, 0, 0])
            change = value - stat[0]
            stat[0] = value
            stat[1] = max(stat[1], value)
            stat[2] += max(change, 0)
            stat[3] += max(-change, 0)

    def _count(self) -> Iterator[tuple[str, str, int]]:
        for kind in ("all", "small_pool", "large_pool"):
            segments = [s for s in self.segments if kind == "all" or s.is_small == (kind == "small_pool")]
            live = [p for s in segments for p in s.pieces if p.state == "allocated"]
            active = [*live, *(p for s in segments for p in s.pieces if p.state == "awaiting")]
            stranded = [
                p
                for s in segments
                for p in s.pieces
                if p.state == "free" and len(s.pieces) > 1 and not s.page
            ]
            yield "allocation", kind, len(live)
            yield "allocated_bytes", kind, sum(p.size for p in live)
            yield "active", kind, len(active)
            yield "active_bytes", kind, sum(p.size for p in active)
            yield "requested_bytes", kind, sum(p.requested for p in active)
            yield "inactive_split", kind, len(stranded)
            yield "inactive_split_bytes", kind, sum(p.size for p in stranded)
            yield "segment", kind, sum(not s.page for s in segments)
            mapped = sum(p.size for s in segments for p in s.pieces if p.state != "unmapped")
            yield "reserved_bytes", kind, mapped
