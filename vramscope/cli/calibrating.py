"""What `vramscope calibrate` learns from a table of measured runs, and the small file it keeps."""

import sys
from argparse import Namespace
from pathlib import Path

import msgspec

from vramscope.analyzers.planning.theory import estimate_stage
from vramscope.analyzers.planning.theory.calibration import SCHEMA, Calibration, Measured, fit_calibration
from vramscope.analyzers.planning.theory.configs.cases import read_case
from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.files.base.input_file import read_input_file, show_path
from vramscope.engine.files.base.output_file import write_whole
from vramscope.engine.files.case_table import CaseTable, read_case_table
from vramscope.engine.units import MIB
from vramscope.exporters.json_lines import encode_report

from .frame.diagnostics import complain

ALLOCATED = "mem_allocated_last_bytes"
PEAK = "mem_max_allocated_peak_bytes"
_LIMIT_BYTES = 65536


def calibrate(arguments: Namespace) -> int:
    """Fit, tell what was learnt, and keep it where asked.

    Raises:
        UsageError: Too few runs were measured.
        InputFileError: The table cannot be read, or lacks what was measured.
        OutputFileError: The file cannot be written.
    """
    table = read_case_table(arguments.measured)
    for column in (ALLOCATED, PEAK):
        if column not in table.columns:
            raise InputFileError(
                f"{show_path(arguments.measured)}: has no column {column}; expected what each run measured"
            )
    runs, left_out = _measure(table)
    found = fit_calibration(runs, arguments.measured.name)
    text = encode_report(found).decode()
    if arguments.output is not None:
        write_whole(text.encode(), arguments.output)
    sys.stdout.write(text if arguments.json or arguments.output is None else "")
    complain(_describe(found, left_out))
    return 0


def read_calibration(path: Path) -> Calibration:
    """Return a calibration that was kept.

    Raises:
        InputFileError: The file cannot be read, or is no calibration.
    """
    data = read_input_file(path, _LIMIT_BYTES)
    try:
        found = msgspec.json.decode(data, type=Calibration)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputFileError(
            f"{show_path(path)}: {error}; expected what `vramscope calibrate` wrote"
        ) from error
    if found.schema != SCHEMA or not 0 < found.activation_scale < 100:
        raise InputFileError(f"{show_path(path)}: schema {found.schema!r}; expected {SCHEMA} with a scale")
    return found


def _measure(table: CaseTable) -> tuple[list[Measured], int]:
    """Return the rows that were measured and could be estimated, and how many were left out."""
    runs: list[Measured] = []
    for row in table.rows:
        try:
            measured = (int(row[ALLOCATED]), int(row[PEAK]))
            run = read_case(row)
            memory = estimate_stage(run.shape, run.layout, run.setup, -1)
        except (UsageError, ValueError):
            continue
        if 0 < measured[0] <= measured[1]:
            runs.append(Measured(memory.allocated_bytes, memory.peak_bytes, *measured))
    return runs, len(table.rows) - len(runs)


def _describe(found: Calibration, left_out: int) -> str:
    text = (
        f"{found.runs} runs: {found.offset_bytes / MIB:+.1f} MiB between steps, activations x "
        f"{found.activation_scale:.3f}; peaks held out are off by {found.held_out_error_percent:.2f} %, "
        f"without it by {found.plain_error_percent:.2f} %"
    )
    return text + (f"; {left_out} rows left out" if left_out else "")
