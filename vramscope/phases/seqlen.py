"""Runs by phase of one training at several lengths, one after the other, each in another process."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from vramscope.analyzers.planning.phases import AdviceTrial, PhaseAdvice, PhaseChange
from vramscope.analyzers.planning.seqlen import PeakKind, PeakLaws, fit_peaks
from vramscope.engine.errors import PackageMissingError, SettingError, UsageError
from vramscope.engine.model.phase_memory import (
    FitSearch,
    FitSize,
    FitTrial,
    LengthPoint,
    LengthStudy,
    PhaseRun,
    PhaseTraining,
    PrivacyMode,
)
from vramscope.engine.sources.host import HostReader
from vramscope.engine.units import format_bytes
from vramscope.exporters.seqlen.text import describe_device, describe_end

from .running import check_training, choose_device, run_phases, train_apart

# Trains on a device and returns the run.
RunOne = Callable[[PhaseTraining, str], PhaseRun]


def run_one(training: PhaseTraining, device: str) -> PhaseRun:
    """Train in another process and return the run, as far as it came."""
    (run,) = run_phases(training, device)
    return run


def run_without_storage(training: PhaseTraining, device: str) -> PhaseRun:
    """Train as `run_one` does, but without storage, which is fast, where that measures the same."""
    environ = dict(os.environ)
    check_training(training, environ)
    free_bytes = HostReader().read().available_bytes
    choice = choose_device(device, training, environ=environ, host_free_bytes=free_bytes)
    if not choice.can_be_fake:
        return run_one(training, device)
    fake = msgspec.structs.replace(choice, is_fake=True)
    run, last = train_apart(training, fake, environ=environ, on_phase=None)
    if last.obstacle == "no_package":
        raise PackageMissingError(last.error or "a package is not installed")
    if last.obstacle is not None:
        raise SettingError(*last.refusal or (last.error or "the training could not be started",))
    return run


def run_lengths(
    training: PhaseTraining,
    device: str,
    lengths: Sequence[int],
    privacy_modes: Sequence[PrivacyMode],
    *,
    run: RunOne = run_one,
    on_point: Callable[[LengthStudy], None] | None = None,
) -> LengthStudy:
    """Train at each length with each algorithm, and return the measurements.

    Running out of memory, or a training that this host cannot simulate, is a point like others. An
    interruption ends the study, which keeps the points so far.

    Args:
        training: What to train; its length and algorithm are replaced.
        device: `cuda`, `cpu`, `simulate`, `simulate:24GiB` or `simulate:h100`.
        lengths: Sequence lengths in tokens; the shortest runs first.
        privacy_modes: Algorithms; each length runs with all of them before the next.
        run: Trains one point.
        on_point: Called with the study so far after each point.
    """
    study = LengthStudy(
        training=training, device=device, lengths=tuple(sorted(lengths)), privacy_modes=tuple(privacy_modes)
    )
    try:
        for point in _run_points(study, run):
            is_interrupted = point.run is not None and point.run.end == "interrupted"
            study = msgspec.structs.replace(
                study, points=(*study.points, point), is_interrupted=is_interrupted
            )
            if on_point is not None:
                on_point(study)
            if study.is_interrupted:
                break
    except (KeyboardInterrupt, SystemExit):
        study = msgspec.structs.replace(study, is_interrupted=True)
    _refuse_nothing(study)
    return study


def _run_points(study: LengthStudy, run: RunOne) -> Iterator[LengthPoint]:
    for length in study.lengths:
        for mode in study.privacy_modes:
            training = msgspec.structs.replace(study.training, seq_length=length, privacy=mode)
            try:
                yield LengthPoint(privacy=mode, seq_length=length, run=run(training, study.device))
            except UsageError as error:
                yield LengthPoint(privacy=mode, seq_length=length, refusal=error.describe("flag"))


def _refuse_nothing(study: LengthStudy) -> None:
    """Raise the error that all points have in common: it is one of the request."""
    refusals = {point.refusal for point in study.points}
    if study.points and not study.runs and len(refusals) == 1:
        raise UsageError(refusals.pop() or "nothing could be started")


# Largest sizes to try.
MOST_SIZES: dict[FitSize, int] = {"batch size": 1 << 16, "sequence length": 1 << 20}
MOST_TRIALS = 40
# Most times as large as the largest that ran: beyond, predictions are poor and runs are long.
_GROWTH = 16
_FIRST_GROWTH = 4
_MOST_TERMS = 3
_MOST_SLOW = 3
# A law whose error is below this share of the memory finds the edge faster than halving.
_NEAR = 0.02
_KINDS: tuple[PeakKind, ...] = ("reserved", "allocated")


class FitTask(msgspec.Struct, frozen=True, kw_only=True):
    """A search for the largest size that fits."""

    # Its value of the varied size does not matter.
    training: PhaseTraining
    # Where it runs: a simulated card of that capacity, or `cuda`.
    device: str
    varied: FitSize
    # Sizes to try are multiples of this.
    step: int
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
    """Run sizes until the largest that fits is known, and return all trials.

    An interruption, or a size that cannot run here, ends the search with the trials so far.

    Args:
        known: Runs on the same device by size; they count as tried.
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
            bracket.end(f"{size:,} cannot run here: {error.describe('flag')}")
            break
        except (KeyboardInterrupt, SystemExit):
            bracket.end("interrupted")
            break
        bracket.take(size, ran)
        if on_trial is not None:
            on_trial(bracket.search)
    return bracket.search


