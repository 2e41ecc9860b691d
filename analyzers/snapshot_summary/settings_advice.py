"""Advice that is computed: the job's own trace replayed through the allocator model under other settings.

The results are simulated and labelled so. They are given only where the replay under the job's own settings
meets what was recorded; `docs/verdicts.md` explains how the time before the trace is handled.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from ...engine.model.memory_snapshot import BlockState, MemorySnapshot, TraceAction, TraceColumns
from ...engine.units import MIB, format_bytes, format_share
from ..allocator_model import (
    AllocatorModelError,
    AllocatorOutOfMemoryError,
    AllocatorSettings,
    PrivateDeviceMemory,
    bisect_capacity,
)
from ..allocator_model.heap import RuledHeap
from ..allocator_model.replay import UNLIMITED_BYTES, read_statistics
from . import Timeline, trace_levels

# A trace is a ring: its oldest entry is seldom the job's first allocation. Every block that lived before is
# still known, though: it was freed within the trace, or it lives in the segments at the end. Unknown are the
# order in which those were allocated, and what was cached. So a replay begins by allocating them in order of
# address, and its outcome is compared with what was really reserved before any advice is given.
#
# Settings are compared by the least card on which the trace still runs. What it reserves on a card without an
# end says little: most of that is cache, which an allocator gives back where the card is full.


# Address of an event that stands for the whole cache given back: no block has it.
FLUSH_ADDRESS = -1


class ReplayEvent(NamedTuple):
    """One allocation, or one free where the size is 0, or the cache given back."""

    # Names the block for as long as it lives; or `FLUSH_ADDRESS`.
    address: int
    size_bytes: int
    stream: int


class LiveBlock(NamedTuple):
    """One block that lives in the segments at the end."""

    address: int
    # Requested bytes, where the file has them.
    size_bytes: int
    stream: int


class RecordedTrace(msgspec.Struct, frozen=True):
    # Blocks that lived before the first event, in order of address.
    before: tuple[ReplayEvent, ...]
    events: tuple[ReplayEvent, ...]
    # Older allocations and frees of the trace.
    events_left_out: int
    # Row of the trace where the events begin.
    first_row: int

    @property
    def flushes(self) -> int:
        """How often the cache was given back."""
        return sum(event.address == FLUSH_ADDRESS for event in self.events)

    @property
    def before_bytes(self) -> int:
        return sum(event.size_bytes for event in self.before)


def record_trace(
    snapshot: MemorySnapshot, trace: TraceColumns, *, most_events: int, has_flushes: bool = True
) -> RecordedTrace:
    """Return the newest events of a device and what lived before them.

    Args:
        has_flushes: Whether segments that were given back mean the whole cache; under some settings it is
            only a part.
    """
    # A block that waits for another stream is free once that is done; older files do not record it.
    is_completed = TraceAction.FREE_COMPLETED in trace.action
    free = TraceAction.FREE_COMPLETED if is_completed else TraceAction.FREE_REQUESTED
    rows = [row for row, action in enumerate(trace.action) if action in (TraceAction.ALLOC, free)]
    chosen = rows[-most_events:]
    first_row = chosen[0] if chosen else 0
    flushes = _find_flushes(trace, first_row) if has_flushes else []
    events: list[ReplayEvent] = []
    before: dict[int, ReplayEvent] = {}
    live: set[int] = set()
    for row in sorted([*chosen, *flushes]):
        if trace.action[row] in _GIVEN_BACK:
            events.append(ReplayEvent(FLUSH_ADDRESS, 0, 0))
            continue
        address = trace.address[row]
        size = trace.size_bytes[row]
        stream = trace.stream[row]
        if trace.action[row] == TraceAction.ALLOC:
            live.add(address)
            events.append(ReplayEvent(address, max(1, size), stream))
            continue
        if address not in live:
            before[address] = ReplayEvent(address, max(1, size), stream)
        live.discard(address)
        events.append(ReplayEvent(address, 0, stream))
    touched = {event.address for event in events}
    for block in list_live(snapshot, trace.device):
        if block.address not in live and block.address not in touched:
            before[block.address] = ReplayEvent(*block)
    return RecordedTrace(
        before=tuple(before[address] for address in sorted(before)),
        events=tuple(events),
        events_left_out=len(rows) - len(chosen),
        first_row=first_row,
    )


_GIVEN_BACK = (TraceAction.SEGMENT_FREE, TraceAction.SEGMENT_UNMAP)


def _find_flushes(trace: TraceColumns, first_row: int) -> list[int]:
    """Return the first row of each run of segments that were given back: the card was full, or the job
    emptied its cache.
    """
    found = []
    was_given_back = False
    for row in range(first_row, len(trace)):
        is_given_back = trace.action[row] in _GIVEN_BACK
        if is_given_back and not was_given_back:
            found.append(row)
        was_given_back = is_given_back
    return found


def list_live(snapshot: MemorySnapshot, device: int) -> Iterator[LiveBlock]:
    """Yield the live blocks of a device outside private pools."""
    segments = snapshot.segments
    blocks = snapshot.blocks
    for segment in range(len(segments)):
        if segments.device[segment] != device or is_private(snapshot, segment):
            continue
        for block in range(segments.first_block[segment], segments.first_block[segment + 1]):
            if blocks.state[block] == BlockState.INACTIVE:
                continue
            requested = blocks.requested_bytes[block]
            size = requested if requested > 0 else blocks.size_bytes[block]
            yield LiveBlock(blocks.address[block], size, segments.stream[segment])


def is_private(snapshot: MemorySnapshot, segment: int) -> bool:
    """Return whether a segment belongs to a private pool, such as that of a CUDA graph."""
    segments = snapshot.segments
    return (segments.pool_owner[segment], segments.pool_number[segment]) != (0, 0)


# Allocations and frees that are replayed under each settings; a second or two for all of them.
MOST_EVENTS = 20_000
LEAST_EVENTS = 100
# By how much the replay may miss what was recorded, as a share of it.
MOST_ERROR = 0.05
# Share of the reserved bytes that may be in private pools, which a replay cannot follow.
PRIVATE_SHARE = 0.05
# Share of the reserved bytes below which a saving does not count.
LEAST_SAVING = 0.01
# Segments are multiples of it.
SEGMENT_STEP_BYTES = 2 * MIB
CANDIDATES = (
    "expandable_segments:True",
    "max_split_size_mb:128",
    "max_split_size_mb:512",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
)
# Tried where the job limits its share of the card; without a limit PyTorch ignores it.
THRESHOLD = "garbage_collection_threshold:0.8"


class Candidate(msgspec.Struct, frozen=True):
    """The trace under other settings, as simulated."""

    # For `PYTORCH_ALLOC_CONF`; empty for the defaults.
    settings: str
    # Most that it reserves on a card of any size.
    peak_reserved_bytes: int
    # The least card, without context and libraries, on which it runs.
    least_card_bytes: int
    # Less of the least card than with the job's own settings; below 0 where it is more.
    saved_bytes: int


class SettingsAdvice(msgspec.Struct, frozen=True):
    """The least card of one device's trace under other allocator settings."""

    device: int
    # Settings of the job; empty for the defaults.
    own_settings: str
    # Why nothing can be advised, in a clause.
    reason: str | None
    events: int = 0
    # Older ones, beyond what is replayed.
    events_left_out: int = 0
    # Bytes that lived before the first event.
    before_bytes: int = 0
    # Most that was reserved during the events, as recorded.
    recorded_peak_bytes: int | None = None
    # The same, as simulated with the job's own settings.
    peak_reserved_bytes: int | None = None
    # The least card on which the trace runs with its own settings, as simulated.
    least_card_bytes: int | None = None
    # How often the cache was given back during the events.
    flushes: int = 0
    # The largest saving first.
    candidates: tuple[Candidate, ...] = ()
    # Always: only `recorded_peak_bytes` was measured.
    is_simulated: bool = True

    @property
    def is_replayed(self) -> bool:
        return self.peak_reserved_bytes is not None

    @property
    def sentences(self) -> tuple[str, ...]:
        if self.reason is not None:
            return (f"no advice on allocator settings: {self.reason}",)
        least = self.least_card_bytes or 0
        best = [one for one in self.candidates if one.saved_bytes >= LEAST_SAVING * least]
        said = [self._describe_candidate(one) for one in best]
        if not said:
            count = len(self.candidates)
            needed = format_bytes(self.least_card_bytes)
            said = [f"simulated: this trace needs {needed}, and not less with {count} other settings"]
        return (*said, self._describe_basis())

    def _describe_candidate(self, one: Candidate) -> str:
        needed = format_bytes(one.least_card_bytes)
        saved = format_bytes(one.saved_bytes)
        less = f"{saved} less (-{format_share(one.saved_bytes / (self.least_card_bytes or 1))})"
        settings = f"PYTORCH_ALLOC_CONF={one.settings}" if one.settings else "the default settings"
        return f"simulated: with {settings} this trace would run in {needed}, {less}"

    def _describe_basis(self) -> str:
        older = f", {self.events_left_out:,} older ones left out" if self.events_left_out else ""
        before = (
            f"; {format_bytes(self.before_bytes)} allocated earlier are assumed to be in order of address, "
            "and what was cached then is unknown"
            if self.before_bytes
            else ""
        )
        own = format_bytes(self.peak_reserved_bytes)
        recorded = format_bytes(self.recorded_peak_bytes)
        times = "once" if self.flushes == 1 else f"{self.flushes:,} times"
        flushed = f"; the cache was given back {times}" if self.flushes else ""
        return (
            f"{self.events:,} allocations and frees replayed{older}{before}{flushed}; with its own settings "
            f"the model reserves {own} on a card with room (recorded: {recorded}); sizes are without CUDA "
            "context and libraries"
        )


