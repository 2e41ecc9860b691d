"""`run_phases`: train by phase in a process of its own, and return what each phase held."""

import os
from collections.abc import Mapping

import msgspec

from vramscope.engine.errors import UsageError
from vramscope.engine.model.phase_memory import PhaseRun, PhaseTraining
from vramscope.engine.sources.host import HostReader
from vramscope.engine.workloads.phases.updates import RunUpdate

from .checking import check_training, count_ranks
from .child import Told, train_apart
from .devices import DeviceChoice, choose_device, simulate_instead
from .rank_runs import RankRuns, find_rank_runs

_REPEATED = "this host has too little memory for real tensors, so the run was repeated without storage"


def run_phases(training: PhaseTraining, device: str, *, on_phase: Told | None = None) -> tuple[PhaseRun, ...]:
    """Train, and return the run of each rank of this node; of one process, one.

    Under torchrun every rank calls it, the first of each node gets the runs, and the others get none.

    A run that ran out of memory, failed or was interrupted is returned as far as it came. Ctrl-C ends the
    training and marks its run as interrupted, instead of raising.

    Args:
        training: What is trained.
        device: `cuda`, `cpu`, `simulate` or `simulate:24GiB`. Without CUDA, `cuda` is a simulated card.
        on_phase: Given the run so far after each phase.

    Raises:
        UsageError: It cannot be started: an unknown preset, a count below one, a missing package, a model
            that Opacus refuses. What the user's own code raises is printed as it is on stderr before this.
    """
    environ = dict(os.environ)
    if training.strategy is None and count_ranks(environ) > 1:
        training = msgspec.structs.replace(training, strategy="ddp")
    check_training(training, environ)
    free_bytes = HostReader().read().available_bytes
    choice = choose_device(device, training, environ=environ, host_free_bytes=free_bytes)
    ranks = find_rank_runs()
    if ranks is not None:
        ranks.begin()
    run, last = train_apart(training, choice, environ=environ, on_phase=on_phase, ranks=ranks)
    again = _choose_again(choice, last, training, environ, free_bytes)
    if again is not None:
        run, last = train_apart(training, again, environ=environ, on_phase=on_phase, ranks=ranks)
    if last.obstacle in ("refused", "no_cuda"):
        raise UsageError(last.error or "the training could not be started")
    return (run,) if ranks is None else _bring_together(run, ranks)


def _bring_together(run: PhaseRun, ranks: RankRuns) -> tuple[PhaseRun, ...]:
    """Return the runs of this node on its local rank 0, and none on the others."""
    ranks.hand_in(run)
    return ranks.gather() if ranks.local_rank == 0 else ()


def _choose_again(
    choice: DeviceChoice,
    last: RunUpdate,
    training: PhaseTraining,
    environ: Mapping[str, str],
    free_bytes: int | None,
) -> DeviceChoice | None:
    """Return what to try instead of a device that was not there, or a host that was too small."""
    if last.obstacle == "no_cuda":
        return simulate_instead(training, environ, free_bytes)
    if last.obstacle == "host_full" and choice.can_be_fake and not choice.is_fake:
        note = f"{choice.note}; {_REPEATED}" if choice.note else _REPEATED
        return msgspec.structs.replace(choice, is_fake=True, note=note)
    return None
