"""Advice that is computed: the job's own trace replayed through the allocator model under other settings.

The results are simulated and labelled so. They are given only where the replay under the job's own settings
meets what was recorded; `docs/verdicts.md` explains how the time before the trace is handled.
"""

import math
from typing import NamedTuple

import msgspec

from ...engine.model.memory_snapshot import MemorySnapshot
from ...engine.units import format_bytes, format_share
from ..allocator_model import (
    AllocatorModelError,
    AllocatorOutOfMemoryError,
    AllocatorSettings,
    PrivateDeviceMemory,
    bisect_capacity,
)
from ..allocator_model.heap import RuledHeap
from ..allocator_model.replay import UNLIMITED_BYTES, read_statistics
from . import trace_levels
from .recorded_trace import (
    EMPTIED_ADDRESS,
    FAILED_ADDRESS,
    SEGMENT_STEP_BYTES,
    CapacitySource,
    RecordedTrace,
    is_private,
    record_trace,
)

# Settings are compared by the least capacity with which the trace still runs, and by what happens with the
# capacity that the allocator had. What a trace reserves on a card without an end says little: most of that is
# cache, which an allocator gives back where the card is full.

# Allocations and frees that are replayed under each settings; a second or two for all of them.
MOST_EVENTS = 20_000
LEAST_EVENTS = 100
# By how much the replay may miss what was recorded, as a share of it.
MOST_ERROR = 0.05
# By how many times the model may miss how often cached memory was given back, or by half of them.
MOST_TIMES_MISSED = 2
# Share of the reserved bytes that may be in private pools, which a replay cannot follow.
PRIVATE_SHARE = 0.05
# Share of the reserved bytes below which a saving does not count.
LEAST_SAVING = 0.01
# Settings that are described in words, the best.
MOST_SENTENCES = 3
# How many times less cached memory has to be given back for that alone to be an advantage.
LEAST_TIMES_LESS = 3
CANDIDATES = (
    "expandable_segments:True",
    "max_split_size_mb:128",
    "max_split_size_mb:512",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
)
# Tried where the job limits its share of the card; without a limit PyTorch ignores it.
THRESHOLD = "garbage_collection_threshold:0.8"


class CardOutcome(msgspec.Struct, frozen=True):
    """What happens to a trace with a given capacity, as simulated."""

    # Whether every allocation that succeeded in the recording finds room.
    does_run: bool
    # Most that it reserves; None where it does not run.
    peak_reserved_bytes: int | None = None
    # How often cached memory is given back to make room for a request; None where it does not run.
    times_given_back: int | None = None
    # Requests that failed in the recording and fail here, too; None where it does not run.
    failed_requests: int | None = None


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
    # On the card of the advice; None where its capacity is unknown.
    card: CardOutcome | None = None