def advise_settings(
    snapshot: MemorySnapshot, device: int, *, most_events: int = MOST_EVENTS
) -> SettingsAdvice:
    """Replay the newest events of a device's recorded trace under other allocator settings."""
    own = read_own_settings(snapshot)
    refusal = SettingsAdvice(device=device, own_settings=own, reason=None)
    trace = next((trace for trace in snapshot.traces if trace.device == device), None)
    levels = None if trace is None else trace_levels(snapshot, device)
    if trace is None or levels is None:
        return msgspec.structs.replace(refusal, reason="the file has no trace of allocations")
    recorded = record_trace(snapshot, trace, most_events=most_events, has_flushes=_gives_all_back(own))
    reason = _refuse_trace(snapshot, device, recorded)
    if reason is not None:
        return msgspec.structs.replace(refusal, reason=reason)
    return _replay_all(refusal, recorded, _find_peak(levels, recorded.first_row))


def read_own_settings(snapshot: MemorySnapshot) -> str:
    """Return the settings a snapshot was made under, as in `PYTORCH_ALLOC_CONF`; empty for defaults."""
    found = dict(snapshot.settings)
    for key in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"):
        if found.get(key):
            return found[key]
    return "expandable_segments:True" if found.get("expandable_segments") == "True" else ""


def _gives_all_back(settings: str) -> bool:
    """Return whether segments are only given back all at once, as it is unless these settings are set."""
    return "garbage_collection_threshold" not in settings and "max_split_size_mb" not in settings


