"""The rules of the allocator once more, as plainly as can be: lists and walks.

Nothing here is fast, and nothing is shared with the model but sizes and addresses, so that two readings of
the same rules can be held against each other.
"""

from vramscope.analyzers.allocator_model import AllocatorSettings
from vramscope.analyzers.allocator_model.memory import AddressSpace
from vramscope.analyzers.allocator_model.settings import choose_segment_size, round_request

from .naive_state import NaiveState, Piece, Pool, Segment

MIB = 1 << 20
DEFAULT: Pool = (0, 0)


class NaiveOutOfMemoryError(Exception):
    """The naive card has no room."""


class NaiveAllocator(NaiveState):
    """One process alone on a card, by the rules, without any index."""

    def __init__(self, settings: AllocatorSettings, capacity_bytes: int) -> None:
        super().__init__()
        self.settings = settings
        self.capacity = capacity_bytes
        self.limit: int | None = None
        self.addresses = AddressSpace()
        self.captures: list[Pool] = []
        self.released: set[Pool] = set()
        self.uses_of_pool: dict[Pool, int] = {}
        self.searches: dict[tuple[bool, Pool], int] = {}
        self.counts = {"retries": 0, "ooms": 0, "syncs": 0, "device_alloc": 0, "device_free": 0}

    # What the caller may do.

    def malloc(self, requested: int, stream: int = 0) -> int:
        if not self.captures:
            self.process_events()
        size = round_request(requested, self.settings.roundup_power2_divisions)
        pool = self.captures[-1] if self.captures else DEFAULT
        is_small = size <= MIB
        found = self._search(is_small, stream, pool, size)
        if found is None:
            found = self._obtain(is_small, stream, pool, size)
        segment, piece = found
        remaining = piece.size - size
        limit = self.settings.max_split_bytes
        if is_small or self.settings.expandable_segments:
            splits = remaining >= 512
        else:
            splits = remaining > MIB and (limit is None or size < limit)
        if splits:
            rest = Piece(piece.address + size, remaining, "free", birth=self._now(segment))
            segment.pieces.insert(segment.pieces.index(piece) + 1, rest)
            piece.size = size
        piece.state, piece.requested, piece.uses = "allocated", requested, set()
        self.observe()
        return piece.address

    def free(self, address: int) -> None:
        segment, piece = self._at(address)
        if piece.uses:
            piece.state = "awaiting"
            self.waiting.append(piece)
            self.observe()
        else:
            self._complete(segment, piece)

    def record_stream(self, address: int, stream: int) -> None:
        segment, piece = self._at(address)
        if stream != segment.stream:
            piece.uses.add(stream)

    def finish(self, stream: int | None) -> None:
        for piece in self.waiting:
            piece.uses -= set(piece.uses) if stream is None else {stream}

    def process_events(self) -> None:
        for piece in list(self.waiting):
            if not piece.uses:
                self._complete_waiting(piece)

    def empty_cache(self) -> None:
        if not self.captures:
            self.counts["syncs"] += 1
            for piece in list(self.waiting):
                self._complete_waiting(piece)
        for segment in list(self.segments):
            if segment.pool in self.released or (segment.pool == DEFAULT and not self.captures):
                self._shrink(segment)

    def begin_pool(self, pool: Pool) -> None:
        self.uses_of_pool[pool] = self.uses_of_pool.get(pool, 0) + 1
        self.captures.append(pool)

    def end_pool(self, pool: Pool) -> None:
        self.captures.remove(pool)

    def release_pool(self, pool: Pool) -> None:
        self.uses_of_pool[pool] -= 1
        if not self.uses_of_pool[pool]:
            self.released.add(pool)

    # What there is.

    def _at(self, address: int) -> tuple[Segment, Piece]:
        return next((s, p) for s, p in self.find("allocated") if p.address == address)

    def _now(self, segment: Segment) -> int:
        return self.searches.get((segment.is_small, segment.pool), 0)

    # How a request is served.

    def _search(self, is_small: bool, stream: int, pool: Pool, size: int) -> tuple[Segment, Piece] | None:
        settings = self.settings
        if settings.garbage_collection_threshold > 0 and self.limit is not None:
            self.searches[is_small, pool] = self.searches.get((is_small, pool), 0) + 1
        found = sorted(
            (
                (s, p)
                for s, p in self.find("free")
                if (s.is_small, s.stream, s.pool) == (is_small, stream, pool) and p.size >= size
            ),
            key=lambda pair: (pair[1].size, pair[1].address),
        )
        while len(found) > 1 and found[0][0].page and self._reach(*found[1]) < self._reach(*found[0]):
            del found[0]
        if not found:
            return None
        limit, piece = settings.max_split_bytes, found[0][1]
        if limit is not None and size < limit <= piece.size:
            return None
        if limit is not None and size >= limit and piece.size >= size + settings.max_non_split_rounding_bytes:
            return None
        return found[0]

    @staticmethod
    def _reach(segment: Segment, piece: Piece) -> int:
        behind = segment.pieces[segment.pieces.index(piece) + 1 :][:1]
        return piece.size + sum(p.size for p in behind if p.state == "unmapped")

    def _obtain(self, is_small: bool, stream: int, pool: Pool, size: int) -> tuple[Segment, Piece]:
        request = (is_small, stream, pool, size)
        self._collect_garbage()
        found = self._grow(*request)
        if found is None and self._release_oversize(*request):
            found = self._grow(*request)
        if found is None and not self.captures:
            self.empty_cache()
            self.counts["retries"] += 1
            found = self._grow(*request)
        if found is None:
            self.counts["ooms"] += 1
            raise NaiveOutOfMemoryError
        return found

    def _grow(self, is_small: bool, stream: int, pool: Pool, size: int) -> tuple[Segment, Piece] | None:
        length = choose_segment_size(size, self.settings.large_segment_bytes)
        if self.limit is not None and self.reserved + length > self.limit:
            return None
        if self.settings.expandable_segments:
            return self._expand(is_small, stream, pool, size)
        if self.reserved + length > self.capacity:
            return None
        piece = Piece(self.addresses.take(length), length, "free")
        segment = Segment(is_small, stream, pool, [piece])
        self.segments.append(segment)
        self.counts["device_alloc"] += 1
        self.observe()
        return segment, piece

    def _complete_waiting(self, piece: Piece) -> None:
        self.waiting.remove(piece)
        self._complete(next(s for s, p in self.find("awaiting") if p is piece), piece)

    def _complete(self, segment: Segment, piece: Piece) -> None:
        piece.state, piece.birth = "free", self._now(segment)
        segment.join(piece)
        self.observe()

    # How memory goes back.

    def _shrink(self, segment: Segment) -> None:
        if segment.page:
            for piece in [p for p in segment.pieces if p.state == "free"]:
                self._unmap(segment, piece)
        elif segment.is_cached:
            self._release(segment)

    def _release(self, segment: Segment) -> None:
        self.segments.remove(segment)
        self.addresses.give_back(segment.start, segment.pieces[0].size)
        self.counts["device_free"] += 1
        self.observe()

    def _release_oversize(self, is_small: bool, stream: int, pool: Pool, size: int) -> bool:
        limit = self.settings.max_split_bytes
        if limit is None:
            return False
        least = max(size, limit)
        cached = sorted(
            (
                (s, p)
                for s, p in self.find("free")
                if (s.is_small, s.stream, s.pool) == (is_small, stream, pool)
            ),
            key=lambda pair: (pair[1].size, pair[1].address),
        )
        enough = [pair for pair in cached if pair[1].size >= least]
        if enough and not enough[0][0].page:
            self._release(enough[0][0])
            return True
        released = 0
        for segment, piece in reversed([pair for pair in cached if limit <= pair[1].size < least]):
            if released < least and not segment.page:
                released += piece.size
                self._release(segment)
        return released >= least

    def _collect_garbage(self) -> None:
        if self.settings.garbage_collection_threshold <= 0 or self.limit is None:
            return
        target = self.reserved - int(self.settings.garbage_collection_threshold * self.limit)
        while target > 0:
            cached = [s for s in self.segments if not s.is_small and s.pool == DEFAULT and s.is_cached]
            ages = [self._now(s) - s.pieces[0].birth for s in cached]
            if not cached:
                return
            mean = sum(ages) / len(ages)
            for segment, age in zip(cached, ages, strict=True):
                if age >= mean:
                    target -= segment.pieces[0].size
                    self._release(segment)

    # Expandable ranges.

    def _expand(self, is_small: bool, stream: int, pool: Pool, size: int) -> tuple[Segment, Piece] | None:
        segment, at = self._find_room(is_small, stream, pool, size)
        piece = segment.pieces[at]
        if piece.state == "unmapped":
            mapped = self._map(segment, piece, min(piece.size, size))
            if mapped is None:
                return None
            piece = mapped
        while piece.size < size:
            behind = segment.pieces[segment.pieces.index(piece) + 1]
            mapped = self._map(segment, behind, min(size - piece.size, behind.size))
            if mapped is None:
                return None
            piece = mapped
        return segment, piece

    def _find_room(self, is_small: bool, stream: int, pool: Pool, size: int) -> tuple[Segment, int]:
        ranges = [
            s for s in self.segments if s.page and (s.is_small, s.stream, s.pool) == (is_small, stream, pool)
        ]
        for segment in sorted(ranges, key=lambda s: s.start):
            for at, piece in enumerate(segment.pieces):
                if piece.state != "unmapped":
                    continue
                first = at - 1 if at and segment.pieces[at - 1].state == "free" else at
                room = 0
                for candidate in segment.pieces[first:]:
                    if candidate.state not in {"free", "unmapped"}:
                        break
                    room += candidate.size
                if room >= size:
                    return segment, first
        page = 2 * MIB if is_small else self.settings.large_segment_bytes
        length = -(-(self.capacity + self.capacity // 8) // page) * page
        whole = Piece(self.addresses.take(length), length, "unmapped")
        self.segments.append(Segment(is_small, stream, pool, [whole], page))
        return self.segments[-1], 0

    def _map(self, segment: Segment, piece: Piece, size: int) -> Piece | None:
        length = -(-size // segment.page) * segment.page
        if self.reserved + length > self.capacity:
            return None
        mapped = Piece(piece.address, length, "free", birth=self._now(segment))
        at = segment.pieces.index(piece)
        segment.pieces.insert(at, mapped)
        piece.address += length
        piece.size -= length
        if not piece.size:
            segment.pieces.remove(piece)
        self.counts["device_alloc"] += 1
        joined = segment.join(mapped)
        self.observe()
        return joined

    def _unmap(self, segment: Segment, piece: Piece) -> None:
        # Regions start on a multiple of 2 MiB, and their pages are counted from there.
        start = segment.start + -(-(piece.address - segment.start) // segment.page) * segment.page
        end = segment.start + (piece.address + piece.size - segment.start) // segment.page * segment.page
        if start >= end:
            return
        parts = [
            Piece(piece.address, start - piece.address, "free", birth=piece.birth),
            Piece(start, end - start, "unmapped"),
            Piece(end, piece.address + piece.size - end, "free", birth=piece.birth),
        ]
        at = segment.pieces.index(piece)
        segment.pieces[at : at + 1] = [part for part in parts if part.size]
        segment.join(parts[1])
        self.counts["device_free"] += 1
        self.observe()
        if [p.state for p in segment.pieces] == ["unmapped"]:
            self.segments.remove(segment)
            self.addresses.give_back(segment.start, segment.pieces[0].size)
