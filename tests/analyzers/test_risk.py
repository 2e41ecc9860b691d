"""Risk of a device: unknown with its reason, until somebody forecasts."""

import msgspec
import pytest

from vramscope.analyzers.risk import Risk, assess_risk, assess_risks
from vramscope.engine.model import AllocatorReading, DeviceSample, Evidence, Finding, RankSample, Severity

from .samples import assessment, device, finding


@pytest.mark.parametrize(
    ("state_of", "reason"),
    [
        (device(), "no allocator data"),
        (device(78.9), "no allocator data"),
        (device(None, age_s=None), "no allocator data"),
        (device(state="lost", reason="fell off the bus"), "device lost"),
        (device(state="stale", age_s=7.4), "stale 7 s"),
        (device(None, state="stale", age_s=None), "stale"),
        (device(None, state="unsupported"), "memory not readable"),
        (
            device(kind="trace", allocated_gib=30, total_bytes=None),
            "reserved bytes and capacity not recorded",
        ),
        (device(kind="trace", allocated_gib=30), "reserved bytes not recorded"),
        (device(allocated_gib=30), "reserved bytes not known"),
        (device(allocated_gib=30, reserved_gib=35), "no forecast from allocator data"),
    ],
)
def test_risk_is_unknown_and_says_why(state_of: DeviceSample, reason: str) -> None:
    assert assess_risk(state_of, ()) == Risk("unknown", reason)


def test_open_forecast_gives_level_and_reason() -> None:
    mild, grave = finding(severity="medium", title="mild"), finding(severity="high", title="grave")
    assert assess_risk(device(), (mild, grave)) == Risk("high", "grave")
    assert assess_risk(device(), (grave, mild)) == Risk("high", "grave")


def test_recorded_use_above_the_capacity_asked_about_is_critical() -> None:
    above = finding("capacity", title="would not fit 60.0 GiB: rank 0 used 74.9 GiB at 10.5 s")
    recorded = device(70, kind="trace", total_bytes=60 * 2**30)
    assert assess_risk(recorded, (above,)) == Risk("critical", above.title)


@pytest.mark.parametrize(
    "other",
    [
        finding(closed_s=5.0),
        finding(uuid="GPU-7"),
        finding("pressure", "medium"),
        finding("leak", "critical"),
    ],
)
def test_only_open_forecasts_of_this_device_count(other: object) -> None:
    assert assess_risk(device(), (other,)).level == "unknown"  # type: ignore[arg-type] # parametrized


def test_forecast_stands_while_the_device_is_stale_and_ends_when_it_is_lost() -> None:
    assert assess_risk(device(state="stale", age_s=3.0), (finding(),)).level == "critical"
    assert assess_risk(device(state="lost"), (finding(),)) == Risk("unknown", "device lost")


def _leak(left_s: float | None) -> Finding:
    title = "rank 0 leaks 20 MiB a step since step 112 (4.5 GiB)"
    evidence = (Evidence("time to out of memory", left_s, "s"),)
    return msgspec.structs.replace(finding("leak", "high", title=title), evidence=evidence)


def test_a_calm_word_never_contradicts_growth_that_is_told_of_the_same_device() -> None:
    leak, apart = _leak(500.0), finding("divergence", "medium", title="rank 3 grows away from its peers")
    calm = (assessment(reason="steady below the limit"),)
    assert assess_risk(device(), (leak,), calm) == Risk("high", leak.title)
    assert assess_risk(device(), (leak, apart), ()) == Risk("high", leak.title)
    assert assess_risk(device(), (apart,), calm) == Risk("medium", apart.title)
    assert assess_risk(device(), (_leak(None),), calm) == Risk("low", leak.title)
    assert assess_risk(device(state="ended", age_s=None), (leak,), calm) == Risk("unknown", "ended")


@pytest.mark.parametrize(("severity", "level"), [("low", "low"), ("high", "high"), ("critical", "critical")])
def test_a_calm_word_gives_way_to_fragmentation_that_leaves_steps_no_room(
    severity: Severity, level: str
) -> None:
    stranded = finding("fragmentation", severity=severity, title="rank 0 has 12.0 GiB stranded")
    risk = assess_risk(device(), [stranded], [assessment(level="low", oom_in_s=None)])
    assert (risk.level, risk.reason == stranded.title) == (level, severity != "low")


def test_a_forecast_of_growth_goes_before_the_pace_of_a_leak() -> None:
    slow = assessment(reason="its floor grows", oom_in_s=4000.0)
    assert assess_risk(device(), (_leak(5000.0),), (slow,)) == Risk("low", "its floor grows", 4000.0)
    assert assess_risk(device(), (_leak(500.0),), (assessment("medium", oom_in_s=900.0),)).level == "medium"


def _error(pid: int) -> Finding:
    title = f"rank 0 (pid {pid}) ran out of memory"
    evidence = (Evidence("process", pid), Evidence("started", 1.0, "s"), Evidence("job", f"job{pid}"))
    return msgspec.structs.replace(finding("oom_met", title=title), evidence=evidence)


def test_an_error_of_a_job_that_ended_is_no_risk_of_one_that_trains_on_the_device() -> None:
    calm, error = (assessment(reason="steady below the limit"),), _error(7)
    other, same_job = (
        RankSample(pid=8, started_s=0.5, device_uuid="GPU-0", job=job) for job in ("job8", "job7")
    )
    elsewhere = RankSample(pid=8, started_s=0.5, device_uuid="GPU-1", job="job8")
    assert assess_risk(device(), (error,), calm, (other,)) == Risk("low", "steady below the limit")
    assert assess_risk(device(), (error,), calm, (same_job,)) == Risk("critical", error.title)
    assert assess_risk(device(), (error,), calm, (elsewhere,)) == Risk("critical", error.title)
    assert assess_risk(device(), (error, _error(8)), calm, (other,)).level == "critical"


def test_devices_at_once_are_as_each_alone_and_nothing_is_read_once_for_every_device() -> None:
    devices = [device(30, index=number) for number in range(5)]
    findings = [finding(uuid="GPU-1", title="grave"), finding("leak", "critical", uuid="GPU-3"), finding()]
    words = [assessment(uuid=f"GPU-{number}", level="medium") for number in (2, 3)]
    alone = {it.uuid: assess_risk(it, findings, words) for it in devices}
    assert assess_risks(devices, iter(findings), iter(words)) == alone
    assert len(set(alone.values())) > 2


def test_a_device_whose_process_tells_of_its_allocator_is_not_said_to_have_no_data() -> None:
    told = RankSample(pid=8, device_uuid="GPU-0", allocator=AllocatorReading(allocated_bytes=1))
    silent = RankSample(pid=8, device_uuid="GPU-0", allocator=AllocatorReading())
    assert assess_risk(device(), (), (), (told,)).reason == "no forecast from allocator data"
    assert assess_risk(device(), (), (), (silent,)).reason == "no allocator data"


def test_what_was_said_of_a_device_before_its_process_reported_gives_way_to_that() -> None:
    alone = msgspec.structs.replace(assessment("unknown", reason="no allocator data"), pid=None, time_s=10.0)
    told = msgspec.structs.replace(assessment(reason="no growth found so far"), pid=8, time_s=11.0)
    assert assess_risk(device(), (), (alone, told)) == Risk("low", "no growth found so far")
    newer = msgspec.structs.replace(alone, time_s=12.0)
    assert assess_risk(device(), (), (newer, told)).level == "unknown"
