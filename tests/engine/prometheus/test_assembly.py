"""Samples made of what Prometheus scraped of agents, of dcgm-exporter and of nvidia_gpu_exporter."""

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tests.engine.prometheus.prometheus_server import dcgm_text
from tests.exporters.prometheus.scraped import make_picture, make_training, render
from tests.tui.canned import NODE, make_device, make_sample, make_snapshot
from tests.tui.canned_ranks import make_simulated
from vramscope.engine.model import DeviceActivity, DeviceHardware, Sample
from vramscope.engine.prometheus.assembly import Assembler
from vramscope.engine.prometheus.follower import measure_interval
from vramscope.engine.prometheus.readings import join_findings, prefer_reported
from vramscope.engine.prometheus.server import Series
from vramscope.engine.units import GIB, MIB
from vramscope.engine.viewer.snapshot import Snapshot

T = 1_800_000_000.0


def to_series(text: str, time_s: float = T, *, instance: str = "n1:9400") -> list[Series]:
    """Return what Prometheus answers of an exporter's text that it scraped at a moment."""
    families = text_string_to_metric_families(text)
    return [
        Series(
            {"__name__": it.name, "instance": instance, "job": "x", **it.labels}, ((time_s, repr(it.value)),)
        )
        for family in families
        for it in family.samples
    ]


def assemble(*scrapes: Iterable[Series], interval_s: float = 15.0) -> list[Sample]:
    assembler = Assembler(interval_s)
    return [sample for scrape in scrapes for sample in assembler.add(scrape)]


def agent_series(snapshot: Snapshot, time_s: float = T) -> list[Series]:
    return to_series(render(make_picture(snapshot)), time_s)


def test_dcgm_tells_memory_of_which_the_driver_reserves_a_part() -> None:
    (sample,) = assemble(to_series(dcgm_text({0: 30_000, 1: 40_000})))
    assert (sample.node, sample.time_s, [it.index for it in sample.devices]) == ("gpu7", T, [0, 1])
    device = sample.devices[1]
    memory = device.memory
    assert (memory.used_bytes, memory.total_bytes) == (40_000 * MIB, 81_559 * MIB)
    assert memory.free_bytes == (81_559 - 600 - 40_000) * MIB
    assert (device.name, device.utilization_percent, device.power_w) == ("NVIDIA H100 80GB HBM3", 97, 640.5)
    assert device.activity == DeviceActivity(
        memory_bandwidth_percent=41.0, sm_clock_mhz=1755, memory_clock_mhz=2619
    )
    assert device.processes is None


def test_instances_of_a_card_are_devices_of_their_own() -> None:
    labels = 'gpu="3",UUID="GPU-a",Hostname="n",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"'
    (sample,) = assemble(to_series(f"DCGM_FI_DEV_FB_USED{{{labels}}} 10\n"))
    (device,) = sample.devices
    assert (device.kind, device.label, device.parent_uuid) == ("mig", "3:7", "GPU-a")


def test_an_error_that_dcgm_never_forgets_is_told_as_such() -> None:
    text = dcgm_text({0: 1}).replace('Hostname="gpu7"} 0', 'Hostname="gpu7"} 79')
    (sample,) = assemble(to_series(text))
    assert any("XID 79" in note and "does not record its time" in note for note in sample.notes)


def test_nvidia_gpu_exporter_names_devices_without_what_all_of_them_begin_with() -> None:
    uuid = "df6e7a7c-7314-46f8-abc4-b88b36dcf3aa"
    text = (
        f'nvidia_smi_memory_used_bytes{{uuid="{uuid}"}} 1073741824\n'
        f'nvidia_smi_memory_total_bytes{{uuid="{uuid}"}} 8589934592\n'
        f'nvidia_smi_utilization_gpu_ratio{{uuid="{uuid}"}} 0.5\n'
        f'nvidia_smi_index{{uuid="{uuid}"}} 2\n'
        f'nvidia_smi_gpu_info{{uuid="{uuid}",name="NVIDIA L4"}} 1\n'
    )
    (sample,) = assemble(to_series(text, instance="desk:9835"))
    (device,) = sample.devices
    assert (sample.node, device.uuid, device.index, device.name) == ("desk", f"GPU-{uuid}", 2, "NVIDIA L4")
    assert (device.memory.used_bytes, device.memory.total_bytes) == (GIB, 8 * GIB)
    assert device.utilization_percent == 50


