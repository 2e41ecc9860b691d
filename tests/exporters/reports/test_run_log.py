"""The log of a period: what is counted, what is kept, what is passed over."""

from vramscope.engine.model import RankSample

from .logs import GIB, TOTAL, make_device, make_finding, make_log, make_sample


def test_statistics_are_of_all_snapshots_and_only_the_newest_are_kept() -> None:
    log = make_log((make_sample(t, make_device(t * GIB)) for t in range(1, 11)), max_snapshots=3)
    device = log.devices["GPU-0"]
    assert device.count == 10
    assert [it.used_bytes for it in device.snapshots] == [8 * GIB, 9 * GIB, 10 * GIB]
    assert device.utilization.mean == 100 * 5.5 / 80
    assert device.utilization.most == 100 * 10 / 80
    assert device.peak_bytes == 10 * GIB


def test_a_spike_between_two_snapshots_is_the_peak() -> None:
    samples = [make_sample(t, make_device(GIB, used_max=70 * GIB if t == 3 else GIB)) for t in range(6)]
    log = make_log(samples, interval_s=5.0)
    device = log.devices["GPU-0"]
    assert device.count == 2
    assert device.peak_used_bytes == 70 * GIB


def test_ticks_that_jitter_are_each_a_snapshot() -> None:
    times = [0.0, 0.9996, 2.0003, 2.9991, 4.0]
    log = make_log((make_sample(t, make_device(GIB)) for t in times), interval_s=1.0)
    assert log.devices["GPU-0"].count == 5


def test_a_faster_stream_is_thinned_to_the_interval() -> None:
    log = make_log(
        (make_sample(t / 10, make_device(GIB), interval_s=0.1) for t in range(100)), interval_s=2.0
    )
    assert [it.time_s for it in log.devices["GPU-0"].snapshots] == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_a_clock_that_was_set_back_is_followed() -> None:
    log = make_log((make_sample(t, make_device(GIB)) for t in (100.0, 101.0, 5.0, 6.0)), interval_s=1.0)
    assert log.devices["GPU-0"].count == 4


def test_figures_that_are_stale_or_lost_count_for_nothing() -> None:
    samples = [
        make_sample(0, make_device(GIB)),
        make_sample(1, make_device(70 * GIB, state="stale", reason="the driver has not answered for 3 s")),
        make_sample(2, make_device(None, state="lost", reason="fell off the bus")),
    ]
    device = make_log(samples).devices["GPU-0"]
    assert (device.count, device.peak_used_bytes) == (1, GIB)
    assert (device.state, device.reason) == ("lost", "fell off the bus")


def test_an_allocator_that_tells_later_is_the_source_from_then_on() -> None:
    samples = [
        make_sample(0, make_device(9 * GIB)),
        make_sample(1, make_device(30 * GIB, allocated=20 * GIB, reserved=24 * GIB)),
    ]
    device = make_log(samples).devices["GPU-0"]
    assert device.memory_source == "allocator"
    assert device.peak_bytes == 20 * GIB
    assert [it.taken_bytes("allocator") for it in device.snapshots] == [None, 20 * GIB]


def test_without_device_used_the_share_is_of_the_next_best_figure() -> None:
    reserved = make_log([make_sample(0, make_device(allocated=20 * GIB, reserved=40 * GIB))]).devices["GPU-0"]
    assert reserved.last is not None
    assert (reserved.utilization_of, reserved.last.utilization_percent) == ("reserved", 50.0)
    allocated = make_log([make_sample(0, make_device(allocated=20 * GIB))]).devices["GPU-0"]
    assert allocated.last is not None
    assert (allocated.utilization_of, allocated.last.utilization_percent) == ("allocated", 25.0)


def test_free_is_the_rest_where_nobody_tells_it() -> None:
    told = make_device(10 * GIB)
    memory = type(told.memory)(TOTAL, 10 * GIB)
    device = make_log([make_sample(0, make_device(memory=memory))]).devices["GPU-0"]
    assert device.last is not None
    assert device.last.free_bytes == 70 * GIB


def test_the_host_memory_of_a_device_is_that_of_its_processes() -> None:
    ranks = (
        RankSample(pid=1, device_uuid="GPU-0", resident_bytes=GIB),
        RankSample(pid=2, device_uuid="GPU-0", resident_bytes=2 * GIB),
        RankSample(pid=3, device_uuid="GPU-1", resident_bytes=9 * GIB),
        RankSample(pid=4, device_uuid="GPU-0", resident_bytes=5 * GIB, state="ended"),
    )
    device = make_log([make_sample(0, make_device(GIB), ranks=ranks)]).devices["GPU-0"]
    assert device.last is not None
    assert device.last.resident_bytes == 3 * GIB


def test_a_finding_keeps_the_gravest_severity_that_it_had() -> None:
    log = make_log([make_sample(0, make_device(GIB))])
    log.take([make_finding(severity="medium")])
    log.take([make_finding(severity="critical")])
    log.take([make_finding(severity="low", closed_s=9.0)])
    (trail,) = log.findings.values()
    assert (trail.finding.severity, trail.gravest) == ("low", "critical")


def test_the_next_period_knows_what_is_open_and_nothing_else() -> None:
    log = make_log([make_sample(0, make_device(GIB))])
    log.take([make_finding("oom"), make_finding("leak", closed_s=9.0)])
    following = log.begin_next()
    assert [trail.finding.kind for trail in following.findings.values()] == ["oom"]
    assert (following.samples, following.devices) == (0, {})


def test_devices_of_one_index_are_told_apart_by_label() -> None:
    instance = make_device(GIB, uuid="MIG-1", parent_uuid="GPU-0", mig_index=0)
    log = make_log([make_sample(0, make_device(GIB), instance, make_device(GIB, index=1))])
    assert [log.key_of(device) for device in log.devices.values()] == ["0", "0:0", "1"]
