"""What is said of a running process that was asked for its memory by module."""

from ...engine.model import RankSample
from ...engine.model.module_memory import ModuleMemory
from ...engine.text import make_printable
from ...engine.units import format_age

COST = "takes more CPU in each step that is followed, 5 % of that of a small GPT"
"""As measured: docs/modules.md."""


def name_process(rank: RankSample) -> str:
    """Return which process it is: `rank 0 of job a1b2`, `process 4242`."""
    job = "" if rank.job is None else f" of job {make_printable(rank.job)}"
    if rank.coordinates is not None:
        return f"rank {rank.coordinates.rank}{job}"
    return f"process {rank.pid}{job}"


def say_waiting(rank: RankSample, waited_s: float) -> str:
    """Return what is waited for, where no figures have come yet.

    Args:
        rank: The newest that is known of the process.
        waited_s: Since it was asked.
    """
    if rank.state == "ended":
        return f"{name_process(rank)} has ended: nobody can tell of its modules"
    waited = f"asked {format_age(waited_s)} ago" if waited_s >= 1.0 else "asked"
    if rank.step is None:
        return f"{waited}; it has ended no optimizer step yet, and is followed from the first"
    if rank.step.duration_s is None:
        return f"{waited}; figures come with the end of its next steps"
    return f"{waited}; a step takes {_say_duration(rank.step.duration_s)}, figures come with the next ones"


def has_step(memory: ModuleMemory) -> bool:
    """Tell whether a profile has followed a step to its end."""
    return any(moment.tag.startswith("step ") for moment in memory.moments)


def _say_duration(duration_s: float) -> str:
    return f"{1000 * duration_s:.0f} ms" if duration_s < 1 else f"{duration_s:.1f} s"