class SettingsAdvice(msgspec.Struct, frozen=True):
    """One device's trace under other allocator settings: its least card, and what happens on its own."""

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
    # The same, as simulated with the job's own settings, and the capacity where the recording shows one.
    peak_reserved_bytes: int | None = None
    # The least card on which the trace runs with its own settings, as simulated.
    least_card_bytes: int | None = None
    # How often cached memory was given back during the events, as recorded.
    flushes: int = 0
    # How many of these made room for a request.
    times_given_back: int = 0
    # Requests that failed, as recorded.
    failed_requests: int = 0
    # What the allocator can reserve on the card that settings are compared on; None where it is unknown.
    capacity_bytes: int | None = None
    # "given" by the caller; from the recording: "oom", memory that was free at an out-of-memory error, or
    # "full", requests for which cached memory was given back; "device", all of a simulated card.
    capacity_source: CapacitySource | None = None
    # On that card with the job's own settings.
    card: CardOutcome | None = None
    # The largest saving first.
    candidates: tuple[Candidate, ...] = ()
    # Always: only what is called recorded was measured.
    is_simulated: bool = True

    @property
    def is_replayed(self) -> bool:
        return self.peak_reserved_bytes is not None

    @property
    def sentences(self) -> tuple[str, ...]:
        if self.reason is not None:
            return (f"no advice on allocator settings: {self.reason}",)
        better = [one for one in self.candidates if self._is_better(one)]
        said = [self._describe_candidate(one) for one in better[:MOST_SENTENCES]]
        if not said:
            count = len(self.candidates)
            needed = format_bytes(self.least_card_bytes)
            said = [
                f"simulated: {self._name_trace()} needs {needed}, and not less with {count} other settings"
            ]
        on_card = [self._describe_card(self.card)] if self.card is not None and self._is_card_tight else []
        return (*on_card, *said, self._describe_basis())

    @property
    def _is_card_tight(self) -> bool:
        """Whether the card makes a difference: it was asked about, or it gets full with the own settings."""
        card = self.card
        return card is not None and (
            self.capacity_source == "given"
            or not card.does_run
            or card.times_given_back != 0
            or card.failed_requests != 0
        )

    def _is_better(self, one: Candidate) -> bool:
        if one.saved_bytes >= LEAST_SAVING * (self.least_card_bytes or 0):
            return True
        own = self.card
        if own is None or one.card is None or not one.card.does_run:
            return False
        return (
            not own.does_run
            or (one.card.failed_requests or 0) < (own.failed_requests or 0)
            or (own.times_given_back or 0) - (one.card.times_given_back or 0) >= LEAST_TIMES_LESS
        )

    def _name_trace(self) -> str:
        """Return the trace as a subject: the least card has no room for requests that failed."""
        if not self.failed_requests:
            return "this trace"
        left_out = "request" if self.failed_requests == 1 else f"{self.failed_requests:,} requests"
        return f"this trace, without the {left_out} that failed,"

    def _describe_candidate(self, one: Candidate) -> str:
        needed = format_bytes(one.least_card_bytes)
        settings = f"PYTORCH_ALLOC_CONF={one.settings}" if one.settings else "the default settings"
        less = ""
        if one.saved_bytes > 0:
            saved = format_bytes(one.saved_bytes)
            less = f", {saved} less (-{format_share(one.saved_bytes / (self.least_card_bytes or 1))})"
        return (
            f"simulated: with {settings} {self._name_trace()} would run in {needed}{less}"
            f"{self._compare_on_card(one.card)}"
        )

    def _compare_on_card(self, found: CardOutcome | None) -> str:
        """Return how settings do on the card, in a clause; nothing where the card makes no difference."""
        if found is None or not self._is_card_tight:
            return ""
        capacity = format_bytes(self.capacity_bytes)
        if not found.does_run:
            return f"; with {capacity} it would not run"
        given = f"; with {capacity} cache would be given back {_count_times(found.times_given_back or 0)}"
        if not self.failed_requests:
            return given
        return f"{given}, and {_describe_failed(found.failed_requests or 0, self.failed_requests)}"

    def _describe_card(self, own: CardOutcome) -> str:
        capacity = format_bytes(self.capacity_bytes)
        start = (
            f"simulated: with {capacity} for the allocator ({self._describe_source()}) and its own settings"
        )
        if not own.does_run:
            lacking = format_bytes((self.least_card_bytes or 0) - (self.capacity_bytes or 0))
            trace = self._name_trace() if self.failed_requests else "it"
            return f"{start} {trace} does not run; it needs {lacking} more"
        failed = (
            f"; {_describe_failed(own.failed_requests or 0, self.failed_requests)}"
            if self.failed_requests
            else ""
        )
        recorded = "" if self.capacity_source == "given" else f" (recorded: {self.times_given_back:,})"
        return (
            f"{start} cache is given back {_count_times(own.times_given_back or 0)}{recorded}, and at most "
            f"{format_bytes(own.peak_reserved_bytes)} are reserved{failed}"
        )

    def _describe_source(self) -> str:
        match self.capacity_source:
            case "given":
                return "as given"
            case "oom":
                return "reserved and free at the out-of-memory error"
            case "full":
                return "where requests of the recording found no room"
            case _:
                return "all of the simulated card"

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
        flushed = f"; cache was given back {_count_times(self.flushes)}" if self.flushes else ""
        where = "" if self.times_given_back or self.failed_requests else " on a card with room"
        return (
            f"{self.events:,} allocations and frees replayed{older}{before}{flushed}; with its own settings "
            f"the model reserves {own}{where} (recorded: {recorded}); sizes are without CUDA "
            "context and libraries"
        )


def _count_times(times: int) -> str:
    return "once" if times == 1 else f"{times:,} times"


def _describe_failed(failing: int, recorded: int) -> str:
    if recorded == 1:
        return "the request that failed fails again" if failing else "the request that failed is served"
    return f"{failing:,} of {recorded:,} requests that failed fail again"


