"""The last words of `vramscope run`: how the job ended, its peaks, and why memory ran out."""

import shlex
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..analyzers.health.codes import explain_event
from ..analyzers.sentence import count
from ..engine.jobs.foreground import Ended
from ..engine.jobs.job_peaks import ProcessPeaks
from ..engine.model import DeviceEvent
from ..engine.units import format_age, format_bytes
from .text import format_range

if TYPE_CHECKING:
    from ..analyzers.planning.steps import OutsidePart

# Tenths of a second are shown below.
_SHORT_S = 10.0


class FailedAllocation(NamedTuple):
    """What the flight record of an out-of-memory error has about it."""

    path: str
    # Of the request.
    size_bytes: int | None
    # How much more free on the device would have been enough; None where that is unknown.
    shortage_bytes: int | None
    # Line that had allocated most of what was live, and how much.
    holder: str | None
    holder_bytes: int | None
    # What was missing even if all that was free had been in one piece; None where that is unknown.
    lacking_bytes: int | None = None


# Says what a process on a simulated card would take of a real one besides its tensors.
SizeOutside = Callable[[ProcessPeaks], "Sequence[OutsidePart]"]


class _Card(NamedTuple):
    """One device with the processes of the job on it."""

    processes: tuple[ProcessPeaks, ...]

    @property
    def reserved_bytes(self) -> int:
        return sum(it.reserved_bytes for it in self.processes)

    @property
    def allocated_bytes(self) -> int:
        return max(it.allocated_bytes for it in self.processes)

    @property
    def context_bytes(self) -> int:
        return sum(it.context_bytes or 0 for it in self.processes)

    @property
    def total_bytes(self) -> int | None:
        first = self.processes[0]
        return first.capacity_bytes or (first.device.total_bytes if first.device is not None else None)

    @property
    def share(self) -> float:
        # Some allocators of JAX report no pool.
        used_bytes = (self.reserved_bytes or self.allocated_bytes) + self.context_bytes
        return used_bytes / self.total_bytes if self.total_bytes else float(used_bytes > 0)


def describe_job_end(
    ended: Ended,
    *,
    passed_s: float,
    processes: Sequence[ProcessPeaks] | None,
    read_failure: Callable[[str], FailedAllocation | None],
    host_kills: int,
    events: Sequence[DeviceEvent] = (),
    size_outside: SizeOutside | None = None,
) -> list[str]:
    """Return one or two sentences, and one more where a GPU's driver reported an error meanwhile.

    Args:
        passed_s: From the start to the end of the job.
        processes: Peaks of all processes that used a device; None where they are unknown.
        read_failure: Reads a flight record by its path; None where it cannot be read.
        host_kills: Processes of this host that the kernel killed meanwhile because its memory was full.
        events: Errors that drivers reported meanwhile, oldest first.
        size_outside: Of a simulated job; without it the context that was simulated is taken as exact.
    """
    sentences = _describe_job(ended, passed_s, processes, read_failure, host_kills, size_outside)
    if ended.exit_code != 0:
        has_failed = any(it.flight_record is not None for it in processes or ())
        sentences += _describe_events(events, {it.pid for it in processes or ()}, is_cause=not has_failed)
    return sentences


def _describe_events(events: Sequence[DeviceEvent], pids: set[int], *, is_cause: bool) -> list[str]:
    """Describe the first error that may have ended the job: it names a process of the job, or none."""
    own = [it for it in events if it.pid is None or it.pid in pids]
    # The first is the cause; what follows comes of it.
    first = next((it for it in own if it.pid is not None), own[0] if own else None)
    if first is None:
        return []
    where = "" if first.pci_address is None else f" of the GPU at {first.pci_address}"
    who = "while the job ran" if first.pid is None else f"for its process {first.pid}"
    end = "; this is no lack of memory" if is_cause else ""
    return [f"{first.name}{where} {who}: {explain_event(first).what}{end}"]


def _describe_job(
    ended: Ended,
    passed_s: float,
    processes: Sequence[ProcessPeaks] | None,
    read_failure: Callable[[str], FailedAllocation | None],
    host_kills: int,
    size_outside: SizeOutside | None,
) -> list[str]:
    how = _describe_end(ended, passed_s, host_kills)
    if processes is None:
        return [how]
    cards = _group(processes)
    if not cards:
        return [f"{how}; no process of the job used a GPU through PyTorch or JAX"]
    fullest = max(cards, key=lambda card: card.share)
    failed = [it for it in processes if it.flight_record is not None]
    newest = max(failed, key=lambda it: it.flight_record or "", default=None)
    failure = None if newest is None else read_failure(newest.flight_record or "")
    peak = _describe_peak(fullest, len(processes))
    if fullest.processes[0].is_simulated:
        # An error on another card does not say how much is missing on this one.
        is_here = newest is not None and newest in fullest.processes
        lacking_bytes = failure.lacking_bytes if failure is not None and is_here else None
        peak += _judge_simulated(
            fullest, size_outside, is_fine=ended.exit_code == 0, lacking_bytes=lacking_bytes
        )
    first = f"{how}; {peak}"
    return [first] if failure is None else [first, _describe_failure(failure)]


