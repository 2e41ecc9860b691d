"""The last words of `vramscope run`: true for every end of a job."""

import signal
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from vramscope.analyzers.planning.steps import OutsidePart
from vramscope.engine.jobs.foreground import Ended
from vramscope.engine.jobs.job_peaks import ProbedDevicePeaks, ProcessPeaks
from vramscope.engine.model import DeviceEvent, RankCoordinates
from vramscope.engine.units import GIB, MIB
from vramscope.exporters.job_end import FailedAllocation, describe_job_end

FINE = Ended(0, None)


def process(
    rank: int,
    reserved_gib: float,
    *,
    total_gib: int = 80,
    is_simulated: bool = False,
    card: int = 0,
    ooms: int = 0,
    flight_record: str | None = None,
) -> ProcessPeaks:
    return ProcessPeaks(
        pid=100 + rank,
        allocated_bytes=round((reserved_gib - 1) * GIB),
        reserved_bytes=round(reserved_gib * GIB),
        ooms=ooms,
        is_simulated=is_simulated,
        device=ProbedDevicePeaks(index=card, uuid=f"card-{card}", total_bytes=total_gib * GIB),
        coordinates=RankCoordinates(rank=rank),
        context_bytes=GIB // 2 if is_simulated else None,
        flight_record=flight_record,
    )


def describe(
    ended: Ended,
    *processes: ProcessPeaks,
    passed_s: float = 725.0,
    failure: FailedAllocation | None = None,
    host_kills: int = 0,
    events: Sequence[DeviceEvent] = (),
) -> list[str]:
    return describe_job_end(
        ended,
        passed_s=passed_s,
        processes=processes,
        read_failure=lambda _: failure,
        host_kills=host_kills,
        events=events,
    )


def test_the_fullest_rank_is_named_with_what_it_allocated_and_reserved() -> None:
    assert describe(FINE, process(0, 50), process(3, 74), process(5, 60)) == [
        "ended after 12 m 05 s; peak allocated 73.0 GiB, reserved 74.0 GiB of 80.0 GiB "
        "(rank 3, the fullest of 3)"
    ]
    assert describe(FINE, process(0, 50), passed_s=3.21) == [
        "ended after 3.2 s; peak allocated 49.0 GiB, reserved 50.0 GiB of 80.0 GiB"
    ]


def test_a_process_of_jax_whose_allocator_reports_no_pool_has_its_peak_too() -> None:
    assert describe(FINE, replace(process(0, 50), reserved_bytes=0)) == [
        "ended after 12 m 05 s; peak allocated 49.0 GiB of 80.0 GiB"
    ]
    on_host = replace(process(0, 50), reserved_bytes=0, device=ProbedDevicePeaks(index=0))
    assert describe(FINE, on_host) == [
        "ended after 12 m 05 s; no process of the job used a GPU through PyTorch or JAX"
    ]


def test_a_process_whose_first_request_failed_has_used_its_device() -> None:
    refused = replace(process(0, 0, ooms=1), allocated_bytes=0)
    assert describe(FINE, refused) == ["ended after 12 m 05 s; peak allocated 0 B of 80.0 GiB"]


@pytest.mark.parametrize(
    ("ended", "host_kills", "said"),
    [
        (Ended(7, None), 0, "ended after 12 m 05 s with exit code 7"),
        (Ended(None, signal.SIGSEGV), 0, "ended after 12 m 05 s by SIGSEGV"),
        (Ended(None, signal.SIGKILL), 0, "ended after 12 m 05 s by SIGKILL"),
        (
            Ended(None, signal.SIGKILL),
            1,
            "killed after 12 m 05 s (SIGKILL) while the kernel was killing processes because host memory was "
            "full",
        ),
        (Ended(None, signal.SIGRTMIN + 3), 0, f"ended after 12 m 05 s by signal {signal.SIGRTMIN + 3}"),
    ],
)
def test_an_end_that_was_not_fine_is_said(ended: Ended, host_kills: int, said: str) -> None:
    (line,) = describe(ended, host_kills=host_kills)
    assert line == f"{said}; no process of the job used a GPU through PyTorch or JAX"
    unknown = describe_job_end(
        ended, passed_s=725.0, processes=None, read_failure=lambda _: None, host_kills=host_kills
    )
    assert unknown == [said]


def part(least_mib: int, most_mib: int) -> OutsidePart:
    return OutsidePart(
        name="context",
        least_bytes=least_mib * MIB,
        likely_bytes=512 * MIB,
        most_bytes=most_mib * MIB,
        source="a test",
    )


PEAK = "simulated: peak reserved 5.0 GiB of 8.0 GiB with 512 MiB of context"


def judge(
    ended: Ended,
    ooms: int = 0,
    *,
    most_mib: int = 2048,
    lacking_mib: int | None = None,
    reserved_gib: int = 5,
) -> str:
    """Return what is said of a job on a card of 8 GiB, with 256 MiB or more for what no tensor holds."""
    record = "/tmp/oom.json.gz" if ooms else None
    simulated = process(0, reserved_gib, total_gib=8, is_simulated=True, ooms=ooms, flight_record=record)
    lacking_bytes = None if lacking_mib is None else lacking_mib * MIB
    (first, *_) = describe_job_end(
        ended,
        passed_s=725.0,
        processes=[simulated],
        read_failure=lambda _: FailedAllocation("/tmp/oom.json.gz", None, None, None, None, lacking_bytes),
        host_kills=0,
        size_outside=lambda _: (part(128, most_mib - 64), part(128, 64)),
    )
    return first.partition("; ")[2]


