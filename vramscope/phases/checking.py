"""What is wrong with a training before anything is started."""

import math
from collections.abc import Mapping
from pathlib import Path

from vramscope.engine.errors import UsageError
from vramscope.engine.model.phase_memory import PhaseTraining
from vramscope.engine.workloads.llama_presets import LLAMA_PRESETS

MOST_STEPS = 100_000


def check_training(training: PhaseTraining, environ: Mapping[str, str]) -> None:
    """Refuse a training that cannot be.

    Args:
        training: What was asked for.
        environ: Says whether torchrun started this process.

    Raises:
        UsageError: A value, or a combination of some, is of no use; the text says what was expected.
    """
    _check_model(training)
    for flag, count in (
        ("--batch-size", training.batch_size),
        ("--seq", training.seq_length),
        ("--num-steps", training.num_steps),
    ):
        if count < 1:
            raise UsageError(f"{flag} {count}: expected a whole number from 1 on")
    if training.warmup_steps < 0:
        raise UsageError(f"--warmup {training.warmup_steps}: expected a whole number from 0 on")
    if training.num_steps + training.warmup_steps > MOST_STEPS:
        raise UsageError(f"--num-steps, --warmup: expected at most {MOST_STEPS:,} steps together")
    _check_numbers(training)
    _check_combinations(training, environ)


def count_ranks(environ: Mapping[str, str]) -> int:
    """Return how many ranks train together; one where torchrun did not start this process.

    Args:
        environ: As torchrun makes it; other launchers set WORLD_SIZE alone.

    Raises:
        UsageError: It tells no number.
    """
    told = environ.get("WORLD_SIZE", "1") if "RANK" in environ else "1"
    if not told.isdecimal():
        raise UsageError(f"WORLD_SIZE={told}: expected a whole number, as torchrun sets it")
    return int(told)


def _check_model(training: PhaseTraining) -> None:
    given = [it for it in (training.model_size, training.factory, training.hugging_face) if it is not None]
    if len(given) != 1:
        raise UsageError("expected one model: --model-size NAME, --model hf:DIR or --factory module:function")
    if training.model_size is not None and training.model_size not in LLAMA_PRESETS:
        raise UsageError(f"--model-size {training.model_size}: expected one of {', '.join(LLAMA_PRESETS)}")
    if training.factory is not None and not all(training.factory.partition(":")):
        raise UsageError(f"--factory {training.factory}: expected module:function, as train:make_model")
    if training.hugging_face is not None and not (Path(training.hugging_face) / "config.json").is_file():
        raise UsageError(
            f"--model hf:{training.hugging_face}: expected a folder with a config.json of transformers"
        )


def _check_numbers(training: PhaseTraining) -> None:
    for flag, value, is_right in (
        ("--learning-rate", training.learning_rate, training.learning_rate >= 0),
        ("--noise-multiplier", training.noise_multiplier, training.noise_multiplier >= 0),
        ("--max-grad-norm", training.max_grad_norm, training.max_grad_norm > 0),
    ):
        if not (math.isfinite(value) and is_right):
            least = "above 0" if flag == "--max-grad-norm" else "from 0 on"
            raise UsageError(f"{flag} {value:g}: expected a number {least}")


def _check_combinations(training: PhaseTraining, environ: Mapping[str, str]) -> None:
    if training.is_checkpointed and training.factory is not None:
        raise UsageError(
            "--checkpoint goes with a preset or --model hf:DIR: a model of your own does so itself"
        )
    if training.strategy is not None and "RANK" not in environ:
        raise UsageError(
            f"--strategy {training.strategy} shares a model among ranks: "
            f"torchrun --nproc-per-node 2 -m vramscope phases --strategy {training.strategy}"
        )
    if training.strategy == "fsdp2" and training.privacy in ("hooks", "functorch"):
        raise UsageError(
            f"--strategy fsdp2 --dp-mode {training.privacy}: Opacus has gradients by sample for whole "
            "parameters only; expected --dp-mode ghost or none"
        )