def _refuse_trace(snapshot: MemorySnapshot, device: int, recorded: RecordedTrace) -> str | None:
    count = len(recorded.events) - recorded.flushes
    if count < LEAST_EVENTS:
        return f"its trace has {count:,} allocations and frees; at least {LEAST_EVENTS} are needed"
    segments = snapshot.segments
    mine = [row for row in range(len(segments)) if segments.device[row] == device]
    total = sum(segments.total_bytes[row] for row in mine)
    private = sum(segments.total_bytes[row] for row in mine if is_private(snapshot, row))
    if private > PRIVATE_SHARE * total:
        return f"{format_bytes(private)} are in private pools, which the replay cannot follow"
    return None


def _find_peak(levels: Timeline, first_row: int) -> int:
    """Return the most that was reserved from a row of the trace on, and just before it."""
    before = int(levels.reserved_bytes[first_row - 1]) if first_row else levels.start_reserved_bytes
    return max(before, int(levels.reserved_bytes[first_row:].max()))


def _replay_all(refusal: SettingsAdvice, recorded: RecordedTrace, recorded_peak: int) -> SettingsAdvice:
    """Return the outcome under every settings, or a refusal where the model misses what was recorded."""
    own_text = refusal.own_settings
    try:
        own = AllocatorSettings.parse(own_text)
    except AllocatorModelError as error:
        return msgspec.structs.replace(refusal, reason=f"its own settings cannot be read: {error}")
    replayed = msgspec.structs.replace(
        refusal,
        events=len(recorded.events) - recorded.flushes,
        events_left_out=recorded.events_left_out,
        before_bytes=recorded.before_bytes,
        recorded_peak_bytes=recorded_peak,
        flushes=recorded.flushes,
    )
    peak = _replay(recorded, own).reserved_bytes
    if abs(peak - recorded_peak) > MOST_ERROR * recorded_peak:
        return msgspec.structs.replace(
            replayed, reason=_explain_miss(recorded, peak, recorded_peak), peak_reserved_bytes=peak
        )
    least = _find_least_card(recorded, own)
    texts = [text for text in (*CANDIDATES, "") if text != own_text]
    texts += (
        [f"{THRESHOLD},per_process_memory_fraction:{own.memory_fraction}"] if own.memory_fraction < 1 else []
    )
    found = []
    for text in texts:
        settings = AllocatorSettings.parse(text)
        reserved = _replay(recorded, settings).reserved_bytes
        needed = _find_least_card(recorded, settings)
        found.append(Candidate(text, reserved, needed, least - needed))
    candidates = tuple(sorted(found, key=lambda one: (-one.saved_bytes, one.settings)))
    return msgspec.structs.replace(
        replayed, peak_reserved_bytes=peak, least_card_bytes=least, candidates=candidates
    )