def test_a_simulated_job_fits_if_it_does_with_the_upper_end_of_what_no_tensor_holds() -> None:
    assert (
        judge(FINE)
        == f"{PEAK}: fits with 256 MiB to 2.0 GiB for what no tensor holds, at least 1.0 GiB headroom"
    )
    assert judge(FINE, most_mib=3072) == (
        f"{PEAK}: fits with 256 MiB to 3.0 GiB for what no tensor holds, at least 0 B headroom"
    )
    assert judge(FINE, most_mib=3073) == (
        f"{PEAK}: cannot say whether it fits with 256 MiB to 3.0 GiB for what no tensor holds"
    )


def test_a_simulated_job_does_not_fit_if_the_lower_end_would_not_have_helped() -> None:
    # It ran next to 512 MiB, and the lower end would have left 256 MiB more.
    end = "with 256 MiB to 2.0 GiB for what no tensor holds, 1 out-of-memory error"
    failed = Ended(1, None)
    assert judge(failed, 1, lacking_mib=257) == f"{PEAK}: does not fit {end}"
    assert judge(failed, 1, lacking_mib=256) == f"{PEAK}: cannot say whether it fits {end}"
    assert judge(failed, 1) == f"{PEAK}: cannot say whether it fits {end}", "what was missing is unknown"


def test_a_simulated_job_that_shows_nothing_is_not_judged() -> None:
    assert judge(FINE, 2) == f"{PEAK}; the job handled 2 out-of-memory errors"
    # A job that something else has ended has not shown that it fits.
    assert judge(Ended(1, None)) == PEAK


def test_a_measured_context_alone_is_no_range() -> None:
    def simulated(*, ooms: int = 0) -> ProcessPeaks:
        return process(0, 5, total_gib=8, is_simulated=True, ooms=ooms)

    room = "with 512 MiB for what no tensor holds"
    assert describe(FINE, simulated()) == [
        f"ended after 12 m 05 s; {PEAK}: fits {room}, at least 2.5 GiB headroom"
    ]
    assert describe(Ended(1, None), simulated(ooms=1)) == [
        f"ended after 12 m 05 s with exit code 1; {PEAK}: does not fit {room}, 1 out-of-memory error"
    ]


def test_processes_on_one_simulated_card_are_added_up_and_said_to_be_an_upper_bound() -> None:
    def both(reserved_gib: float) -> list[str]:
        ranks = [process(rank, reserved_gib, total_gib=8, is_simulated=True) for rank in (0, 1)]
        return describe(FINE, *ranks, process(2, 1, total_gib=8, is_simulated=True, card=1))

    head = "ended after 12 m 05 s; simulated: peak reserved up to"
    tail = "of 8.0 GiB with 1.0 GiB of context (2 processes on one card)"
    room = "fits with 1.0 GiB for what no tensor holds"
    assert both(3) == [f"{head} 6.0 GiB {tail}: {room}, at least 1.0 GiB headroom"]
    assert both(4) == [f"{head} 8.0 GiB {tail}: {room}, as its processes had their peaks at different times"]


def test_after_an_error_the_line_that_held_most_and_the_record_follow() -> None:
    failed = process(1, 79, ooms=1, flight_record="/tmp/oom 1.json.gz")
    failure = FailedAllocation("/tmp/oom 1.json.gz", GIB, 512 * MIB, "train.py:41", 40 * GIB)
    _, second = describe(Ended(1, None), process(0, 50), failed, failure=failure)
    assert second == (
        "512 MiB more were needed; train.py:41 held most, 40.0 GiB; why: "
        "vramscope inspect '/tmp/oom 1.json.gz'"
    )
    unknown = FailedAllocation("/tmp/oom 1.json.gz", GIB, None, None, None)
    _, second = describe(Ended(1, None), failed, failure=unknown)
    assert second == "a request of 1.0 GiB failed; why: vramscope inspect '/tmp/oom 1.json.gz'"
    _, second = describe(Ended(1, None), failed, failure=unknown._replace(size_bytes=None))
    assert second == "why: vramscope inspect '/tmp/oom 1.json.gz'"
    assert len(describe(Ended(1, None), failed)) == 1, "a record that is gone is not named"


def test_a_job_that_an_error_of_its_gpu_ended_is_not_called_out_of_memory() -> None:
    event = DeviceEvent(
        time_s=1.0, kind="xid", source="kernel log", code=31, pci_address="0000:41:00", pid=100
    )
    later = replace(event, code=45, pid=None)
    first, second = describe(Ended(1, None), process(0, 79), events=(later, event))
    assert first.startswith("ended after 12 m 05 s with exit code 1; peak allocated 78.0 GiB")
    assert second == (
        "XID 31 of the GPU at 0000:41:00 for its process 100: a program accessed an address that is not "
        "mapped; this is no lack of memory"
    )
    assert len(describe(FINE, process(0, 79), events=(event,))) == 1, "it ended well"
    assert len(describe(Ended(1, None), process(0, 79), events=(replace(event, pid=7),))) == 1, "of others"


def test_an_out_of_memory_error_stays_one_whatever_else_was_reported() -> None:
    event = DeviceEvent(time_s=1.0, kind="xid", source="kernel log", code=45)
    failure = FailedAllocation("x.oom", GIB, None, None, None)
    lines = describe(Ended(1, None), process(0, 79, flight_record="x.oom"), failure=failure, events=(event,))
    assert len(lines) == 3
    assert "no lack of memory" not in lines[2]
