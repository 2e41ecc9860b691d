"""The ring keeps the newest rows exactly, whatever devices come and go."""

from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.history.ring import ColumnRing, Row

Values = dict[str, dict[str, int]]

figures = st.fixed_dictionaries(
    {"state": st.integers(0, 3)},
    optional={
        "used": st.integers(0, 2**50),
        "total": st.integers(0, 2**50),
        "utilization": st.integers(0, 100),
    },
)
ticks = st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), figures, max_size=3), max_size=40)


def _fill(ring: ColumnRing, rows: list[Values]) -> None:
    for number, devices in enumerate(rows):
        ring.append(Row(number, float(number), 1.0), devices)


def _read(ring: ColumnRing) -> list[tuple[int, Values]]:
    read = []
    for position, row in ring.rows():
        devices: Values = {}
        for uuid in ring.uuids:
            if ring.value(uuid, "state", position) is not None:
                named = {n: ring.value(uuid, n, position) for n in ("state", "used", "total", "utilization")}
                devices[uuid] = {name: value for name, value in named.items() if value is not None}
        read.append((row.seq, devices))
    return read


@given(ticks, st.integers(1, 12))
def test_the_newest_rows_are_kept_as_they_were(rows: list[Values], capacity: int) -> None:
    ring = ColumnRing(capacity)
    _fill(ring, rows)
    assert _read(ring) == list(enumerate(rows))[-capacity:]


@given(ticks, st.integers(1, 12))
def test_a_dumped_ring_loads_as_the_same_ring_and_goes_on(rows: list[Values], capacity: int) -> None:
    ring, copy = ColumnRing(capacity), ColumnRing(capacity)
    _fill(ring, rows)
    copy.load(*ring.dump())
    assert _read(copy) == _read(ring)
    for each in (ring, copy):
        each.append(Row(1000, 1000.0, 1.0), {"a": {"state": 0, "used": 7}})
    assert _read(copy) == _read(ring)


def test_a_device_without_a_row_left_is_forgotten() -> None:
    ring = ColumnRing(4)
    ring.append(Row(0, 0.0, 1.0), {"gone": {"state": 0}})
    for number in range(1, 10):
        ring.append(Row(number, float(number), 1.0), {"here": {"state": 0}})
    assert ring.uuids == ["here"]