def advise_settings(
    snapshot: MemorySnapshot,
    device: int,
    *,
    capacity_bytes: int | None = None,
    most_events: int = MOST_EVENTS,
) -> SettingsAdvice:
    """Replay the newest events of a device's recorded trace under other allocator settings.

    Args:
        capacity_bytes: What the allocator can reserve on the card that settings are compared on; None for
            what the recording shows, if it does.
    """
    own_text = read_own_settings(snapshot)
    refusal = SettingsAdvice(device=device, own_settings=own_text, reason=None)
    trace = next((trace for trace in snapshot.traces if trace.device == device), None)
    levels = None if trace is None else trace_levels(snapshot, device)
    if trace is None or levels is None:
        return msgspec.structs.replace(refusal, reason="the file has no trace of allocations")
    try:
        own = AllocatorSettings.parse(own_text)
    except AllocatorModelError as error:
        return msgspec.structs.replace(refusal, reason=f"its own settings cannot be read: {error}")
    if own.memory_fraction <= 0:
        return msgspec.structs.replace(refusal, reason="its own settings leave it no memory")
    refused = refusal
    # Where the model cannot follow the trace on the card that it seems to show, the card is left unknown.
    for is_card_constant in (True, False):
        recorded = record_trace(
            snapshot, trace, levels, own=own, most_events=most_events, is_card_constant=is_card_constant
        )
        reason = _refuse_trace(snapshot, device, recorded)
        if reason is not None:
            return msgspec.structs.replace(refusal, reason=reason)
        advice = _replay_own(_describe_recorded(refusal, recorded), recorded, own)
        if advice.reason is None:
            return _compare(advice, recorded, own, capacity_bytes)
        if is_card_constant:
            refused = advice
        if recorded.card.source not in {"oom", "full"}:
            break
    return refused


def read_own_settings(snapshot: MemorySnapshot) -> str:
    """Return the settings a snapshot was made under, as in `PYTORCH_ALLOC_CONF`; empty for defaults."""
    found = dict(snapshot.settings)
    for key in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"):
        if found.get(key):
            return found[key]
    return "expandable_segments:True" if found.get("expandable_segments") == "True" else ""


def _refuse_trace(snapshot: MemorySnapshot, device: int, recorded: RecordedTrace) -> str | None:
    count = recorded.allocations_and_frees
    if count < LEAST_EVENTS:
        return f"its trace has {count:,} allocations and frees; at least {LEAST_EVENTS} are needed"
    segments = snapshot.segments
    mine = [row for row in range(len(segments)) if segments.device[row] == device]
    total = sum(segments.total_bytes[row] for row in mine)
    private = sum(segments.total_bytes[row] for row in mine if is_private(snapshot, row))
    if private > PRIVATE_SHARE * total:
        return f"{format_bytes(private)} are in private pools, which the replay cannot follow"
    return None


def _describe_recorded(refusal: SettingsAdvice, recorded: RecordedTrace) -> SettingsAdvice:
    return msgspec.structs.replace(
        refusal,
        events=recorded.allocations_and_frees,
        events_left_out=recorded.events_left_out,
        before_bytes=recorded.before_bytes,
        recorded_peak_bytes=recorded.peak_reserved_bytes,
        flushes=recorded.times_given_back,
        times_given_back=recorded.card.full,
        failed_requests=recorded.failed,
    )


def _replay_own(advice: SettingsAdvice, recorded: RecordedTrace, own: AllocatorSettings) -> SettingsAdvice:
    """Add the outcome with the job's own settings, or the reason where the model misses what was recorded."""
    least = _find_least_card(recorded, own)
    # On a card that is a little too small for the model the trace is replayed with what the model needs.
    capacity = max(recorded.card.capacity_bytes or UNLIMITED_BYTES, least)
    outcome = _replay(recorded, own, capacity)
    peak = outcome.reserved_bytes
    recorded_peak = recorded.peak_reserved_bytes
    if abs(peak - recorded_peak) > MOST_ERROR * recorded_peak:
        return msgspec.structs.replace(
            advice, reason=_explain_miss(recorded, peak, recorded_peak), peak_reserved_bytes=peak
        )
    times, recorded_times = outcome.times_given_back, recorded.card.full
    is_card_known = recorded.card.source in {"oom", "full"}
    if is_card_known and abs(times - recorded_times) > max(MOST_TIMES_MISSED, recorded_times / 2):
        reason = (
            f"replayed with its own settings, cache is given back {_count_times(times)} in the model but "
            f"{_count_times(recorded_times)} in the recording"
        )
        return msgspec.structs.replace(advice, reason=reason, peak_reserved_bytes=peak)
    return msgspec.structs.replace(advice, peak_reserved_bytes=peak, least_card_bytes=least)


