"""Groups of devices: none is lost or twice in any grouping, and the most worrying stand first."""

from hypothesis import given
from hypothesis import strategies as st

from vramscope.analyzers.fleet.model import (
    GROUPINGS,
    SORTS,
    FleetDevice,
    Grouping,
    find_worst,
    group_devices,
    hold_worst,
    weigh,
)
from vramscope.analyzers.risk import LEVELS

_MAYBE = st.none() | st.integers(0, 3)
_DEVICES = st.lists(
    st.builds(
        FleetDevice,
        node=st.sampled_from(["n1", "n2", "n10"]),
        uuid=st.uuids().map(str),
        label=st.sampled_from("0123"),
        name=st.just("GPU 0"),
        used_bytes=st.none() | st.integers(0, 80),
        total_bytes=st.none() | st.just(80),
        level=st.sampled_from(LEVELS),
        oom_in_s=st.none() | st.floats(0, 1e6),
        jobs=st.sampled_from([(), ("a",), ("a", "b")]),
        tp=_MAYBE,
        pp=_MAYBE,
        dp=_MAYBE,
    ),
    max_size=12,
)


@given(_DEVICES, st.sampled_from(GROUPINGS), st.sampled_from(SORTS))
def test_every_device_is_in_one_group(devices: list[FleetDevice], grouping: Grouping, sort: str) -> None:
    groups = group_devices(devices, grouping, sort)  # type: ignore[arg-type]  # one of SORTS
    assert sorted(it.key for group in groups for it in group.devices) == sorted(it.key for it in devices)
    assert len({group.name for group in groups}) == len(groups)


@given(_DEVICES.filter(bool))
def test_by_risk_the_worst_device_is_in_the_first_group(devices: list[FleetDevice]) -> None:
    worst = find_worst(devices)
    assert worst is not None
    assert weigh(worst) == max(map(weigh, devices))
    first = group_devices(devices, "node", "risk")[0]
    unknown = LEVELS.index("unknown")  # low and unknown are no reason to move
    highest = max(LEVELS.index(it.level) for it in first.devices)
    assert max(highest, unknown) == max(LEVELS.index(worst.level), unknown)


def test_the_worst_stays_where_memory_goes_up_and_down_and_moves_for_a_reason() -> None:
    held = FleetDevice("n1", "u", "0", "GPU 0", used_bytes=60, total_bytes=80)
    for used_bytes, level, is_found in ((64, "unknown", False), (72, "unknown", True), (1, "critical", True)):
        other = FleetDevice("n2", "v", "0", "GPU 0", used_bytes=used_bytes, total_bytes=80, level=level)  # type: ignore[arg-type]  # one of LEVELS
        worst = find_worst([held, other])
        assert hold_worst(worst, held) is (other if is_found else held)
    assert hold_worst(find_worst([other]), None) is other  # gone, or hidden by a filter
