"""Exporting a plan: its files for other programs, the picture and the report, in a folder of their own."""

from datetime import datetime
from pathlib import Path

from ...engine.files.base.output_file import write_files
from .planned import Planned

PICTURE = "plan.svg"
REPORT = "plan.txt"


def export_plan(plan: Planned, svg: str, folder: Path, now_s: float) -> Path:
    """Write everything there is of a plan into a new folder, and return that.

    Args:
        plan: What is shown.
        svg: Its picture.
        folder: Where the new folder is made.
        now_s: Wall time; names it.

    Raises:
        OSError: The folder, the picture or the report cannot be written.
        OutputFileError: A file of the plan cannot be written.
    """
    made = make_new_folder(folder, f"vramscope-plan-{datetime.fromtimestamp(now_s):%Y%m%d-%H%M%S}")
    if plan.write is not None:
        plan.write(made)
    write_files({PICTURE: svg.encode(), REPORT: plan.report.encode()}, made)
    return made


def make_new_folder(folder: Path, name: str) -> Path:
    """Make a folder that did not exist; a number is added where the name is taken."""
    number = 1
    while True:
        made = folder / f"{name}{'' if number == 1 else f'-{number}'}"
        try:
            made.mkdir()
        except FileExistsError:
            number += 1
        else:
            return made
