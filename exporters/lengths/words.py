"""What a study by length is of, in words that its table, figure and search share."""

from ...engine.model.phase_memory import (
    LengthPoint,
    LengthStudy,
    PhaseDevice,
    PhaseRun,
    PhaseTraining,
    PrivacyMode,
)
from ...engine.text import make_printable
from ...engine.units import MIB, format_bytes
from ..phases.text import OPTIMIZER_WORDS
from ..text_table import count

MODE_WORDS: dict[PrivacyMode, str] = {
    "hooks": "Opacus hooks",
    "functorch": "Opacus functorch",
    "ghost": "Opacus ghost clipping",
    "none": "no privacy",
}


def name_memory(study: LengthStudy) -> str:
    """Return what figures are of: on the CPU nothing is allocated, and resident memory stands for it."""
    kinds = {run.device.kind for run in study.runs}
    return "resident" if kinds == {"cpu"} else "allocated"


def name_model(training: PhaseTraining) -> str:
    """Return the model as it was asked for."""
    given = training.factory or training.hugging_face
    return f"LLaMA {training.model_size}" if given is None else make_printable(given)


def describe_training(study: LengthStudy) -> str:
    """Return what was trained, in one line."""
    training = study.training
    modes = " and ".join(MODE_WORDS[mode] for mode in study.privacy_modes)
    parts = [
        name_model(training),
        f"batch of {training.batch_size}",
        modes,
        OPTIMIZER_WORDS[training.optimizer],
        training.precision,
        *(["checkpointed"] if training.is_checkpointed else []),
        f"{count(training.num_steps, 'step')} each",
    ]
    return ", ".join(parts)


def describe_device(device: PhaseDevice) -> str:
    """Return a device in words; one that is simulated is called so."""
    name = make_printable(device.name)
    if device.kind == "simulated" and "simulated" not in name.lower():
        name += " (simulated)"
    return f"{name}, without storage" if device.is_fake else name


def describe_devices(study: LengthStudy) -> str:
    """Return all devices that figures are of, each once."""
    # A run that ended before its first phase may not have come to know the name of its device.
    runs = [run for run in study.runs if run.phases] or study.runs
    return "; ".join(dict.fromkeys(describe_device(run.device) for run in runs)) or study.device


def describe_end(run: PhaseRun) -> str:
    """Return how a run ended that did not finish, as the end of a sentence."""
    place = f" in {run.failed_phase}" if run.failed_phase else ""
    if run.failed_step is not None and run.training.num_steps > 1:
        place += f" of step {run.failed_step}"
    asked = f", {format_bytes(run.requested_bytes)} asked for" if run.requested_bytes is not None else ""
    error = f": {make_printable(run.error)}" if run.error and run.end == "failed" else ""
    words = {"out_of_memory": "out of memory", "interrupted": "interrupted", "failed": "failed"}
    return f"{words.get(run.end, 'finished')}{place}{asked}{error}"


def describe_failure(point: LengthPoint) -> str | None:
    """Return why a point is not whole; None where it is."""
    if point.run is None:
        return make_printable(point.refusal or "could not be started")
    return None if point.run.end == "finished" else describe_end(point.run)


def mark_end(point: LengthPoint | None) -> str:
    """Return in a word how a point ended: `ok`, `OOM`, `—` where it was not reached."""
    if point is None:
        return "—"
    if point.run is None:
        return "not run"
    return {"finished": "ok", "out_of_memory": "OOM", "interrupted": "stopped", "failed": "failed"}[
        point.run.end
    ]


def show_mib(value_bytes: float | None) -> str:
    """Return bytes as MiB with one decimal, or `—` where unmeasured."""
    if value_bytes is None:
        return "—"
    text = f"{value_bytes / MIB:,.1f}"
    return "0.0" if text == "-0.0" else text
