"""Draw memory by sequence length for the documentation: real trainings on a simulated card."""

from pathlib import Path

from vramscope.engine.model.phase_memory import PhaseTraining
from vramscope.exporters.seqlen.figure import draw_lengths
from vramscope.phases.seqlen import run_lengths, run_without_storage

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
DEVICE = "simulate:2GiB"
_NAME = "seqlen-small.svg"


def draw_length_picture(folder: Path) -> Path:
    """Train a small LLaMA at each length, without privacy and with Opacus, and draw it.

    Args:
        folder: Of the pictures.
    """
    training = PhaseTraining(model_size="small", num_steps=2)
    study = run_lengths(training, DEVICE, LENGTHS, ("none", "hooks"), run=run_without_storage)
    path = folder / _NAME
    path.write_bytes(draw_lengths(study).render("svg"))
    return path