def _describe_end(ended: Ended, passed_s: float, host_kills: int) -> str:
    after = f"after {passed_s:.1f} s" if passed_s < _SHORT_S else f"after {format_age(passed_s)}"
    if ended.signal_number is None:
        return f"ended {after}" if ended.exit_code == 0 else f"ended {after} with exit code {ended.exit_code}"
    name = _name_signal(ended.signal_number)
    if ended.signal_number == signal.SIGKILL and host_kills:
        return f"killed {after} ({name}) while the kernel was killing processes because host memory was full"
    return f"ended {after} by {name}"


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _group(processes: Sequence[ProcessPeaks]) -> list[_Card]:
    """Return the devices; only a simulated one is known to be shared by processes of this job alone."""
    found: dict[object, list[ProcessPeaks]] = {}
    for process in processes:
        device = process.device
        has_limit = device is not None and bool(process.capacity_bytes or device.total_bytes)
        # Some allocators of JAX report no pool; its arrays in the host's memory have no limit.
        # With an error and nothing reserved, the first request of all has failed.
        has_used = process.reserved_bytes or process.ooms or (has_limit and process.allocated_bytes)
        if device is None or not has_used:
            continue
        key = device.uuid if process.is_simulated else process.pid
        found.setdefault(key, []).append(process)
    return [_Card(tuple(members)) for members in found.values()]


def _describe_peak(card: _Card, process_count: int) -> str:
    reserved = format_bytes(card.reserved_bytes)
    total_bytes = card.total_bytes
    whole = "" if total_bytes is None else f" of {format_bytes(total_bytes)}"
    where = _name_place(card, process_count)
    if not card.processes[0].is_simulated:
        pool = f", reserved {reserved}" if card.reserved_bytes else ""
        return f"peak allocated {format_bytes(card.allocated_bytes)}{pool}{whole}{where}"
    context = f" with {format_bytes(card.context_bytes)} of context" if card.context_bytes else ""
    upper = "up to " if len(card.processes) > 1 else ""
    return f"simulated: peak reserved {upper}{reserved}{whole}{context}{where}"


def _judge_simulated(
    card: _Card, size_outside: SizeOutside | None, *, is_fine: bool, lacking_bytes: int | None
) -> str:
    """Return whether a job would fit a real card: by the range of what no tensor holds, as for an estimate.

    It ran next to its context alone. Without an error it fits if there is room for the upper end of the
    range; after one it does not fit if the lower end would not have left as much more as was missing.

    Args:
        lacking_bytes: What was missing at its error; None where that is unknown.
    """
    ooms = sum(it.ooms for it in card.processes)
    errors = count(ooms, "out-of-memory error")
    if ooms and is_fine:
        return f"; the job handled {errors}"
    if card.total_bytes is None or (not is_fine and not ooms):
        return ""
    set_aside_bytes = card.context_bytes
    least_bytes = most_bytes = set_aside_bytes
    if size_outside is not None:
        parts = [part for process in card.processes for part in size_outside(process)]
        least_bytes = sum(part.least_bytes for part in parts)
        most_bytes = sum(part.most_bytes for part in parts)
    room = f"with {format_range(least_bytes, most_bytes)} for what no tensor holds"
    if ooms:
        gained_bytes = set_aside_bytes - least_bytes
        is_sure = gained_bytes <= 0 or (lacking_bytes is not None and lacking_bytes > gained_bytes)
        return f": {'does not fit' if is_sure else 'cannot say whether it fits'} {room}, {errors}"
    headroom_bytes = card.total_bytes - card.reserved_bytes - most_bytes
    if headroom_bytes >= 0:
        return f": fits {room}, at least {format_bytes(headroom_bytes)} headroom"
    if most_bytes <= set_aside_bytes:
        return f": fits {room}, as its processes had their peaks at different times"
    return f": cannot say whether it fits {room}"


def _name_place(card: _Card, process_count: int) -> str:
    if process_count == 1:
        return ""
    if len(card.processes) > 1:
        return f" ({len(card.processes)} processes on one card)"
    coordinates = card.processes[0].coordinates
    rank = f"process {card.processes[0].pid}" if coordinates is None else f"rank {coordinates.rank}"
    return f" ({rank}, the fullest of {process_count})"


def _describe_failure(failure: FailedAllocation) -> str:
    lacked = ""
    if failure.shortage_bytes is not None:
        lacked = f"{format_bytes(failure.shortage_bytes)} more were needed; "
    elif failure.size_bytes is not None:
        lacked = f"a request of {format_bytes(failure.size_bytes)} failed; "
    held = ""
    if failure.holder is not None:
        held = f"{failure.holder} held most, {format_bytes(failure.holder_bytes)}; "
    return f"{lacked}{held}why: vramscope inspect {shlex.quote(failure.path)}"
