"""The cursor in time: what lived at any moment, against a replay of every event from the first one on."""

from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.engine.files.snapshots import BASE, MIB, Row, block, event, frame, free, segment, snapshot
from vramscope.analyzers.snapshot_summary.cursor import LiveMoment, TimeCursor
from vramscope.analyzers.snapshot_summary.stack_names import NO_LINE, find_kind, name_module
from vramscope.engine.files.memory_snapshot import convert_tree
from vramscope.engine.model.memory_snapshot import Frame

SLOTS = 5
TORCH = "/usr/lib/python3/site-packages/torch"
PLACES = [
    [frame("forward", f"{TORCH}/nn/modules/linear.py", 125), frame("forward", "/job/model.py", 40)],
    [frame("forward", "/job/model.py", 12), frame("<module>", "/job/train.py", 9)],
    [frame("_init_group", f"{TORCH}/optim/adamw.py", 180), frame("main", "/job/train.py", 31)],
    [],
]
LINES = ["forward /job/model.py:40", "forward /job/model.py:12", "main /job/train.py:31", NO_LINE]
KINDS = ["forward pass", "forward pass", "optimizer step", "no stack recorded"]
FREED = [frame("clear", "/job/train.py", 77)]


class Life(NamedTuple):
    size: int
    place: int

    @property
    def rounded(self) -> int:
        return -(-self.size // 512) * 512


Live = dict[int, Life]


class Program:
    """Allocates and frees in slots of 1 MiB, and remembers what was true after each event.

    Args:
        are_frees_recorded: Whether a free has the stack of the free, as with `context="all"`.
    """

    def __init__(self, *, are_frees_recorded: bool) -> None:
        self.live: Live = {}
        self.events: list[Row] = []
        self.after: list[Live] = []
        self._are_frees_recorded = are_frees_recorded

    def act(self, slot: int, size: int, place: int) -> None:
        if slot in self.live:
            life = self.live.pop(slot)
            frames = FREED if self._are_frees_recorded else PLACES[life.place]
            self._note("free_requested", slot, life.size, frames)
            self._note("free_completed", slot, life.size, frames)
        else:
            self.live[slot] = Life(size, place)
            self._note("alloc", slot, size, PLACES[place])

    def cursor(self, dropped: int) -> TimeCursor:
        return TimeCursor(
            convert_tree(snapshot(list(map(self._segment, range(SLOTS))), self.events[dropped:])), 0
        )

    def _segment(self, slot: int) -> Row:
        if slot not in self.live:
            return segment([free(MIB)], self._at(slot))
        life = self.live[slot]
        rest = [free(MIB - life.rounded)] if life.rounded < MIB else []
        held = block(life.rounded, requested=life.size, frames=list(PLACES[life.place]))
        return segment([held, *rest], self._at(slot))

    def _at(self, slot: int) -> int:
        return BASE + slot * 64 * MIB

    def _note(self, action: str, slot: int, size: int, frames: list[Row]) -> None:
        time_us = 1_000_000 * len(self.events)
        self.events.append(event(action, self._at(slot), size, time_us, frames=list(frames)))
        self.after.append(dict(self.live))


def sums(moment: LiveMoment, by: str) -> dict[str, tuple[int, int | None]]:
    (groups,) = [groups for groups in moment.groups if groups.by == by]
    assert groups.groups == len(groups.rows)
    return {row.name: (row.size_bytes, row.blocks) for row in groups.rows}


def expected(live: Live, names: list[str]) -> dict[str, tuple[int, int]]:
    sizes: Counter[str] = Counter()
    for life in live.values():
        sizes[names[life.place]] += life.rounded
    counts = Counter(names[life.place] for life in live.values())
    return {name: (sizes[name], counts[name]) for name in sizes}


acts = st.lists(
    st.tuples(st.integers(0, SLOTS - 1), st.integers(1, MIB), st.integers(0, len(PLACES) - 1)),
    min_size=1,
    max_size=30,
)


@settings(deadline=None)
@given(acts, st.integers(0, 20), st.booleans())
@example([(0, 1, 3), (0, 1, 0)], 0, True)  # allocated without a stack, freed with one
def test_every_moment_is_that_of_a_replay_of_all_events(
    rows: list[tuple[int, int, int]], dropped: int, are_frees_recorded: bool
) -> None:
    program = Program(are_frees_recorded=are_frees_recorded)
    for row in rows:
        program.act(*row)
    dropped = min(dropped, len(program.events) - 1)
    cursor = program.cursor(dropped)
    assert cursor.newest == len(program.events) - dropped - 1
    assert cursor.lifetimes.lost == 0
    replayed = [program.after[dropped - 1] if dropped else {}, *program.after[dropped:]]
    for number, live in enumerate(replayed):
        moment = cursor.moment(number - 1, 100)
        assert (moment.event, moment.live_blocks) == (number, len(live))
        total = sum(life.rounded for life in live.values())
        assert (moment.allocated_bytes, moment.live_bytes) == (total, total)
        if not are_frees_recorded or not dropped:
            assert sums(moment, "line") == expected(live, LINES)
            assert sums(moment, "kind") == expected(live, KINDS)
    most = max(sum(life.rounded for life in live.values()) for live in replayed)
    assert cursor.levels_at(cursor.peak)[0] == most


@settings(deadline=None, max_examples=30)
@given(acts, st.data())
def test_the_difference_of_two_moments_is_that_of_their_sums(
    rows: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    program = Program(are_frees_recorded=False)
    for row in rows:
        program.act(*row)
    cursor = program.cursor(0)
    first, second = (data.draw(st.integers(-1, cursor.newest)) for _ in range(2))
    before, after = (sums(cursor.moment(at, 100), "line") for at in (first, second))
    changes = {row.name: row for groups in cursor.changes(first, second, 100)[:1] for row in groups.rows}
    for name in before | after:
        change = after.get(name, (0, 0))[0] - before.get(name, (0, 0))[0]
        assert (changes[name].change_bytes if name in changes else 0) == change
    sizes = [abs(row.change_bytes or 0) for row in changes.values()]
    assert sizes == sorted(sizes, reverse=True)
    assert 0 not in sizes


def test_a_block_from_before_the_trace_is_not_named_after_the_line_that_freed_it() -> None:
    program = Program(are_frees_recorded=True)
    for act in [(0, MIB, 0), (1, MIB, 1), (0, MIB, 0), (1, MIB, 1)]:
        program.act(*act)
    # The allocation in slot 0 has fallen out of the ring, the one in slot 1 has not.
    moment = program.cursor(1).moment(0, 10)
    assert sums(moment, "line") == {NO_LINE: (MIB, 1), LINES[1]: (MIB, 1)}


def test_an_allocation_without_an_end_is_counted_as_lost() -> None:
    events = [event("alloc", BASE, MIB, 1), event("alloc", BASE + 8 * MIB, MIB, 2)]
    root = snapshot([segment([block(MIB), free(MIB)])], events)
    cursor = TimeCursor(convert_tree(root), 0)
    assert cursor.lifetimes.lost == 1
    assert cursor.moment(1, 10).live_blocks == 1


def test_without_events_only_the_end_is_known() -> None:
    cursor = TimeCursor(convert_tree(snapshot([segment([block(MIB), free(MIB)])])), 0)
    assert (cursor.newest, cursor.span_s) == (-1, None)
    moment = cursor.moment(-1, 10)
    assert (moment.allocated_bytes, moment.live_blocks, moment.time_s) == (MIB, 1, None)


def test_times_find_the_newest_event_that_is_not_later() -> None:
    program = Program(are_frees_recorded=False)
    for slot in range(3):
        program.act(slot, MIB, 0)
    cursor = program.cursor(0)
    assert [cursor.find_event(at) for at in (-1.0, 0.0, 1.5, 99.0)] == [-1, 0, 1, 2]
    assert cursor.moment(1, 1).after_s == 1.0


def frames(*rows: tuple[str, str]) -> tuple[Frame, ...]:
    return tuple(Frame(filename, 7, name) for filename, name in rows)


@pytest.mark.parametrize(
    ("stack", "kind"),
    [
        (frames((f"{TORCH}/nn/functional.py", "relu"), ("/job/model.py", "forward")), "forward"),
        (frames((f"{TORCH}/nn/modules/module.py", "_apply"), ("/job/train.py", "main")), "model"),
        (frames((f"{TORCH}/nn/modules/linear.py", "__init__"), ("/job/train.py", "main")), "model"),
        (frames((f"{TORCH}/optim/adamw.py", "step"), ("/job/train.py", "main")), "optimizer"),
        (frames((f"{TORCH}/autograd/graph.py", "_engine_run_backward"), ("/job/t.py", "main")), "backward"),
        # Computed a second time by a checkpoint within the backward pass.
        (frames(("/job/model.py", "forward"), (f"{TORCH}/autograd/graph.py", "run")), "forward"),
        (frames(("??", "torch::autograd::generated::MulBackward0::apply(...)")), "backward"),
        (frames((f"{TORCH}/distributed/fsdp/_fully_shard/_fsdp_param.py", "alloc")), "communication"),
        (frames(("/job/train.py", "main")), "other"),
        (frames(("??", "c10::something()")), "unknown"),
        ((), "unknown"),
    ],
)
def test_the_innermost_part_of_the_program_decides(stack: tuple[Frame, ...], kind: str) -> None:
    assert find_kind(stack) == kind


def test_a_module_is_named_by_the_lines_that_call_it() -> None:
    stack = frames(
        (f"{TORCH}/nn/functional.py", "linear"),
        (f"{TORCH}/nn/modules/linear.py", "forward"),
        (f"{TORCH}/nn/modules/module.py", "_call_impl"),
        ("/job/block.py", "Block.forward"),
        (f"{TORCH}/nn/modules/container.py", "forward"),
        ("/job/model.py", "forward"),
        ("/job/train.py", "main"),
    )
    assert name_module(stack) == "model.py:7 > Block:7 > linear"
    assert name_module(frames(("/job/train.py", "main"))) == "outside of a module's forward"
