"""Runs by phase of one training at several lengths, each in a process of its own, one after the other."""

import os
from collections.abc import Callable, Iterator, Sequence

import msgspec

from vramscope.engine.errors import UsageError
from vramscope.engine.model.phase_memory import LengthPoint, LengthStudy, PhaseRun, PhaseTraining, PrivacyMode
from vramscope.engine.sources.host import HostReader

from .checking import check_training
from .child import train_apart
from .devices import choose_device
from .running import run_phases

RunOne = Callable[[PhaseTraining, str], PhaseRun]
"""Trains on a device and returns the run; the tests have their own."""


def run_one(training: PhaseTraining, device: str) -> PhaseRun:
    """Train in a process of its own and return the run, as far as it came.

    Raises:
        UsageError: It cannot be started.
    """
    (run,) = run_phases(training, device)
    return run


def run_without_storage(training: PhaseTraining, device: str) -> PhaseRun:
    """Train as `run_one` does, without storage where that gives the same figures: as fast at any size.

    Raises:
        UsageError: It cannot be started.
    """
    environ = dict(os.environ)
    check_training(training, environ)
    free_bytes = HostReader().read().available_bytes
    choice = choose_device(device, training, environ=environ, host_free_bytes=free_bytes)
    if not choice.can_be_fake:
        return run_one(training, device)
    fake = msgspec.structs.replace(choice, is_fake=True)
    run, last = train_apart(training, fake, environ=environ, on_phase=None)
    if last.obstacle is not None:
        raise UsageError(last.error or "the training could not be started")
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
    """Train at each length with each algorithm, and return what was measured.

    Out of memory, or a training that this host cannot stand for, is a point like others. An interruption ends
    the study, which keeps the points until then.

    Args:
        training: What all have in common.
        device: `cuda`, `cpu`, `simulate` or `simulate:24GiB`.
        lengths: Tokens; they run from the shortest on.
        privacy_modes: Algorithms; each length runs with all of them before the next.
        run: Trains once.
        on_point: Given the study so far after each point.

    Raises:
        UsageError: Nothing could be started.
    """
    study = LengthStudy(
        training=training, device=device, lengths=tuple(sorted(lengths)), privacy_modes=tuple(privacy_modes)
    )
    try:
        for point in _run_points(study, run):
            study = _add_point(study, point)
            if on_point is not None:
                on_point(study)
            if study.is_interrupted:
                break
    except (KeyboardInterrupt, SystemExit):
        study = msgspec.structs.replace(study, is_interrupted=True)
    _refuse_nothing(study)
    return study


def _add_point(study: LengthStudy, point: LengthPoint) -> LengthStudy:
    is_interrupted = point.run is not None and point.run.end == "interrupted"
    return msgspec.structs.replace(study, points=(*study.points, point), is_interrupted=is_interrupted)


def _run_points(study: LengthStudy, run: RunOne) -> Iterator[LengthPoint]:
    for length in study.lengths:
        for mode in study.privacy_modes:
            training = msgspec.structs.replace(study.training, seq_length=length, privacy=mode)
            try:
                yield LengthPoint(privacy=mode, seq_length=length, run=run(training, study.device))
            except UsageError as error:
                yield LengthPoint(privacy=mode, seq_length=length, refusal=str(error))


def _refuse_nothing(study: LengthStudy) -> None:
    """Raise what was wrong where it was the same with every point: it is wrong with what was asked for.

    Raises:
        UsageError: It was.
    """
    refusals = {point.refusal for point in study.points}
    if study.points and not study.runs and len(refusals) == 1:
        raise UsageError(refusals.pop() or "nothing could be started")
