"""`run_phases`: trains in another process, on a real or simulated device, and measures memory by phase."""

import ctypes
import hashlib
import math
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from subprocess import Popen
from typing import Literal

import msgspec

from vramscope.engine.child_processes import LEDGERS_NAME, module_command, user_code_environment
from vramscope.engine.errors import PackageMissingError, SettingError, UsageError
from vramscope.engine.files.base.output_file import replacing
from vramscope.engine.jobs.launch import (
    DEFAULT_CONTEXT_BYTES,
    DEFAULT_HOST_RESERVE_BYTES,
    SimulatedDevice,
    describe_for_job,
    make_environment,
    make_job_name,
    sweep_ledgers,
)
from vramscope.engine.model.phase_memory import PhaseDevice, PhaseRun, PhaseTraining
from vramscope.engine.paths import locate_runtime_folder, open_runtime_folder
from vramscope.engine.sources.host import HostReader
from vramscope.engine.units import GIB, format_bytes
from vramscope.engine.workloads import settings
from vramscope.engine.workloads.llama_presets import LLAMA_PRESETS
from vramscope.engine.workloads.phases.updates import PhaseRequest, RunUpdate, apply_update
from vramscope.exporters.phases.text import describe_phases
from vramscope.exporters.text import NOTEBOOK_WIDTH, format_html
from vramscope.planning.card import Card, read_card

MOST_STEPS = 100_000


def check_training(training: PhaseTraining, environ: Mapping[str, str]) -> None:
    """Refuse an invalid training."""
    _check_model(training)
    for setting, count in (
        (settings.BATCH_SIZE, training.batch_size),
        (settings.SEQ_LENGTH, training.seq_length),
        (settings.NUM_STEPS, training.num_steps),
    ):
        if count < 1:
            raise SettingError(setting, f" {count}: expected a whole number, 1 or more")
    if training.warmup_steps < 0:
        raise SettingError(
            settings.WARMUP_STEPS, f" {training.warmup_steps}: expected a whole number, 0 or more"
        )
    if training.num_steps + training.warmup_steps > MOST_STEPS:
        raise SettingError(
            settings.NUM_STEPS,
            ", ",
            settings.WARMUP_STEPS,
            f": expected at most {MOST_STEPS:,} steps together",
        )
    _check_numbers(training)
    _check_combinations(training, environ)


def count_ranks(environ: Mapping[str, str]) -> int:
    """Return how many ranks train together; 1 if torchrun did not start this process.

    Args:
        environ: Environment variables; launchers other than torchrun set WORLD_SIZE without RANK.
    """
    world_size = environ.get("WORLD_SIZE", "1") if "RANK" in environ else "1"
    if not world_size.isdecimal():
        raise UsageError(f"WORLD_SIZE={world_size}: expected a whole number, as torchrun sets it")
    return int(world_size)


def _check_model(training: PhaseTraining) -> None:
    given = [it for it in (training.model_size, training.factory, training.hugging_face) if it is not None]
    if len(given) != 1:
        raise SettingError(
            "expected one model: ",
            settings.MODEL_SIZE,
            " (a preset), ",
            settings.HUGGING_FACE,
            " (a folder of transformers) or ",
            settings.FACTORY,
            " (MODULE:FUNCTION)",
        )
    if training.model_size is not None and training.model_size not in LLAMA_PRESETS:
        raise SettingError(
            settings.MODEL_SIZE, f" {training.model_size}: expected one of {', '.join(LLAMA_PRESETS)}"
        )
    if training.factory is not None and not all(training.factory.partition(":")):
        raise SettingError(
            settings.FACTORY,
            f" {training.factory}: expected MODULE:FUNCTION, for example train:make_model",
        )
    if training.hugging_face is not None and not (Path(training.hugging_face) / "config.json").is_file():
        raise SettingError(
            f"{training.hugging_face}: ",
            settings.HUGGING_FACE,
            " expected a folder with config.json of transformers",
        )


