"""A device of which only the allocator is known is drawn by what that says, never as empty."""

from vramscope.engine.history import History
from vramscope.engine.model import AllocatorReading, DeviceSample, MemoryReading, Sample
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.draw.glyphs import UNICODE
from vramscope.tui.draw.spans import Line
from vramscope.tui.live.device_graphs import DeviceGraphs, TimeSpan
from vramscope.tui.widgets.device_view import build_views, find_most, read_levels

GIB = 1 << 30


def play(readings: list[tuple[int | None, int | None, int | None]]) -> tuple[History, Snapshot]:
    """Return history and newest state of a device with used, reserved and allocated GiB at each second."""
    history = History()
    for tick, gibibytes in enumerate(readings):
        used, reserved, allocated = (None if it is None else it * GIB for it in gibibytes)
        device = DeviceSample(
            "index-0",
            0,
            memory=MemoryReading(used_bytes=used),
            allocator=AllocatorReading(allocated, allocated, reserved),
        )
        sample = Sample("node", tick, 1000.0 + tick, 1.0, (device,))
        history.add(sample)
    return history, Snapshot(sample=sample, connection="live")


def draw(history: History, snapshot: Snapshot) -> tuple[int | None, list[Line]]:
    """Return the scale and the graph of the device."""
    assert snapshot.sample is not None
    (view,) = build_views(snapshot, snapshot.sample.devices, history, None)
    graph = DeviceGraphs(UNICODE).draw(history, view, (10, 4), TimeSpan(1005.0, 10.0, 1.0))
    return view.scale_bytes, graph


def test_each_moment_has_the_best_figure_that_is_known_of_it() -> None:
    history, _ = play([(None, None, 1), (None, 4, 2), (9, 5, 3), (None, 4, 2)])
    low, high = read_levels(history, "index-0", 1003.0, 1.0, 5, has_allocator=True)
    assert high == low == [None, 1 * GIB, 4 * GIB, 9 * GIB, 4 * GIB]
    _, used = read_levels(history, "index-0", 1003.0, 1.0, 5, has_allocator=False)
    assert used == [None, None, None, 9 * GIB, None]
    assert find_most(history, "index-0", 1003.0) == 9 * GIB


def test_the_graph_is_drawn_to_the_most_that_was_seen() -> None:
    scale, graph = draw(*play([(None, None, size) for size in (1, 2, 3, 4, 6, 3)]))
    assert scale == 6 * GIB
    assert any(span.text.strip() for line in graph for span in line)
    nothing, blank = draw(*play([(None, None, None)] * 6))
    assert nothing is None
    assert not any(span.text.strip() for line in blank for span in line)


def test_a_history_that_became_another_one_is_drawn_anew() -> None:
    """A replay shows the moment that was jumped to first, and what was before it a little later."""
    history, snapshot = play([(None, None, 3)] * 6)
    assert snapshot.sample is not None
    (view,) = build_views(snapshot, snapshot.sample.devices, history, None)
    graphs, span = DeviceGraphs(UNICODE), TimeSpan(1005.0, 10.0, 1.0)
    late = History()
    late.add(snapshot.sample)
    before = graphs.draw(late, view, (10, 4), span)
    whole = DeviceGraphs(UNICODE).draw(history, view, (10, 4), span)
    assert before != whole
    late.take_over(history)
    assert graphs.draw(late, view, (10, 4), span) == whole
