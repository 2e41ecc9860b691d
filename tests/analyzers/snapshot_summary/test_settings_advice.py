"""Advice from a replay of the job's own trace: right by the model, and refused where it would be a guess."""

import pytest

from tests.engine.files.snapshots import snapshot
from vramscope.analyzers.allocator_model import (
    AllocatorOutOfMemoryError,
    AllocatorSettings,
    CachingAllocator,
    PrivateDeviceMemory,
)
from vramscope.analyzers.snapshot_summary.settings_advice import SettingsAdvice, advise_settings
from vramscope.engine.files.memory_snapshot import convert_tree
from vramscope.engine.model.memory_snapshot import MemorySnapshot
from vramscope.engine.units import GIB, MIB
from vramscope.exporters.inspect.text import describe_memory_file

from ..fragmentation.jobs import Job, vary

LENGTHS = (4000, 12000)
EXPANDABLE = "expandable_segments:True"


def snapshot_of(job: Job, steps: int, settings: str = "", *, ring: int = 100_000) -> MemorySnapshot:
    """Return what a job leaves whose last events were recorded."""
    job.allocator.record_history(ring)
    for _ in job.run(steps):
        pass
    root = job.allocator.snapshot()
    root["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = settings
    return convert_tree(root)


def pinned_job(settings: str = "") -> Job:
    return Job(4 * GIB, vary(1, *LENGTHS), keep=200, settings=settings)


def reserved_by(settings: str, steps: int) -> int:
    """Return the most that the same job reserves when it is really run under other settings."""
    job = pinned_job(settings)
    for _ in job.run(steps):
        pass
    return job.allocator.memory_stats()["reserved_bytes.all.peak"]


def does_run(settings: str, steps: int, card_bytes: int) -> bool:
    """Return whether the same job runs under other settings on a card of so many bytes."""
    try:
        for _ in Job(card_bytes, vary(1, *LENGTHS), keep=200, settings=settings).run(steps):
            pass
    except AllocatorOutOfMemoryError:
        return False
    return True


@pytest.fixture(scope="module")
def pinned() -> MemorySnapshot:
    """Return the snapshot of a pinned job of 60 steps."""
    return snapshot_of(pinned_job(), 60)


@pytest.fixture(scope="module")
def advice(pinned: MemorySnapshot) -> SettingsAdvice:
    return advise_settings(pinned, 0)


def test_what_is_said_of_settings_is_what_the_same_job_does_under_them(advice: SettingsAdvice) -> None:
    assert advice.reason is None
    assert advice.peak_reserved_bytes == advice.recorded_peak_bytes == reserved_by("", 60)
    assert advice.least_card_bytes is not None
    step_bytes = round(0.01 * advice.least_card_bytes)
    for candidate in advice.candidates:
        assert candidate.peak_reserved_bytes == reserved_by(candidate.settings, 60)
        assert candidate.saved_bytes == advice.least_card_bytes - candidate.least_card_bytes
        assert does_run(candidate.settings, 60, candidate.least_card_bytes)
        assert not does_run(candidate.settings, 60, candidate.least_card_bytes - step_bytes)
    savings = [candidate.saved_bytes for candidate in advice.candidates]
    assert savings == sorted(savings, reverse=True)
    assert advice.candidates[0].settings == EXPANDABLE


def test_what_is_only_cache_on_a_card_with_room_is_no_saving(advice: SettingsAdvice) -> None:
    assert (advice.least_card_bytes or 0) < 0.85 * (advice.peak_reserved_bytes or 0)
    best = advice.candidates[0]
    assert best.peak_reserved_bytes < 0.8 * (advice.peak_reserved_bytes or 0), (
        "on a card with room it is much"
    )
    assert 0 < best.saved_bytes < 0.05 * (advice.least_card_bytes or 0), "on a full one it is little"


def test_it_is_said_to_be_simulated_and_what_it_rests_on(advice: SettingsAdvice) -> None:
    best, *_, basis = advice.sentences
    assert best == (
        f"simulated: with PYTORCH_ALLOC_CONF={EXPANDABLE} this trace would run in 1.1 GiB, 36 MiB less (-3 %)"
    )
    assert basis.startswith(
        "4,520 allocations and frees replayed; 256 MiB allocated earlier are assumed to be in order of "
        "address, and what was cached then is unknown; with its own"
    )
    assert "(recorded: 1.4 GiB)" in basis


def test_a_job_on_a_full_card_is_followed_through_its_flushes(advice: SettingsAdvice) -> None:
    job = Job(1216 * MIB, vary(1, *LENGTHS), keep=200)
    full = advise_settings(snapshot_of(job, 60), 0)
    assert job.allocator.memory_stats()["num_alloc_retries"] == full.flushes == full.times_given_back > 0
    assert full.reason is None
    assert full.peak_reserved_bytes == full.recorded_peak_bytes
    assert full.least_card_bytes == advice.least_card_bytes, "the card that it ran on does not matter"
    assert "; cache was given back once; " in full.sentences[-1]
    assert full.sentences[0] == (
        "simulated: with 1.2 GiB for the allocator (where requests of the recording found no room) and its "
        "own settings cache is given back once (recorded: 1), and at most 1.2 GiB are reserved"
    )


FULL_CARDS = {
    "": 1300 * MIB,
    "max_split_size_mb:20": 1216 * MIB,
    "per_process_memory_fraction:0.48": 1248 * MIB,
    "garbage_collection_threshold:0.8,per_process_memory_fraction:0.5": 1300 * MIB,
}


@pytest.mark.parametrize("settings", FULL_CARDS)
def test_the_model_finds_out_by_itself_when_a_full_card_gives_cache_back(settings: str) -> None:
    parsed = AllocatorSettings.parse(settings)
    job = Job(
        round(FULL_CARDS[settings] / parsed.memory_fraction), vary(1, *LENGTHS), keep=200, settings=settings
    )
    full = advise_settings(snapshot_of(job, 60, settings), 0)
    assert full.reason is None
    assert full.capacity_source == "full"
    # As exact as a recording says it: within the segment of the largest request.
    assert full.capacity_bytes is not None
    assert full.recorded_peak_bytes is not None
    assert full.recorded_peak_bytes <= full.capacity_bytes
    assert abs(full.capacity_bytes - FULL_CARDS[settings]) <= 24 * MIB
    assert full.card is not None
    assert full.card.times_given_back == full.times_given_back == full.flushes > 0
    assert full.card.peak_reserved_bytes == full.recorded_peak_bytes
    # Each of the others: as often as the same job really does on such a card.
    for candidate in full.candidates:
        assert candidate.card is not None
        if "size_mb" not in candidate.settings and "garbage" not in candidate.settings:
            other = Job(full.capacity_bytes, vary(1, *LENGTHS), keep=200, settings=candidate.settings)
            for _ in other.run(60):
                pass
            stats = other.allocator.memory_stats()
            assert candidate.card.times_given_back == stats["num_alloc_retries"], candidate.settings
            assert candidate.card.peak_reserved_bytes == stats["reserved_bytes.all.peak"]


def test_a_fraction_of_the_card_does_not_count_against_its_own_settings(advice: SettingsAdvice) -> None:
    """What is compared is what the allocator can reserve, of however large a card."""
    settings = "per_process_memory_fraction:0.5"
    half = advise_settings(snapshot_of(pinned_job(settings), 60, settings), 0)
    assert half.least_card_bytes == advice.least_card_bytes
    best = half.candidates[0]
    assert (best.settings, best.saved_bytes) == (EXPANDABLE, advice.candidates[0].saved_bytes)


def test_a_request_that_failed_is_tried_under_other_settings() -> None:
    job = Job(1120 * MIB, vary(1, *LENGTHS), keep=200)
    job.allocator.record_history(100_000)
    with pytest.raises(AllocatorOutOfMemoryError):
        for _ in job.run(60):
            pass
    oom = advise_settings(convert_tree(job.allocator.snapshot()), 0)
    assert (oom.capacity_bytes, oom.capacity_source, oom.failed_requests) == (1120 * MIB, "oom", 1)
    assert oom.card is not None
    assert (oom.card.does_run, oom.card.failed_requests) == (True, 1)
    served = [
        one.settings for one in oom.candidates if one.card is not None and one.card.failed_requests == 0
    ]
    assert EXPANDABLE in served
    assert "max_split_size_mb:128" not in served
    assert oom.sentences[0].startswith(
        "simulated: with 1.1 GiB for the allocator (reserved and free at the out-of-memory error) and its "
        "own settings cache is given back 2 times (recorded: 2)"
    )
    assert oom.sentences[0].endswith("; the request that failed fails again")
    assert oom.sentences[1].startswith(f"simulated: with PYTORCH_ALLOC_CONF={EXPANDABLE} ")
    assert oom.sentences[1].endswith(
        "; with 1.1 GiB cache would be given back 0 times, and the request that failed is served"
    )
    assert " this trace, without the request that failed, would run in " in oom.sentences[1]


@pytest.mark.parametrize(("failures", "named"), [(1, "the request"), (2, "the 2 requests")])
def test_what_a_trace_needs_is_said_to_be_without_the_requests_that_failed(failures: int, named: str) -> None:
    allocator = CachingAllocator(PrivateDeviceMemory(512 * MIB), AllocatorSettings())
    allocator.record_history(10_000)
    for _ in range(60):
        allocator.free(allocator.malloc(380 * MIB))
    for _ in range(failures):
        with pytest.raises(AllocatorOutOfMemoryError):
            allocator.malloc(600 * MIB)
    advice = advise_settings(convert_tree(allocator.snapshot()), 0)
    needed = f"simulated: this trace, without {named} that failed, needs 380 MiB, and not less with "
    assert any(said.startswith(needed) for said in advice.sentences)


def test_a_card_on_which_the_model_does_not_follow_the_recording_is_not_compared_on() -> None:
    """The trace begins late, and the unknown cache decides how often it is given back."""
    settings = "max_split_size_mb:20"
    job = Job(840 * MIB, vary(8, 1000, 9000), settings=settings)
    found = advise_settings(snapshot_of(job, 40, settings, ring=2000), 0)
    assert found.reason is not None
    assert found.reason.endswith(" times in the model but 10 times in the recording")
    assert (found.candidates, found.card) == ((), None)


@pytest.mark.parametrize("capacity_mib", [1100, 1130, 1400])
def test_a_given_card_says_what_the_same_job_does_on_it(pinned: MemorySnapshot, capacity_mib: int) -> None:
    capacity_bytes = capacity_mib * MIB
    found = advise_settings(pinned, 0, capacity_bytes=capacity_bytes)
    assert (found.capacity_bytes, found.capacity_source) == (capacity_bytes, "given")
    assert found.card is not None
    assert found.card.does_run == does_run("", 60, capacity_bytes)
    for candidate in found.candidates:
        assert candidate.card is not None
        assert candidate.card.does_run == does_run(candidate.settings, 60, capacity_bytes)
    said = " and its own settings it does not run; it needs " in found.sentences[0]
    assert said == (not found.card.does_run)
    better = [one.settings for one in found.candidates if one.card is not None and one.card.does_run]
    assert (capacity_mib == 1100) == (better == [])


def test_a_job_that_empties_its_cache_is_followed_too() -> None:
    allocator = CachingAllocator(PrivateDeviceMemory(8 * GIB), AllocatorSettings())
    allocator.record_history(10_000)
    for size in (40 * MIB, 80 * MIB, 120 * MIB) * 30:
        allocator.free(allocator.malloc(size))
        allocator.empty_cache()
    advice = advise_settings(convert_tree(allocator.snapshot()), 0)
    assert advice.peak_reserved_bytes == advice.recorded_peak_bytes == 120 * MIB
    assert (advice.events, advice.flushes) == (180, 90)
    assert (advice.times_given_back, advice.capacity_bytes, advice.card) == (0, None, None)


def test_a_job_that_has_the_best_settings_learns_that_none_is_better() -> None:
    advice = advise_settings(snapshot_of(pinned_job(EXPANDABLE), 60, EXPANDABLE), 0)
    assert (advice.own_settings, advice.reason) == (EXPANDABLE, None)
    assert EXPANDABLE not in [candidate.settings for candidate in advice.candidates]
    assert advice.sentences[0] == "simulated: this trace needs 1.1 GiB, and not less with 5 other settings"


def test_a_trace_that_begins_in_the_middle_of_a_fragmented_job_is_refused_with_both_figures() -> None:
    advice = advise_settings(snapshot_of(pinned_job(), 200, ring=2000), 0)
    assert advice.reason is not None
    assert "live and an unknown cache, reserves" in advice.reason
    assert advice.candidates == ()
    assert advice.sentences[0].startswith("no advice on allocator settings: replayed with its own settings,")


def test_a_trace_that_begins_late_is_followed_where_the_model_still_meets_what_was_recorded() -> None:
    job = Job(4 * GIB, lambda step: 8000, settings=EXPANDABLE)
    advice = advise_settings(snapshot_of(job, 60, EXPANDABLE, ring=1500), 0)
    assert advice.reason is None
    assert advice.before_bytes > 0.9 * 256 * MIB


def test_what_lived_before_and_was_freed_meanwhile_is_counted_too() -> None:
    allocator = CachingAllocator(PrivateDeviceMemory(8 * GIB), AllocatorSettings())
    old = allocator.malloc(2 * GIB)
    allocator.record_history(10_000)
    for _ in range(60):
        allocator.free(allocator.malloc(40 * MIB))
    allocator.free(old)
    advice = advise_settings(convert_tree(allocator.snapshot()), 0)
    assert advice.before_bytes == 2 * GIB
    assert advice.peak_reserved_bytes == advice.recorded_peak_bytes == 2 * GIB + 40 * MIB


def test_events_are_cut_and_said_to_be() -> None:
    job = Job(4 * GIB, lambda step: 8000, settings=EXPANDABLE)
    advice = advise_settings(snapshot_of(job, 30, EXPANDABLE), 0, most_events=500)
    assert (advice.events, advice.events_left_out) == (500, 30 * 6 * 12 - 500)
    assert "1,660 older ones left out" in advice.sentences[-1]


def test_several_streams_are_kept_apart() -> None:
    allocator = CachingAllocator(PrivateDeviceMemory(4 * GIB), AllocatorSettings())
    allocator.record_history(10_000)
    for _ in range(60):
        for stream in (0, 7):
            allocator.free(allocator.malloc(40 * MIB, stream))
    advice = advise_settings(convert_tree(allocator.snapshot()), 0)
    assert advice.peak_reserved_bytes == advice.recorded_peak_bytes == 80 * MIB


@pytest.mark.parametrize(
    ("reason", "content"),
    [
        ("the file has no trace of allocations", lambda: convert_tree(snapshot([]))),
        (
            "its trace has 72 allocations and frees; at least 100 are needed",
            lambda: snapshot_of(Job(4 * GIB, lambda step: 8000), 1),
        ),
        (
            "its own settings cannot be read: allocator settings: max_split_size_mb is 'x', "
            "expected a whole number of MiB, at least 20",
            lambda: snapshot_of(pinned_job(), 20, "max_split_size_mb:x"),
        ),
    ],
)
def test_what_cannot_be_replayed_is_refused(reason: str, content: object) -> None:
    assert callable(content)
    assert advise_settings(content(), 0).reason == reason


def test_private_pools_are_not_followed() -> None:
    allocator = CachingAllocator(PrivateDeviceMemory(4 * GIB), AllocatorSettings())
    allocator.record_history(10_000)
    for _ in range(60):
        allocator.free(allocator.malloc(40 * MIB))
    allocator.begin_pool((0, 1))
    allocator.malloc(100 * MIB)
    allocator.end_pool((0, 1))
    advice: SettingsAdvice = advise_settings(convert_tree(allocator.snapshot()), 0)
    assert advice.reason == "100 MiB are in private pools, which the replay cannot follow"


def test_a_share_of_the_card_lets_the_threshold_for_old_blocks_be_tried() -> None:
    settings = "per_process_memory_fraction:0.5"
    advice = advise_settings(snapshot_of(pinned_job(settings), 60, settings), 0)
    assert "garbage_collection_threshold:0.8,per_process_memory_fraction:0.5" in [
        candidate.settings for candidate in advice.candidates
    ]


@pytest.mark.parametrize("width", [40, 80])
def test_inspect_prints_it(pinned: MemorySnapshot, width: int) -> None:
    text = describe_memory_file(pinned, top=3, width=width)
    assert "\nthe trace under other allocator settings" in text
    assert "simulated: with" in text
    assert max(len(line) for line in text.splitlines()) <= width