def _check_numbers(training: PhaseTraining) -> None:
    for setting, value, is_right in (
        (settings.LEARNING_RATE, training.learning_rate, training.learning_rate >= 0),
        (settings.NOISE_MULTIPLIER, training.noise_multiplier, training.noise_multiplier >= 0),
        (settings.MAX_GRAD_NORM, training.max_grad_norm, training.max_grad_norm > 0),
    ):
        if not (math.isfinite(value) and is_right):
            least = "a number above 0" if setting is settings.MAX_GRAD_NORM else "0 or more"
            raise SettingError(setting, f" {value:g}: expected {least}")


def _check_combinations(training: PhaseTraining, environ: Mapping[str, str]) -> None:
    if training.is_checkpointed and training.factory is not None:
        raise SettingError(
            settings.CHECKPOINTED,
            " does not go with ",
            settings.FACTORY,
            ": enable checkpointing in your own model",
        )
    if training.strategy is not None and "RANK" not in environ:
        raise SettingError(
            settings.STRATEGY,
            f" {training.strategy} needs several ranks: start them with torchrun, for example `torchrun "
            f"--nproc-per-node 2 -m vramscope phases --strategy {training.strategy}`",
        )
    if training.strategy == "fsdp2" and training.privacy in ("hooks", "functorch"):
        raise SettingError(
            settings.STRATEGY,
            " fsdp2 does not go with ",
            settings.PRIVACY,
            f" {training.privacy}: Opacus needs whole parameters for gradients by sample; expected ghost or "
            "none",
        )


# Default memory of a simulated GPU: the largest preset with gradients by sample needs 40 GiB.
DEFAULT_CARD_BYTES = 80 * GIB
# Share of the host's free memory from which a run without storage is preferred.
SHARE_OF_HOST = 0.5

_CONTEXT = f"{format_bytes(DEFAULT_CONTEXT_BYTES)} of its memory are for the CUDA context"


class DeviceChoice(msgspec.Struct, frozen=True, kw_only=True):
    kind: Literal["cuda", "cpu", "simulated"]
    # Memory of a simulated GPU.
    total_bytes: int | None = None
    # Its kind, if it is one that is known.
    card: Card | None = None
    is_fake: bool = False
    # Whether the run can be repeated without storage, if the host has too little memory.
    can_be_fake: bool = False
    note: str | None = None


def choose_device(
    text: str, training: PhaseTraining, *, environ: Mapping[str, str], host_free_bytes: int | None
) -> DeviceChoice:
    """Return the device to run on.

    Args:
        text: `cuda`, `cpu`, `simulate`, `simulate:24GiB` or `simulate:h100`.
        training: What to train.
        environ: Environment variables.
        host_free_bytes: Free memory of this host; None if unknown.
    """
    name, _, size = text.partition(":")
    if text == "cpu":
        return DeviceChoice(kind="cpu", note="resident memory of the process, not what a GPU would need")
    if text == "cuda":
        return (
            DeviceChoice(kind="cuda")
            if may_have_cuda()
            else simulate_instead(training, environ, host_free_bytes)
        )
    if name != "simulate" or text == "simulate:":
        raise SettingError(
            settings.DEVICE,
            f" {text}: expected cuda, cpu, simulate, or a card: simulate:24GiB, simulate:h100",
        )
    try:
        card = read_card(size) if size else Card(DEFAULT_CARD_BYTES)
    except UsageError as error:
        raise SettingError(settings.DEVICE, f" {text}: ", *error.args) from error
    if card.total_bytes <= DEFAULT_CONTEXT_BYTES:
        raise SettingError(
            settings.DEVICE,
            f" {text}: expected more than {format_bytes(DEFAULT_CONTEXT_BYTES)}, the memory of the CUDA "
            "context of a process",
        )
    return _simulate(card, training, environ, host_free_bytes, None)


def simulate_instead(
    training: PhaseTraining, environ: Mapping[str, str], host_free_bytes: int | None
) -> DeviceChoice:
    """Return the simulated GPU that replaces a missing CUDA device."""
    note = f"no CUDA device here; using a simulated GPU of {format_bytes(DEFAULT_CARD_BYTES)}"
    return _simulate(Card(DEFAULT_CARD_BYTES), training, environ, host_free_bytes, note)


