"""Devices that stop answering: one finding at a time, once it has lasted, until they answer again."""

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from vramscope.analyzers.device_state import DeviceStateAnalyzer
from vramscope.analyzers.verdict import summarize
from vramscope.engine.model import DeviceState, Finding, Sample

from .restart import last_words, restart, watch
from .samples import device, finding, sample

BUS = "fell off the bus (XID 79)"


def run(*spans: tuple[DeviceState, int], reason: str | None = None) -> list[Sample]:
    """Return a sample a second of one device, which is in each state for so many."""
    states = [state for state, seconds in spans for _ in range(seconds)]
    return [
        sample(device(state=state, reason=None if state == "ok" else reason), time_s=100.0 + tick)
        for tick, state in enumerate(states)
    ]


def find(samples: Iterable[Sample]) -> list[Finding]:
    return watch(DeviceStateAnalyzer(), samples)


def evidence(found: Finding) -> dict[str, object]:
    return {each.name: each.value for each in found.evidence}


def test_a_lost_device_is_a_high_finding_after_ten_seconds() -> None:
    assert find(run(("ok", 5), ("lost", 10), reason=BUS)) == []
    (opened,) = find(run(("ok", 5), ("lost", 60), reason=BUS))
    assert (opened.kind, opened.severity, opened.opened_s, opened.device) == (
        "device_lost",
        "high",
        115.0,
        "0",
    )
    assert opened.title == "GPU 0 lost: fell off the bus (XID 79)"
    assert evidence(opened) == {"since": 105.0, "last answer": 104.0, "reported": BUS}
    assert "restart the job without it" in opened.advice
    assert "nvidia-smi --gpu-reset -i 0" in opened.advice


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        (
            "AMD Instinct MI300X",
            ("amd-smi reset --gpureset --gpu 0000:c1:00.0", "dmesg | grep -i amdgpu"),
        ),
        ("Intel Arc B580", ("load its kernel driver again", "dmesg | grep -i -e i915 -e xe")),
    ],
)
def test_the_advice_names_the_commands_of_the_devices_maker(name: str, commands: tuple[str, ...]) -> None:
    samples = [
        replace(
            it,
            devices=tuple(
                replace(device, name=name, index=8, pci_address="0000:c1:00.0") for device in it.devices
            ),
        )
        for it in run(("ok", 5), ("lost", 20), reason="removed")
    ]
    (opened,) = find(samples)
    assert all(command in opened.advice for command in commands)
    assert "nvidia" not in opened.advice.lower()


def test_the_title_has_the_cause_and_the_evidence_what_the_driver_said() -> None:
    said = "the GPU fell off the bus (NVML error 15); see `dmesg | grep -i xid`, reset or reboot"
    (opened,) = find(run(("lost", 20), reason=said))
    assert opened.title == "GPU 0 lost: the GPU fell off the bus (NVML error 15)"
    assert evidence(opened)["reported"] == said


def test_it_closes_once_the_device_has_answered_for_ten_seconds() -> None:
    found = find(run(("ok", 5), ("lost", 20), ("ok", 30), reason=BUS))
    assert [it.is_open for it in found] == [True, False]
    assert found[1].closed_s == 135.0
    assert evidence(found[1])["closed because"] == "the device answers again"
    assert [it.is_open for it in find(run(("lost", 20), ("ok", 5), ("lost", 20)))] == [True]


def test_a_stale_device_becomes_high_when_it_stays_so() -> None:
    samples = [
        sample(
            device(state="stale", reason=f"a driver call has not returned for {tick} s"), time_s=100.0 + tick
        )
        for tick in range(80)
    ]
    opened, raised = find(samples)
    assert (opened.kind, opened.severity, opened.opened_s) == ("device_stale", "medium", 110.0)
    assert (raised.id, raised.severity, raised.updated_s) == (opened.id, "high", 160.0)
    assert opened.title == raised.title == "GPU 0 stale: a driver call has not returned"