def _find_least_card(recorded: RecordedTrace, settings: AllocatorSettings) -> int:
    """Return the least bytes in which the trace runs; exact to half of the saving that counts."""
    free = _replay(recorded, settings)
    step = max(1, round(LEAST_SAVING / 2 * free.allocated_bytes / SEGMENT_STEP_BYTES)) * SEGMENT_STEP_BYTES

    def does_fit(capacity_bytes: int) -> bool:
        try:
            _replay(recorded, settings, capacity_bytes)
        except AllocatorOutOfMemoryError:
            return False
        return True

    return bisect_capacity(does_fit, free.allocated_bytes, free.reserved_bytes, step)


def _explain_miss(recorded: RecordedTrace, peak: int, recorded_peak: int) -> str:
    begins = (
        f", which starts with {format_bytes(recorded.before_bytes)} live and an unknown cache,"
        if recorded.before_bytes
        else ""
    )
    return (
        f"replayed with its own settings, this trace{begins} reserves {format_bytes(peak)} in the "
        f"model but {format_bytes(recorded_peak)} in the recording"
    )


class _Peaks(NamedTuple):
    allocated_bytes: int
    reserved_bytes: int


def _replay(
    recorded: RecordedTrace, settings: AllocatorSettings, capacity_bytes: int = UNLIMITED_BYTES
) -> _Peaks:
    """Return the most bytes that the trace allocates and reserves on a card.

    Raises:
        AllocatorOutOfMemoryError: It does not run on a card so small.
    """
    heap = RuledHeap(PrivateDeviceMemory(capacity_bytes), settings)
    live = {event.address: heap.take(event.size_bytes, event.stream) for event in recorded.before}
    take = heap.take
    give = heap.give
    for address, size_bytes, stream in recorded.events:
        if size_bytes:
            live[address] = take(size_bytes, stream)
        elif (block := live.pop(address, None)) is not None:
            give(block)
        elif address == FLUSH_ADDRESS:
            heap.supply.release_cached()
    stats = read_statistics(heap)
    return _Peaks(stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"])