def may_have_cuda() -> bool:
    """Return whether a driver of NVIDIA or AMD is installed; PyTorch decides later."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Path("/dev/kfd").exists()
    return True


def _simulate(
    card: Card,
    training: PhaseTraining,
    environ: Mapping[str, str],
    host_free_bytes: int | None,
    note: str | None,
) -> DeviceChoice:
    ranks = int(environ.get("LOCAL_WORLD_SIZE", "1"))
    can_be_fake = training.strategy is None
    needed_bytes = estimate_host_bytes(training)
    note = f"{note}; {_CONTEXT}" if note else _CONTEXT
    choice = DeviceChoice(
        kind="simulated", total_bytes=card.total_bytes, card=card, can_be_fake=can_be_fake, note=note
    )
    if needed_bytes is None or host_free_bytes is None:
        return choice
    # A run never has more than the memory of the GPU: it ends before.
    needed_bytes = ranks * min(needed_bytes, card.total_bytes - DEFAULT_CONTEXT_BYTES)
    free_bytes = max(0, host_free_bytes - DEFAULT_HOST_RESERVE_BYTES)
    if can_be_fake and needed_bytes > SHARE_OF_HOST * free_bytes:
        return msgspec.structs.replace(choice, is_fake=True)
    if not can_be_fake and needed_bytes > free_bytes:
        raise SettingError(
            settings.STRATEGY,
            f" {training.strategy}: ranks exchange the values of tensors, so simulated GPUs need real "
            f"tensors, about {format_bytes(needed_bytes)} of host memory, and {format_bytes(free_bytes)} "
            "are free; use a smaller ",
            settings.MODEL_SIZE,
            ", ",
            settings.BATCH_SIZE,
            " or ",
            settings.SEQ_LENGTH,
            ", fewer ranks, or one process without ",
            settings.STRATEGY,
            ", which needs no storage",
        )
    return choice


# PyTorch, Opacus, and memory of host libraries while they compute.
_PROGRAM_BYTES = GIB
_BYTES_PER_NUMBER = 4
_STATES = {"sgd": 0, "adam": 2, "adamw": 2}
# Numbers for each token, as multiples of a layer's widths, and of the vocabulary for the head.
_ACTIVATIONS_OF_HIDDEN = 30
_ACTIVATIONS_OF_INNER = 6
_ACTIVATIONS_OF_LOGITS = 5


def estimate_host_bytes(training: PhaseTraining) -> int | None:
    """Return an upper estimate of the host memory needed; None for an unknown model.

    It has weights, gradients, the sum and the noise of Opacus, the optimizer's state, gradients by sample and
    activations, four bytes each.
    """
    if training.model_size is None:
        return None
    sizes = LLAMA_PRESETS[training.model_size]
    copies = 2 + _STATES[training.optimizer]
    if training.privacy != "none":
        copies += 2
    if training.privacy in ("hooks", "functorch"):
        copies += training.batch_size
    tokens = training.batch_size * training.seq_length
    widths = _ACTIVATIONS_OF_HIDDEN * sizes.hidden_size + _ACTIVATIONS_OF_INNER * sizes.intermediate_size
    scores = sizes.num_heads * training.seq_length if training.privacy != "none" else sizes.num_heads
    activations = tokens * (
        sizes.num_layers * widths + 2 * scores + _ACTIVATIONS_OF_LOGITS * sizes.vocab_size
    )
    return _PROGRAM_BYTES + _BYTES_PER_NUMBER * (copies * sizes.parameters + activations)


# Variables that identify one start of torchrun to all its ranks.
_NAMES = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
_POLL_S = 0.25
# How long a rank may go on after another ended early, since it may wait for that one for ever.
_GRACE_S = 10.0
# How long local rank 0 waits for the others once it has ended itself.
_PATIENCE_S = 60.0


class RankRuns:
    """A folder below the runtime folder, where the ranks of this node exchange their runs."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.local_rank = int(environ["LOCAL_RANK"])
        self._count = int(environ["LOCAL_WORLD_SIZE"])
        key = hashlib.sha256("\0".join(environ.get(name, "") for name in _NAMES).encode()).hexdigest()[:12]
        self._folder = locate_runtime_folder(environ) / "phases" / key

    def begin(self) -> None:
        """Make the folder empty; called before any rank can end, since none ends without the others."""
        open_runtime_folder(self._folder.parents[1])
        if self.local_rank == 0:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True, exist_ok=True)

    def hand_in(self, run: PhaseRun) -> None:
        """Store the run of this rank."""
        path = self._folder / f"{self.local_rank}.json"
        # The folder is gone if local rank 0 no longer waits.
        with suppress(OSError), replacing(path) as stream:
            stream.write(msgspec.json.encode(run))

    def gather(self) -> tuple[PhaseRun, ...]:
        """Return the stored runs by rank, once all are there or the wait is over; remove the folder."""
        until_s = time.monotonic() + _PATIENCE_S
        while len(self._list()) < self._count and time.monotonic() < until_s:
            time.sleep(_POLL_S)
        runs = [msgspec.json.decode(path.read_bytes(), type=PhaseRun) for path in self._list()]
        shutil.rmtree(self._folder, ignore_errors=True)
        return tuple(sorted(runs, key=lambda run: run.rank))

    @contextmanager
    def watched(self, process: "Popen[bytes]") -> Iterator[None]:
        """In this context, end the training process some time after another rank ended early."""
        is_over = threading.Event()
        thread = threading.Thread(target=self._watch, args=(process, is_over), daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def find_left(self) -> PhaseRun | None:
        """Return the run of a rank that ended early; None if there is none."""
        for path in self._list():
            with suppress(OSError, msgspec.DecodeError):
                run = msgspec.json.decode(path.read_bytes(), type=PhaseRun)
                if run.end != "finished":
                    return run
        return None

    def _watch(self, process: "Popen[bytes]", is_over: threading.Event) -> None:
        while not is_over.wait(_POLL_S):
            if self.find_left() is not None:
                if not is_over.wait(_GRACE_S):
                    process.terminate()
                return

    def _list(self) -> list[Path]:
        return list(self._folder.glob("*.json"))


def find_rank_runs() -> RankRuns | None:
    """Return the runs of this node's ranks if torchrun started several here; else None."""
    environ = os.environ
    if "LOCAL_RANK" not in environ or int(environ.get("LOCAL_WORLD_SIZE", "1")) < 2:
        return None
    return RankRuns(environ)


_SCRIPT = "vramscope.engine.workloads.phases"
# Longest time for a process to end after a signal.
_LEAVING_S = 5.0
OnPhase = Callable[[PhaseRun], None]


def train_apart(
    training: PhaseTraining,
    choice: DeviceChoice,
    *,
    environ: Mapping[str, str],
    on_phase: OnPhase | None,
    ranks: RankRuns | None = None,
) -> tuple[PhaseRun, RunUpdate]:
    """Train in another process; return the run as far as it came, and the last update.

    Ctrl-C, or SIGTERM if it is raised as SystemExit, ends the process and marks the run as interrupted.

    Args:
        ranks: Runs of the other ranks of this node; None for one process.
    """
    request = PhaseRequest(training=training, kind=choice.kind, is_fake=choice.is_fake, note=choice.note)
    device = PhaseDevice(kind=choice.kind, name=choice.kind, is_fake=choice.is_fake, note=choice.note)
    run = PhaseRun(training=training, device=device, end="failed")
    last = RunUpdate()
    descriptor, given = os.pipe()
    process = _start(request, make_child_environment(choice, environ), given)
    try:
        with nullcontext() if ranks is None else ranks.watched(process):
            for last in _listen(descriptor):
                run = apply_update(run, last)
                if last.phase is not None and on_phase is not None:
                    on_phase(run)
            code = process.wait()
    except (KeyboardInterrupt, SystemExit):
        _end(process)
        return msgspec.structs.replace(run, end="interrupted"), last
    finally:
        os.close(descriptor)
        _end(process)
    if last.end is None and last.obstacle is None:
        run = msgspec.structs.replace(run, end="failed", error=_describe_death(code, ranks))
    return run, last


def make_child_environment(choice: DeviceChoice, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the training process: with the probe and the chosen device."""
    folder = locate_runtime_folder(environ)
    job = f"phases-{environ['MASTER_PORT']}" if "MASTER_PORT" in environ else f"phases-{make_job_name()}"
    simulate = None
    if choice.total_bytes is not None:
        device = SimulatedDevice(
            total_bytes=choice.total_bytes,
            kind=None if choice.card is None else choice.card.kind,
            capability=None if choice.card is None else choice.card.capability,
            multiprocessors=None if choice.card is None else choice.card.multiprocessors,
            devices=int(environ.get("LOCAL_WORLD_SIZE", "1")),
            is_fake=choice.is_fake,
        )
        open_runtime_folder(folder)  # before the ledger of the card is made in it, with other rights
        sweep_ledgers(folder / LEDGERS_NAME)
        simulate = describe_for_job(device, job=job, runtime_dir=folder, environ=environ)
    return make_environment(user_code_environment(environ), runtime_dir=folder, job=job, simulate=simulate)


def _start(request: PhaseRequest, environment: dict[str, str], given: int) -> subprocess.Popen[bytes]:
    """Start the process without Ctrl-C from the terminal: we get it, and end the process."""
    text = msgspec.json.encode(request).decode()
    command = module_command(_SCRIPT, "--report", str(given), text)
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=2, env=environment, pass_fds=[given], process_group=0
        )
    finally:
        os.close(given)


def _listen(descriptor: int) -> Iterator[RunUpdate]:
    with os.fdopen(os.dup(descriptor), "rb") as reports:
        for line in reports:
            with suppress(msgspec.DecodeError):  # the last line of a process that was killed may be cut
                yield msgspec.json.decode(line, type=RunUpdate)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_LEAVING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _describe_death(code: int, ranks: RankRuns | None) -> str:
    left = None if ranks is None else ranks.find_left()
    if left is not None:
        return f"rank {left.rank} had ended before"
    if code >= 0:
        return f"the training process ended with exit code {code} before it was done"
    name = signal.Signals(-code).name
    hint = ": the kernel sends it when the host runs out of memory" if name == "SIGKILL" else ""
    return f"the training process was ended by {name}{hint}"


_REPEATED = "this host has too little memory for real tensors, so the run was repeated without storage"


class ShownRuns(tuple[PhaseRun, ...]):
    """Runs that a notebook shows as the text that `vramscope phases` prints."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return format_html(describe_phases(self, NOTEBOOK_WIDTH))


def run_phases(
    training: PhaseTraining, device: str, *, on_phase: OnPhase | None = None
) -> tuple[PhaseRun, ...]:
    """Train, and return the run of each rank of this node; one run for a single process.

    Under torchrun every rank calls this; the first rank of each node gets the runs, the others get none.

    A run that ran out of memory, failed or was interrupted is returned as far as it came. Ctrl-C ends the
    training and marks its run as interrupted, instead of raising.

    Args:
        training: What to train.
        device: `cuda`, `cpu`, `simulate`, `simulate:24GiB` or `simulate:h100`. Without CUDA, `cuda` is
            a simulated GPU.
        on_phase: Called with the run so far after each phase.

    Raises:
        PackageMissingError: PyTorch or Opacus is not installed.
        UsageError: It cannot start: an unknown preset, a count below 1, a model that Opacus refuses. Errors
            of the user's own code are printed on stderr before this one.
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
    if last.obstacle == "no_package":
        raise PackageMissingError(last.error or "a package is not installed")
    if last.obstacle in ("refused", "no_cuda"):
        raise SettingError(*last.refusal or (last.error or "the training could not be started",))
    return ShownRuns((run,) if ranks is None else _bring_together(run, ranks))


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
    """Return the device to try instead of a missing one, or after the host ran out of memory."""
    if last.obstacle == "no_cuda":
        return simulate_instead(training, environ, free_bytes)
    if last.obstacle == "host_full" and choice.can_be_fake and not choice.is_fake:
        note = f"{choice.note}; {_REPEATED}" if choice.note else _REPEATED
        return msgspec.structs.replace(choice, is_fake=True, note=note)
    return None
