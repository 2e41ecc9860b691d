"""A recording of one job holds nothing that is of another job alone."""

from vramscope.engine.model import Assessment, DeviceSample, Finding, RankSample, Sample
from vramscope.engine.recording.follower import JobView
from vramscope.engine.viewer.this_node import Words


def make_sample(*ranks: RankSample, devices: tuple[DeviceSample, ...]) -> Sample:
    """Return a sample of some processes and devices."""
    return Sample("node", 1, 1.0, 1.0, devices, ranks=ranks)


def make_rank(pid: int, job: str | None, uuid: str) -> RankSample:
    """Return a process of a job on a device."""
    return RankSample(pid=pid, job=job, device_uuid=uuid)


OWN = DeviceSample(uuid="sim-own-0", index=0, kind="simulated")
OTHER = DeviceSample(uuid="sim-other-0", index=1, kind="simulated", state="ended")
REAL = DeviceSample(uuid="GPU-a", index=2)


def test_cards_and_processes_of_other_jobs_are_left_out_and_stay_so() -> None:
    view = JobView("own")
    ranks = (
        make_rank(1, "own", OWN.uuid),
        make_rank(2, "other", OTHER.uuid),
        make_rank(3, "other", REAL.uuid),
    )
    seen = view.narrow(make_sample(*ranks, make_rank(4, None, REAL.uuid), devices=(OWN, OTHER, REAL)))
    assert isinstance(seen, Sample)
    assert [device.uuid for device in seen.devices] == [OWN.uuid, REAL.uuid], "a real device is the job's too"
    assert [rank.pid for rank in seen.ranks] == [1, 4]
    later = view.narrow(make_sample(ranks[0], devices=(OWN, OTHER)))
    assert isinstance(later, Sample)
    assert later.devices == (OWN,), "its processes are forgotten before its card is"


def test_what_is_found_of_other_jobs_is_left_out() -> None:
    view = JobView("own")
    view.narrow(
        make_sample(make_rank(1, "own", OWN.uuid), make_rank(2, "other", OTHER.uuid), devices=(OWN, OTHER))
    )

    def finding(uuid: str | None) -> Finding:
        return Finding(f"oom {uuid}", "oom", "node", uuid, None, "high", "title", 1.0, 1.0)

    def assessment(pid: int, uuid: str) -> Assessment:
        return Assessment("node", uuid, None, 1.0, "low", "", pid=pid)

    told = Words(
        (finding(OWN.uuid), finding(OTHER.uuid), finding(None)),
        (assessment(1, OWN.uuid), assessment(2, OTHER.uuid)),
    )
    kept = view.narrow(told)
    assert isinstance(kept, Words)
    assert [it.device_uuid for it in kept.findings] == [OWN.uuid, None]
    assert [it.pid for it in kept.assessments or ()] == [1]
    assert view.narrow(Words()) == Words(), "nothing new stays nothing new"


def test_a_sample_without_others_is_handed_on_as_it_is() -> None:
    sample = make_sample(make_rank(1, "own", OWN.uuid), devices=(OWN, REAL))
    assert JobView("own").narrow(sample) is sample
