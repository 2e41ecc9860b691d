"""Ledgers of simulated cards that jobs have left behind: removed once nobody who wrote in them lives."""

import time
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

UNTOUCHED_S = 3600.0
"""A job may start one process after another; a folder as young as this is left alone."""


def sweep_ledgers(folder: Path, *, now_s: float | None = None) -> None:
    """Remove the folders of jobs that have ended; what cannot be read or removed stays.

    Args:
        folder: Holds one folder for each job.
        now_s: Wall clock in seconds since the epoch; None for the present.
    """
    from ..simulation.ledger import list_living

    before_s = (time.time() if now_s is None else now_s) - UNTOUCHED_S
    with suppress(OSError):
        for job in tuple(folder.iterdir()):
            with suppress(OSError):
                is_old = job.stat().st_mtime < before_s
                if is_old and not any(list_living(ledger) for ledger in job.glob("*.ledger")):
                    rmtree(job, ignore_errors=True)
