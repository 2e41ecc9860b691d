"""The largest batch, or the longest sequence, that a card holds: found by runs, few of them.

What the phases of earlier runs needed predicts where the edge is; the answer is a size that ran, and the next
larger one did not. Where predictions are of no use the bracket is halved.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from vramscope.analyzers.planning.lengths import PeakKind, PeakLaws, fit_peaks
from vramscope.engine.errors import UsageError
from vramscope.engine.model.phase_memory import FitSearch, FitSize, FitTrial, PhaseRun, PhaseTraining
from vramscope.engine.units import format_bytes
from vramscope.exporters.lengths.text import describe_device, describe_end

from .lengths import RunOne, run_one

MOST_SIZES: dict[FitSize, int] = {"batch size": 1 << 16, "sequence length": 1 << 20}
"""Where a search ends without having met an edge."""
MOST_TRIALS = 40
_GROWTH = 16
"""Most times as large as what ran: beyond, predictions are worth little and runs are long."""
_FIRST_GROWTH = 4
_MOST_TERMS = 3
_MOST_SLOW = 3
_NEAR = 0.02
"""Share of the room by which a law may be off that is worth more than halving."""
_KINDS: tuple[PeakKind, ...] = ("reserved", "allocated")


class FitTask(msgspec.Struct, frozen=True, kw_only=True):
    """What is to fit where."""

    training: PhaseTraining
    """The size that is varied in it does not matter."""
    device: str
    """Where it runs: a simulated card of that capacity, or `cuda`."""
    varied: FitSize
    step: int
    """Sizes that are considered are its multiples."""
    capacity_bytes: int
    context_bytes: int

    def resize(self, size: int) -> PhaseTraining:
        """Return the training at a size."""
        if self.varied == "batch size":
            return msgspec.structs.replace(self.training, batch_size=size)
        return msgspec.structs.replace(self.training, seq_length=size)


def search_fit(
    task: FitTask,
    *,
    known: Mapping[int, PhaseRun] | None = None,
    run: RunOne = run_one,
    on_trial: Callable[[FitSearch], None] | None = None,
) -> FitSearch:
    """Run sizes until the largest that fits is known, and return all that was tried.

    An interruption, or a size that cannot be run here, ends the search with what is known until then.

    Args:
        task: What is to fit where.
        known: Runs on the same device by size; they count as tried.
        run: Trains once.
        on_trial: Given the search so far after each run.

    Raises:
        UsageError: Not even the first size could be started.
    """
    bracket = _Bracket(task, known or {})
    while bracket.search.refusal is None and not bracket.search.is_settled:
        if len(bracket.search.trials) >= MOST_TRIALS:
            bracket.end(f"ended after {MOST_TRIALS} runs")
            break
        size = bracket.choose_size()
        try:
            ran = run(task.resize(size), task.device)
        except UsageError as error:
            if not bracket.search.trials:
                raise
            bracket.end(f"{size:,} could not be run here: {error}")
            break
        except (KeyboardInterrupt, SystemExit):
            bracket.end("interrupted")
            break
        bracket.take(size, ran)
        if on_trial is not None:
            on_trial(bracket.search)
    return bracket.search


class _Bracket:
    """What ran and what did not, and what to run next."""

    def __init__(self, task: FitTask, known: Mapping[int, PhaseRun]) -> None:
        self._task = task
        self._runs: dict[int, PhaseRun] = {}
        self._slow = 0
        """Trials in a row that left more than half of the bracket."""
        self._stride = task.step
        """How far from what is known the next size is, should the law have nothing else to say."""
        self._room_bytes = task.capacity_bytes - task.context_bytes
        limit = MOST_SIZES[task.varied] // task.step * task.step
        self.search = FitSearch(
            privacy=task.training.privacy,
            varied=task.varied,
            fixed=task.training.seq_length if task.varied == "batch size" else task.training.batch_size,
            step=task.step,
            capacity_bytes=task.capacity_bytes,
            context_bytes=task.context_bytes,
            device=task.device,
            is_simulated=task.device.startswith("simulate"),
            limit=limit,
        )
        for size in sorted(known):
            if size % task.step == 0:
                self.take(size, known[size])
            else:
                self._runs[size] = known[size]

    @property
    def _low(self) -> int:
        largest = self.search.largest
        return 0 if largest is None else largest.size

    @property
    def _high(self) -> int | None:
        refused = self.search.refused
        return None if refused is None else refused.size

    def take(self, size: int, run: PhaseRun) -> None:
        """Note how a size ended; what neither ran nor ran out of memory ends the search."""
        width = None if self._high is None else self._high - self._low
        self._runs[size] = run
        self.search = msgspec.structs.replace(
            self.search,
            device=describe_device(run.device),
            is_simulated=run.device.kind == "simulated",
        )
        if run.end in ("interrupted", "failed"):
            self.end(describe_end(run) if run.end == "interrupted" else f"{size:,}: {describe_end(run)}")
            return
        trial = self._judge(size, run)
        self.search = msgspec.structs.replace(self.search, trials=(*self.search.trials, trial))
        is_halved = width is None or self._high is None or 2 * (self._high - self._low) <= width
        self._slow = 0 if is_halved else self._slow + 1

    def end(self, reason: str) -> None:
        """End the search without an answer that is certain."""
        self.search = msgspec.structs.replace(self.search, refusal=reason)

    def choose_size(self) -> int:
        """Return a multiple of the step between what ran and what did not."""
        step = self._task.step
        low = self._low
        high = self._high
        least = low + step
        most = self._limit_growth() if high is None else high - step
        laws = [fit_peaks(self._runs, kind) for kind in _KINDS]
        if laws[0].predict(least) is None or (high is not None and self._slow >= _MOST_SLOW):
            return most if high is None else self._halve(low, high)
        size = self._predict_edge(laws, least, most)
        if least < size < most or (size == most and high is None):
            self._stride = step
            return size
        # The law has its edge where a size has just been. If it is nearly right, sizes right beside that are
        # next, then further and further away; else it has nothing to say.
        beside = max(low, step) if size <= least else most + step
        is_near = abs((laws[0].predict(beside) or 0) / self._room_bytes - 1) <= _NEAR
        if not is_near and high is not None:
            return self._halve(low, high)
        size = low + self._stride if size <= least else most + step - self._stride
        self._stride *= 2
        return size if least <= size <= most else least if high is None else self._halve(low, high)

    def _limit_growth(self) -> int:
        """Return the largest size to try where nothing has run out of memory yet."""
        growth = _GROWTH if len(self._runs) > _MOST_TERMS else _FIRST_GROWTH
        return min(self.search.limit or 0, max(growth * self._low, self._task.step))

    def _halve(self, low: int, high: int | None) -> int:
        """Return the middle, never one of both where there is any between them."""
        step = self._task.step
        return step if high is None else low + max(1, (high - low) // step // 2) * step

    def _predict_edge(self, laws: Sequence[PeakLaws], least: int, most: int) -> int:
        """Return the largest size that should fit, one below the least where none does.

        What is reserved is given back before memory runs out, so that its law is on the safe side; where that
        says that nothing more fits although something did, the law of what is allocated is the upper bound.
        """
        safe, bound = (self._find_edge(each, least, most) for each in laws)
        return bound if safe < least and self._stride > self._task.step else safe

    def _find_edge(self, laws: PeakLaws, least: int, most: int) -> int:
        step = self._task.step
        low = least // step - 1
        high = most // step
        while low < high:
            middle = (low + high + 1) // 2
            if (laws.predict(middle * step) or 0) <= self._room_bytes:
                low = middle
            else:
                high = middle - 1
        return low * step

    def _judge(self, size: int, run: PhaseRun) -> FitTrial:
        reserved = run.peak.reserved_bytes
        if run.end != "finished":
            return FitTrial(size=size, has_fitted=False, reason=describe_end(run))
        needed = (reserved or 0) + self._task.context_bytes
        if needed > self._task.capacity_bytes:
            reason = f"needs {format_bytes(needed)} with the context"
            return FitTrial(size=size, has_fitted=False, peak_reserved_bytes=reserved, reason=reason)
        return FitTrial(size=size, has_fitted=True, peak_reserved_bytes=reserved)
