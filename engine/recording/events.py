"""What happened, told from one sample to the next: steps, phases, errors, ranks that come and go, gaps."""

from collections.abc import Iterator

from ..model import DeviceSample, RankSample, Sample
from .contents import EventKind, RecordingEvent

FREQUENT: frozenset[EventKind] = frozenset({"step", "phase"})
"""Kinds that are in every sample of a job that trains; they are found again when they are asked for."""
_MOST_COUNT = (1 << 63) - 1
"""The largest integer that a file can hold."""
_RankKey = tuple[int, float | None]


class EventFinder:
    """Compares each sample of one node with the one before."""

    def __init__(self) -> None:
        self._before: Sample | None = None
        self._ranks: dict[_RankKey, RankSample] = {}
        self._devices: dict[str, DeviceSample] = {}

    def observe(self, sample: Sample) -> list[RecordingEvent]:
        """Return what happened between the sample before and this one."""
        found = [
            *self._compare_seqs(sample),
            *(event for rank in sample.ranks for event in self._compare_rank(sample, rank)),
            *(event for device in sample.devices for event in self._compare_device(sample, device)),
        ]
        ranks = {_key(rank): rank for rank in sample.ranks}
        for key, rank in self._ranks.items():
            if key not in ranks and rank.state != "ended":
                found.append(_of_rank("rank_ended", sample, rank, "is no longer reported"))
        self._before = sample
        self._ranks = ranks
        self._devices = {device.uuid: device for device in sample.devices}
        return found

    def _compare_seqs(self, sample: Sample) -> Iterator[RecordingEvent]:
        before = self._before
        if before is None or sample.seq == before.seq + 1:
            return
        if sample.seq <= before.seq:
            text = "the numbers of samples begin anew: the agent was restarted"
            yield RecordingEvent("hub_restarted", sample.time_s, sample.node, text)
            return
        count = min(sample.seq - before.seq - 1, _MOST_COUNT)
        text = f"{count:,} samples never arrived"
        yield RecordingEvent("samples_dropped", sample.time_s, sample.node, text, count=count)

    def _compare_rank(self, sample: Sample, rank: RankSample) -> Iterator[RecordingEvent]:
        before = self._ranks.get(_key(rank))
        if before is None and rank.state != "ended":
            job = "" if rank.job is None else f", job {rank.job}"
            yield _of_rank("rank_attached", sample, rank, f"reports{job}")
        if rank.state == "ended" and before is not None and before.state != "ended":
            yield _of_rank("rank_ended", sample, rank, rank.reason or "has ended")
        if rank.oom_s is not None and rank.oom_s != (None if before is None else before.oom_s):
            yield _of_rank("oom", sample, rank, "ran out of memory")
        if rank.step is not None and (before is None or rank.step != before.step):
            yield _of_rank("step", sample, rank, f"ended step {rank.step.index}", step=rank.step.index)
        if rank.phase is not None and (before is None or rank.phase != before.phase):
            yield _of_rank("phase", sample, rank, rank.phase)

    def _compare_device(self, sample: Sample, device: DeviceSample) -> Iterator[RecordingEvent]:
        before = self._devices.get(device.uuid)
        if before is not None and device.state != before.state:
            why = "" if device.reason is None else f": {device.reason}"
            text = f"device {device.label} is {device.state}{why}"
            yield RecordingEvent("device_state", sample.time_s, sample.node, text, device_uuid=device.uuid)
        ooms = _count_ooms(device)
        ooms_before = 0 if before is None else _count_ooms(before)
        if ooms > ooms_before and not sample.ranks:
            text = f"device {device.label} ran out of memory"
            count = ooms - ooms_before
            yield RecordingEvent(
                "oom",
                sample.time_s,
                sample.node,
                text,
                device_uuid=device.uuid,
                step=device.step,
                count=count,
            )
        if device.step is not None and before is not None and device.step != before.step and not sample.ranks:
            text = f"device {device.label} is at step {device.step}"
            yield RecordingEvent(
                "step", sample.time_s, sample.node, text, device_uuid=device.uuid, step=device.step
            )


def _count_ooms(device: DeviceSample) -> int:
    """Return the errors that an imported file tells of a device; processes that report tell their own."""
    return 0 if device.allocator is None else device.allocator.ooms or 0


def _key(rank: RankSample) -> _RankKey:
    return rank.pid, rank.started_s


def _of_rank(
    kind: EventKind, sample: Sample, rank: RankSample, text: str, *, step: int | None = None
) -> RecordingEvent:
    number = None if rank.coordinates is None else rank.coordinates.rank
    who = f"process {rank.pid}" if number is None else f"rank {number}"
    said = text if kind == "phase" else f"{who} {text}"
    return RecordingEvent(kind, sample.time_s, sample.node, said, rank.device_uuid, rank.pid, number, step)
