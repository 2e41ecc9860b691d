"""What a recording of one job leaves out: what is of other jobs alone."""

import msgspec

from ..model import Sample
from .heard import Heard, Words


class JobView:
    """Leaves out the processes of other jobs, and simulated cards that only these use.

    Real devices stay, with all that is used on them: what others hold there is missing to the job.

    Args:
        job: Name of the job. Processes of no job, that were attached to, stay too.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._strangers: set[int] = set()
        self._cards: set[str] = set()

    def narrow(self, heard: Heard) -> Heard:
        """Return what was heard without what is of other jobs alone."""
        return self._narrow_sample(heard) if isinstance(heard, Sample) else self._narrow_words(heard)

    def _narrow_sample(self, sample: Sample) -> Sample:
        strangers = [rank for rank in sample.ranks if rank.job not in (None, self._job)]
        if not strangers and not self._cards:
            return sample
        ranks = tuple(rank for rank in sample.ranks if rank.job in (None, self._job))
        own = {rank.device_uuid for rank in ranks}
        foreign = {rank.device_uuid for rank in strangers} - own
        self._strangers.update(rank.pid for rank in strangers)
        self._cards |= {it.uuid for it in sample.devices if it.kind == "simulated" and it.uuid in foreign}
        devices = tuple(device for device in sample.devices if device.uuid not in self._cards)
        return msgspec.structs.replace(sample, devices=devices, ranks=ranks)

    def _narrow_words(self, words: Words) -> Words:
        if words.assessments is None:
            assessments = None
        else:
            assessments = tuple(
                it
                for it in words.assessments
                if it.pid not in self._strangers and it.device_uuid not in self._cards
            )
        findings = tuple(it for it in words.findings if it.device_uuid not in self._cards)
        return Words(findings, assessments)
