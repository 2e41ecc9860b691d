"""How much of its limit an allocator can use, held against what the allocator model did in the end."""

from vramscope.analyzers.oom.watch import LAST_LOST, Usable, UsableLimit

GIB = 2**30
LIMIT = 80 * GIB
# What the last request does not find in one piece, where steps differ.
LAST_LOST_GIB = LAST_LOST * 80


def _grow(usable: UsableLimit, excess: float, split: float = 0.0, *, seconds: int = 300) -> None:
    """Let peaks rise by 0.1 GiB a second from 30 GiB on, and what is held with them."""
    for at in range(seconds):
        held = int((30 + 0.1 * at + excess) * GIB)
        usable.observe(float(at), held, int(split * GIB))


def _peak_at(time_s: float) -> float:
    return (30 + 0.1 * time_s) * GIB


def _ask(usable: UsableLimit, uniformity: float, now_s: float = 299.0) -> Usable:
    return usable.of(LIMIT, 0.0, now_s, _peak_at, uniformity)


def _lost_gib(found: Usable) -> float:
    return (LIMIT - found.limit_bytes) / GIB


def test_what_is_held_above_steps_that_are_alike_is_lost() -> None:
    usable = UsableLimit()
    _grow(usable, 4.0)
    found = _ask(usable, uniformity=1.0)
    assert 3.8 < _lost_gib(found) < 4.2
    assert found.doubt_bytes < GIB


def test_the_cache_of_steps_that_differ_is_given_back_and_of_use() -> None:
    usable = UsableLimit()
    _grow(usable, 12.0)
    found = _ask(usable, uniformity=0.0)
    assert LAST_LOST_GIB <= _lost_gib(found) < LAST_LOST_GIB + 0.2
    assert found.doubt_bytes > 4 * GIB


def test_free_blocks_that_are_counted_are_lost_and_four_tenths_of_what_else_is_held() -> None:
    usable = UsableLimit()
    _grow(usable, 12.0, split=5.0)
    assert 7.6 < _lost_gib(_ask(usable, uniformity=0.0)) - LAST_LOST_GIB < 8.0


def test_growing_peaks_lose_half_of_what_is_held_above_them_where_free_blocks_are_counted() -> None:
    usable = UsableLimit()
    for at in range(300):
        is_given_back = at % 50 == 48
        usable.observe(float(at), int((30 + 0.1 * at + (3 if is_given_back else 15)) * GIB), GIB)
    # 3 GiB were left when the cache was given back, and 12 GiB are held in addition
    assert 8.5 < _lost_gib(usable.of_peaks(LIMIT, 0.0, _peak_at)) < 9.5


def test_no_more_is_lost_than_is_held_above_the_peak() -> None:
    usable = UsableLimit()
    _grow(usable, 2.0, split=9.0)
    assert 1.8 < _lost_gib(_ask(usable, uniformity=0.0)) - LAST_LOST_GIB < 2.2


def test_what_is_left_after_the_cache_was_given_back_is_lost() -> None:
    usable = UsableLimit()
    _grow(usable, 20.0)
    for at in range(300, 400):
        usable.observe(float(at), int((30 + 0.1 * at + 6) * GIB), 0)
    assert 5.5 < _lost_gib(_ask(usable, uniformity=0.0, now_s=399.0)) < 6.5


def test_what_is_lost_more_and_more_is_continued_to_the_limit() -> None:
    usable = UsableLimit()
    for at in range(300):
        usable.observe(float(at), int((30 + 0.1 * at + 2 + 0.02 * at) * GIB), 0)
    # held is 2 GiB above the peak and a fifth of what it rose; at the limit 30 + r + 2 + r / 5 = 80
    assert 9.0 < _lost_gib(_ask(usable, uniformity=1.0)) < 11.0


def test_without_reserved_bytes_the_limit_stands() -> None:
    assert _ask(UsableLimit(), uniformity=1.0).limit_bytes == LIMIT


def test_growing_peaks_lose_what_is_left_when_the_cache_was_given_back() -> None:
    usable = UsableLimit()
    for at in range(300):
        is_given_back = at % 50 == 49
        usable.observe(float(at), int((30 + 0.1 * at + (3 if is_given_back else 15)) * GIB), 0)
    found = usable.of_peaks(LIMIT, 0.0, _peak_at)
    assert 2.5 < _lost_gib(found) < 3.5


def test_peaks_that_are_new_to_the_cache_every_time_lose_a_segment_more() -> None:
    usable = UsableLimit()
    for at in range(300):
        usable.observe(float(at), int((30 + 0.1 * at + (3 if at % 5 == 4 else 15)) * GIB), 0)
    assert 7.0 < _lost_gib(usable.of_peaks(LIMIT, 0.0, _peak_at)) < 9.0