class _Bracket:
    """Sizes that fit and sizes that do not, and the size to try next."""

    def __init__(self, task: FitTask, known: Mapping[int, PhaseRun]) -> None:
        self._task = task
        self._runs: dict[int, PhaseRun] = {}
        # Trials in a row that left more than half of the bracket.
        self._slow = 0
        # Distance of the next size from the known ones, where the law does not decide.
        self._stride = task.step
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
        """Note how a size ended; a failure other than running out of memory ends the search."""
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
        """End the search without a certain answer."""
        self.search = msgspec.structs.replace(self.search, refusal=reason)

    def choose_size(self) -> int:
        """Return a multiple of the step between the sizes that fit and those that do not."""
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
        # The law predicts the edge at a size that was tried. If it is nearly right, try sizes next to it,
        # then further and further away; else halve.
        next_size = max(low, step) if size <= least else most + step
        is_near = abs((laws[0].predict(next_size) or 0) / self._room_bytes - 1) <= _NEAR
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
        """Return the middle, and never one of the ends if there is a size between them."""
        step = self._task.step
        return step if high is None else low + max(1, (high - low) // step // 2) * step

    def _predict_edge(self, laws: Sequence[PeakLaws], least: int, most: int) -> int:
        """Return the largest size that should fit; one below the least if none does.

        The law of reserved bytes is on the safe side, since cached memory is given back before memory runs
        out. If it says that nothing more fits although something did, use the law of allocated bytes.
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


# Number of changes to try, those with the largest estimated savings first.
MOST_ADVICE_TRIALS = 4
# Fields of `PhaseTraining` by the flag that sets them.
_FIELDS = {
    "--dp-mode": "privacy",
    "--optimizer": "optimizer",
    "--precision": "precision",
    "--batch-size": "batch_size",
    "--seq": "seq_length",
    "--checkpoint": "is_checkpointed",
}


def try_advice(
    training: PhaseTraining,
    device: str,
    advice: PhaseAdvice,
    *,
    run: Callable[[PhaseTraining, str], tuple[PhaseRun, ...]] = run_phases,
) -> tuple[AdviceTrial, ...]:
    """Train with each change that should lower the peak, and return the measured peaks.

    A change that cannot start is returned with its reason; an interruption ends the trials and keeps those
    so far.

    Args:
        device: `cuda`, `cpu`, `simulate`, `simulate:24GiB` or `simulate:h100`.
    """
    trials: list[AdviceTrial] = []
    for change in choose_changes(advice):
        try:
            (tried,) = run(change_training(training, change), device)
        except UsageError as error:
            trials.append(_make_trial(change, advice, None, error.describe("flag")))
            continue
        if tried.end == "interrupted":
            break
        trials.append(_make_trial(change, advice, tried, tried.error))
    return tuple(trials)


def choose_changes(advice: PhaseAdvice) -> list[PhaseChange]:
    """Return the changes to try: those that should save memory and that one process can make."""
    helping = [each for each in advice.changes if each.saved_bytes and each.flags]
    return [each for each in helping if each.flags[0] in _FIELDS][:MOST_ADVICE_TRIALS]


def change_training(training: PhaseTraining, change: PhaseChange) -> PhaseTraining:
    """Return the training with a change."""
    flag, *values = change.flags
    given = {**msgspec.structs.asdict(training), _FIELDS[flag]: values[0] if values else True}
    return msgspec.convert(given, PhaseTraining, strict=False)


def _make_trial(
    change: PhaseChange, advice: PhaseAdvice, tried: PhaseRun | None, error: str | None
) -> AdviceTrial:
    peak = None if tried is None else tried.peak.allocated_bytes
    is_whole = tried is not None and tried.end == "finished"
    return AdviceTrial(
        name=change.name,
        flags=change.flags,
        estimated_peak_bytes=change.peak_bytes,
        peak_bytes=peak,
        reserved_peak_bytes=None if tried is None else tried.peak.reserved_bytes,
        saved_bytes=advice.peak_bytes - peak if is_whole and peak is not None else None,
        end=None if tried is None else tried.end,
        error=error,
    )