def test_a_short_stall_is_no_finding() -> None:
    assert find(run(("ok", 5), ("stale", 9), ("ok", 5), ("stale", 9), ("ok", 5))) == []


def test_a_device_has_one_finding_at_a_time() -> None:
    stale, closed, lost = find(run(("stale", 20), ("lost", 20), reason=BUS))
    assert (stale.kind, stale.is_open) == ("device_stale", True)
    assert (closed.id, evidence(closed)["closed because"]) == (stale.id, "the driver has lost the device")
    assert (lost.kind, lost.opened_s) == ("device_lost", closed.closed_s)
    # While the driver looks for a lost device it is stale: the finding, and why it was lost, stay.
    (only,) = find([*run(("lost", 20), reason=BUS), *_later(run(("stale", 90), reason="not read yet"), 20)])
    assert only.title == f"GPU 0 lost: {BUS}"


def _later(samples: Sequence[Sample], seconds: float) -> list[Sample]:
    return [sample(*it.devices, time_s=it.time_s + seconds) for it in samples]


def test_a_device_that_is_no_longer_listed_has_no_finding() -> None:
    gone = [sample(time_s=120.0 + tick) for tick in range(20)]
    found = find([*run(("lost", 20)), *gone])
    assert evidence(found[-1])["closed because"] == "the device is no longer listed"


def test_modelled_devices_and_instances_of_a_lost_device_have_none() -> None:
    assert find(sample(device(state="stale", kind="trace"), time_s=float(t)) for t in range(30)) == []
    parent = device(state="lost")
    child = device(state="lost", index=0, mig_index=1, kind="mig")
    child = type(child)(uuid=child.uuid, index=0, mig_index=1, kind="mig", state="lost", parent_uuid="GPU-0")
    (only,) = find(sample(parent, child, time_s=float(t)) for t in range(30))
    assert only.device_uuid == "GPU-0"


def test_the_verdict_names_a_lost_device_once_and_is_as_severe_as_its_finding() -> None:
    samples = run(("ok", 5), ("lost", 20), reason=BUS)
    verdict = summarize(samples[-1], find(samples))
    assert verdict.text(200).count("GPU 0 lost") == 1
    assert verdict.level == "high"
    leak = finding("leak", "high", uuid="GPU-1", title="GPU 1 leaks 20 MiB a step")
    stale = run(("stale", 90), reason="a driver call has not returned for 90 s")
    told = summarize(stale[-1], [*last_words(find(stale)).values(), leak]).text(200)
    assert told.startswith("GPU 0 stale")
    assert told.count("has not returned") == 1


spans = st.lists(
    st.tuples(st.sampled_from(["ok", "lost", "stale", "unsupported", "absent"]), st.integers(1, 25)),
    max_size=12,
)


def history(drawn: list[tuple[str, int]]) -> list[Sample]:
    states = [state for state, seconds in drawn for _ in range(seconds)]
    return [
        sample(*([] if state == "absent" else [device(state=state)]), time_s=100.0 + tick)  # type: ignore[arg-type]
        for tick, state in enumerate(states)
    ]


@settings(deadline=None)
@given(spans)
def test_one_finding_is_open_at_a_time_and_only_what_is_open_closes(drawn: list[tuple[str, int]]) -> None:
    current: Finding | None = None
    for found in find(history(drawn)):
        if current is None:
            assert found.is_open
        else:
            assert (found.id, found.kind) == (current.id, current.kind)
        current = found if found.is_open else None


@settings(deadline=None)
@given(spans, st.data())
def test_a_worker_that_is_restarted_finds_the_same(drawn: list[tuple[str, int]], data: st.DataObject) -> None:
    samples = history(drawn)
    crash = data.draw(st.integers(0, len(samples)))
    assert last_words(restart(DeviceStateAnalyzer, samples, crash)) == last_words(find(samples))