def _compare(
    advice: SettingsAdvice, recorded: RecordedTrace, own: AllocatorSettings, capacity_bytes: int | None
) -> SettingsAdvice:
    """Add the outcome under every settings."""
    least = advice.least_card_bytes or 0
    capacity, source = capacity_bytes, recorded.card.source
    if capacity is not None:
        source = "given"
    elif recorded.card.capacity_bytes is not None:
        capacity = max(recorded.card.capacity_bytes, least)
    fraction = f",per_process_memory_fraction:{own.memory_fraction}"
    texts = [text for text in (*CANDIDATES, "") if text != advice.own_settings]
    texts += [THRESHOLD + fraction] if own.memory_fraction < 1 else []
    found = []
    for text in texts:
        settings = AllocatorSettings.parse(text)
        reserved = _replay(recorded, settings).reserved_bytes
        needed = _find_least_card(recorded, settings)
        found.append(
            Candidate(text, reserved, needed, least - needed, _try_card(recorded, settings, capacity))
        )
    return msgspec.structs.replace(
        advice,
        capacity_bytes=capacity,
        capacity_source=source,
        card=_try_card(recorded, own, capacity),
        candidates=tuple(sorted(found, key=lambda one: (-one.saved_bytes, one.settings))),
    )


def _find_least_card(recorded: RecordedTrace, settings: AllocatorSettings) -> int:
    """Return the least capacity with which the trace runs; exact to half of the saving that counts."""
    free = _replay(recorded, settings)
    step = max(1, round(LEAST_SAVING / 2 * free.allocated_bytes / SEGMENT_STEP_BYTES)) * SEGMENT_STEP_BYTES

    def does_fit(capacity_bytes: int) -> bool:
        try:
            _replay(recorded, settings, capacity_bytes)
        except AllocatorOutOfMemoryError:
            return False
        return True

    return bisect_capacity(does_fit, free.allocated_bytes, free.reserved_bytes, step)


def _try_card(
    recorded: RecordedTrace, settings: AllocatorSettings, capacity_bytes: int | None
) -> CardOutcome | None:
    if capacity_bytes is None:
        return None
    try:
        outcome = _replay(recorded, settings, capacity_bytes)
    except AllocatorOutOfMemoryError:
        return CardOutcome(does_run=False)
    return CardOutcome(True, outcome.reserved_bytes, outcome.times_given_back, outcome.failed_requests)


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


class _Outcome(NamedTuple):
    allocated_bytes: int
    reserved_bytes: int
    times_given_back: int
    failed_requests: int


def _replay(
    recorded: RecordedTrace, settings: AllocatorSettings, capacity_bytes: int = UNLIMITED_BYTES
) -> _Outcome:
    """Return the most bytes that the trace allocates and reserves on a card, and how often that is full.

    Requests that failed are tried again where the card has an end, and freed at once.

    Args:
        capacity_bytes: What the allocator can reserve. With a memory fraction the card is larger, so that
            settings with and without one are compared with the same capacity.

    Raises:
        AllocatorOutOfMemoryError: It does not run on a card so small.
    """
    card = PrivateDeviceMemory(math.ceil(capacity_bytes / settings.memory_fraction))
    heap = RuledHeap(card, settings)
    live = {event.address: heap.take(event.size_bytes, event.stream) for event in recorded.before}
    take = heap.take
    give = heap.give
    failed = 0
    for address, size_bytes, stream in recorded.events:
        if address == FAILED_ADDRESS:
            if capacity_bytes < UNLIMITED_BYTES:
                try:
                    give(take(size_bytes, stream))
                except AllocatorOutOfMemoryError:
                    failed += 1
        elif size_bytes:
            live[address] = take(size_bytes, stream)
        elif (block := live.pop(address, None)) is not None:
            give(block)
        elif address == EMPTIED_ADDRESS:
            heap.supply.release_cached()
    stats = read_statistics(heap)
    return _Outcome(
        stats["allocated_bytes.all.peak"],
        stats["reserved_bytes.all.peak"],
        heap.supply.counters.times_given_back,
        failed,
    )