def test_what_an_agent_serves_is_read_as_it_was() -> None:
    snapshot = make_training()
    assert snapshot.sample is not None
    (sample,) = assemble(agent_series(snapshot))
    for exported, read in zip(snapshot.sample.devices, sample.devices, strict=True):
        assert (read.uuid, read.label, read.memory) == (exported.uuid, exported.label, exported.memory)
        assert (read.utilization_percent, read.temperature_c) == (
            exported.utilization_percent,
            exported.temperature_c,
        )
    for told_rank, rank in zip(snapshot.sample.ranks, sample.ranks, strict=True):
        assert (rank.pid, rank.device_uuid, rank.job) == (told_rank.pid, told_rank.device_uuid, told_rank.job)
        assert rank.allocator == told_rank.allocator
        assert rank.coordinates is not None
        assert told_rank.coordinates is not None
        assert (rank.coordinates.rank, rank.coordinates.pp) == (
            told_rank.coordinates.rank,
            told_rank.coordinates.pp,
        )
        assert rank.step is not None
        assert told_rank.step is not None
        assert (rank.step.index, rank.step.peak_bytes) == (told_rank.step.index, told_rank.step.peak_bytes)
    assert (sample.node, sample.host is not None) == (NODE, True)


def test_clocks_loads_limits_and_errors_that_an_agent_serves_are_read_as_they_were() -> None:
    activity = DeviceActivity(
        memory_bandwidth_percent=62.5,
        sm_clock_mhz=1755,
        memory_clock_mhz=2619,
        performance_state=0,
        throttle_reasons=("power cap", "thermal slowdown"),
        pcie_sent_bytes_per_s=1.25e9,
        pcie_received_bytes_per_s=0.0,
        nvlink_sent_bytes_per_s=3.1e10,
        nvlink_received_bytes_per_s=3.2e10,
        xgmi_sent_bytes_per_s=2.1e11,
        xgmi_received_bytes_per_s=0.0,
    )
    hardware = DeviceHardware(
        driver_version="570.86.15",
        cuda_version="12.8",
        power_limit_w=700.0,
        fan_percent=50.0,
        compute_mode="exclusive process",
        ecc_corrected=3,
        ecc_uncorrected=0,
        retired_pages=1,
        remapped_rows=2,
        is_repair_pending=True,
    )
    snapshot = make_training()
    assert snapshot.sample is not None
    first, second = snapshot.sample.devices
    devices = (
        msgspec.structs.replace(first, activity=activity, hardware=hardware),
        msgspec.structs.replace(second, activity=DeviceActivity(throttle_reasons=())),
    )
    (sample,) = assemble(agent_series(make_training(devices=devices)))
    assert (sample.devices[0].activity, sample.devices[0].hardware) == (activity, hardware)
    assert (sample.devices[1].activity, sample.devices[1].hardware) == (
        DeviceActivity(throttle_reasons=()),
        None,
    )
    (plain,) = assemble(agent_series(snapshot))
    assert [(it.activity, it.hardware) for it in plain.devices] == [(None, None)] * 2


def test_a_forecast_of_an_agent_is_preferred_to_one_that_is_made_of_scrapes() -> None:
    snapshot, assembler = make_training(), Assembler(15.0)
    (sample,) = assembler.add(agent_series(snapshot))
    risks = {it.rank: it for it in assembler.list_assessments(sample)}
    assert (risks[1].level, risks[1].probability, risks[1].oom_in_s) == ("high", 0.4, 89.5)
    assert (risks[0].level, risks[0].oom_in_s, risks[0].device, risks[0].pid) == (
        "low",
        None,
        "0",
        4000,
    )
    found = msgspec.structs.replace(
        risks[1], level="low", reason="floors do not rise", oom_in_s=None, peak_bytes=GIB
    )
    other = msgspec.structs.replace(found, pid=7)
    (merged, kept) = prefer_reported([found, other], [risks[1]])
    assert (merged.level, merged.oom_in_s, merged.peak_bytes) == ("high", 89.5, GIB)
    assert kept == other
    later = next(assembler.add(to_series("vramscope_device_up 1\n", T + 60, instance=f"{NODE}:1")))
    assert assembler.list_assessments(later) == ()


