"""What is watched of a sample: devices by any of their names, one process, one job."""

import pytest

from vramscope.engine.model import AllocatorReading, ProcessReading, RankSample, Sample
from vramscope.memory.watch import Selection

from ...exporters.reports.logs import GIB, make_device, make_sample


@pytest.fixture
def sample() -> Sample:
    """Two devices and an instance; two jobs share the first device, a stranger holds the second."""
    ranks = (
        RankSample(pid=1, job="a", device_uuid="GPU-0", allocator=AllocatorReading(GIB)),
        RankSample(pid=2, job="b", device_uuid="GPU-0", allocator=AllocatorReading(2 * GIB)),
        RankSample(pid=3, job="b", device_uuid="MIG-7", allocator=AllocatorReading(3 * GIB)),
    )
    return make_sample(
        0.0,
        make_device(9 * GIB, allocated=3 * GIB),
        make_device(GIB, index=1, processes=(ProcessReading(pid=9),)),
        make_device(GIB, index=1, uuid="MIG-7", parent_uuid="GPU-1", mig_index=0),
        ranks=ranks,
    )


@pytest.mark.parametrize(
    ("words", "uuids", "pids"),
    [
        (("0",), ["GPU-0"], [1, 2]),
        (("1",), ["GPU-1", "MIG-7"], [3]),
        (("1:0",), ["MIG-7"], [3]),
        (("GPU-1", "0"), ["GPU-0", "GPU-1"], [1, 2]),
        (("5",), [], []),
    ],
)
def test_devices_are_chosen_by_index_label_or_uuid(
    words: tuple[str, ...], uuids: list[str], pids: list[int], sample: Sample
) -> None:
    chosen = Selection(devices=words).apply(sample)
    assert [device.uuid for device in chosen.devices] == uuids
    assert [rank.pid for rank in chosen.ranks] == pids


def test_a_process_is_watched_alone_with_its_own_allocator(sample: Sample) -> None:
    chosen = Selection(pid=1).apply(sample)
    assert [rank.pid for rank in chosen.ranks] == [1]
    (device,) = chosen.devices
    assert device.allocator == AllocatorReading(GIB)


def test_a_process_that_does_not_report_is_watched_by_the_devices_it_holds(sample: Sample) -> None:
    chosen = Selection(pid=9).apply(sample)
    assert ([device.uuid for device in chosen.devices], chosen.ranks) == (["GPU-1"], ())


def test_a_job_is_watched_on_all_its_devices(sample: Sample) -> None:
    chosen = Selection(job="b").apply(sample)
    assert [rank.pid for rank in chosen.ranks] == [2, 3]
    assert [device.uuid for device in chosen.devices] == ["GPU-0", "MIG-7"]
    assert Selection(pid=2, job="a").apply(sample).ranks == ()


def test_names_that_are_no_device_are_told(sample: Sample) -> None:
    assert Selection(devices=("0", "4", "sim0")).find_missing(sample.devices) == ("4", "sim0")
    assert Selection().apply(sample) is sample
