"""The newest word on each process, as its hub knows it: forgotten once the process is gone."""

from collections.abc import Iterable

import msgspec

from ..model import Assessment, Sample

GONE_AFTER_S = 60.0
"""How long a process or device may be missing from the samples, in their own clock."""
MAX_ASSESSMENTS = 4096
"""More than a node has devices and processes."""
MAX_ASSESSMENT_BYTES = 8 * 1024

AssessmentKey = tuple[str | None, int | None, float | None]
"""UUID of the device, process id and start time; the last two None where a device as a whole is assessed."""


def assessment_key(assessment: Assessment) -> AssessmentKey:
    """Return whom an assessment is of."""
    return assessment.device_uuid, assessment.pid, assessment.started_s


class AssessmentStore:
    """Assessments by whom they are of."""

    def __init__(self) -> None:
        self._newest: dict[AssessmentKey, Assessment] = {}
        self._seen_s: dict[AssessmentKey, float | None] = {}
        self._source: int | None = None
        self.dropped = 0
        """Assessments that were not taken: too large, or of more processes than there can be."""

    @property
    def notes(self) -> tuple[str, ...]:
        """How many were not taken, in a sentence; nothing where all were."""
        if not self.dropped:
            return ()
        return (
            f"{self.dropped:,} forecasts were dropped: at most {MAX_ASSESSMENTS:,} are kept, of "
            f"{MAX_ASSESSMENT_BYTES >> 10} KiB each",
        )

    def merge(self, assessments: Iterable[Assessment]) -> bool:
        """Take assessments and return whether any is new or changed."""
        is_changed = False
        for assessment in assessments:
            key = assessment_key(assessment)
            has_room = key in self._newest or len(self._newest) < MAX_ASSESSMENTS
            if not has_room or len(msgspec.msgpack.encode(assessment)) > MAX_ASSESSMENT_BYTES:
                self.dropped += 1
                continue
            self._seen_s.setdefault(key, None)
            is_changed = is_changed or self._newest.get(key) != assessment
            self._newest[key] = assessment
        return is_changed

    def begin_anew(self, source: int) -> bool:
        """Forget all if what comes is of another worker than before; return whether anything was."""
        is_new = source != self._source
        self._source = source
        had_any = bool(self._newest)
        if is_new:
            self._newest = {}
            self._seen_s = {}
        return is_new and had_any

    def observe(self, sample: Sample) -> bool:
        """Drop what is of a process that has ended, or was not seen for a minute; return whether any was."""
        if not self._newest:
            return False
        here, over = _find_living(sample)
        gone = [
            key for key in self._newest if key in over or not self._is_remembered(key, here, sample.time_s)
        ]
        for key in gone:
            del self._newest[key], self._seen_s[key]
        return bool(gone)

    def all(self) -> tuple[Assessment, ...]:
        """Return all, by device and process."""
        return tuple(self._newest[key] for key in sorted(self._newest, key=_order))

    def _is_remembered(self, key: AssessmentKey, here: set[AssessmentKey], time_s: float) -> bool:
        seen_s = self._seen_s[key]
        if key in here or seen_s is None:
            self._seen_s[key] = time_s
            return True
        return 0.0 <= time_s - seen_s < GONE_AFTER_S


def _find_living(sample: Sample) -> tuple[set[AssessmentKey], set[AssessmentKey]]:
    """Return who is in a sample, and who is over in it."""
    here: set[AssessmentKey] = set()
    over: set[AssessmentKey] = set()
    for device in sample.devices:
        (over if device.state == "ended" else here).add((device.uuid, None, None))
    for rank in sample.ranks:
        (over if rank.state == "ended" else here).add((rank.device_uuid, rank.pid, rank.started_s))
    return here, over


def _order(key: AssessmentKey) -> tuple[str, int, float]:
    uuid, pid, started_s = key
    return uuid or "", pid or 0, started_s or 0.0