def test_findings_that_an_agent_counts_stand_as_long_as_it_does_and_not_twice() -> None:
    assembler = Assembler(15.0)
    with_finding, without = agent_series(make_training()), make_snapshot(1)
    (sample,) = assembler.add(with_finding)
    (finding,) = assembler.list_findings(sample)
    assert (finding.kind, finding.severity, finding.device_uuid) == ("pressure", "high", "GPU-0000")
    assert finding.title == f"pressure on GPU 0, reported by the agent of {NODE}"
    (sample,) = assembler.add(agent_series(make_training(), T + 15))
    assert [it.id for it in assembler.list_findings(sample)] == [finding.id]
    own = msgspec.structs.replace(finding, id="own", title="found here")
    assert join_findings([own], [finding]) == (own,)
    (sample,) = assembler.add(agent_series(without, T + 90))
    assert assembler.list_findings(sample) == ()


def test_a_modelled_card_stays_one() -> None:
    devices, ranks = make_simulated()
    canned = msgspec.structs.replace(make_sample(tuple(devices)), ranks=tuple(ranks))
    (sample,) = assemble(agent_series(make_snapshot(sample=canned)))
    assert [(it.label, it.is_simulated) for it in sample.devices] == [("sim0", True), ("sim1", True)]
    assert all(rank.is_simulated for rank in sample.ranks)


def test_a_device_that_its_agent_calls_lost_is_lost_with_its_last_figures() -> None:
    lost = msgspec.structs.replace(make_device(0), state="lost", age_s=9.0)
    before = agent_series(make_snapshot(sample=make_sample((make_device(0),))))
    after = agent_series(make_snapshot(sample=make_sample((lost,))), T + 15)
    device = assemble(before, after)[-1].devices[0]
    assert (device.state, device.age_s) == ("lost", 15.0)
    assert device.memory.used_bytes == make_device(0).memory.used_bytes


def test_a_device_that_dcgm_leaves_out_goes_stale_and_is_then_forgotten() -> None:
    scrapes = [to_series(dcgm_text({0: 1, 1: 2}))]
    scrapes += [to_series(dcgm_text({0: 1}), T + 15 * number) for number in range(1, 50)]
    samples = assemble(*scrapes)
    assert [it.state for it in samples[2].devices] == ["ok", "ok"]
    stale = samples[3].devices[1]
    assert (stale.state, stale.age_s, stale.memory.used_bytes) == ("stale", 45.0, 2 * MIB)
    assert stale.utilization_percent is None
    assert [it.index for it in samples[-1].devices] == [0]


def test_the_same_scrape_twice_is_one_sample_and_later_ones_are_numbered_on() -> None:
    first, second = to_series(dcgm_text({0: 1})), to_series(dcgm_text({0: 2}), T + 15)
    assert [sample.seq for sample in assemble(first, first, [*first, *second])] == [0, 1]


def test_of_two_exporters_on_a_node_the_agent_is_believed() -> None:
    own = agent_series(make_snapshot(sample=make_sample((make_device(0, 50.0),))))
    uuid = make_device(0).uuid
    other = to_series(dcgm_text({0: 1}, host=NODE).replace("GPU-dcgm-0", uuid))
    (sample,) = assemble([*other, *own])
    assert [it.memory.used_bytes for it in sample.devices] == [50 * GIB]


@pytest.mark.parametrize(("times", "interval_s"), [((0, 15, 30, 45), 15.0), ((0, 0.25), 0.25), ((0,), None)])
def test_the_interval_is_that_between_scrapes(times: tuple[float, ...], interval_s: float | None) -> None:
    assert measure_interval([Series({}, tuple((T + at, "1") for at in times))]) == interval_s


NAMES = st.sampled_from(
    ["DCGM_FI_DEV_FB_USED", "vramscope_rank_up", "vramscope_device_up", "nvidia_smi_index", "up"]
)
UUIDS = st.fixed_dictionaries({"UUID": st.text(min_size=1)})
LABELS = UUIDS | st.dictionaries(
    st.sampled_from(["UUID", "uuid", "gpu", "device", "pid", "GPU_I_ID", "instance"]), st.text()
)
VALUES = st.lists(st.tuples(st.floats(0, 2e9), st.sampled_from(["NaN", "+Inf", "-1", "1e300", "", "7", "x"])))


@given(st.lists(st.tuples(NAMES, LABELS, VALUES)))
def test_labels_and_figures_of_any_kind_make_samples_or_nothing(
    rows: list[tuple[str, dict[str, str], list[tuple[float, str]]]],
) -> None:
    series = [Series({**labels, "__name__": name}, tuple(values)) for name, labels, values in rows]
    for sample in assemble(series):
        assert msgspec.json.decode(msgspec.json.encode(sample), type=Sample) == sample
