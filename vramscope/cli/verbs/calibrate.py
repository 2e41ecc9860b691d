"""`vramscope calibrate`: correct the estimates of `vramscope estimate` by measured runs."""

import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vramscope.engine.errors import InputFileError, UsageError, WireError

from ..frame.emit import complain
from ..frame.parse import SubParsers, add_verb

if TYPE_CHECKING:
    from vramscope.analyzers.planning.theory.calibration import Calibration, Measured
    from vramscope.engine.files.case_table import CaseTable

DESCRIPTION = "Compare estimates with measured runs, and write a correction for later estimates."
EXAMPLES = """\
vramscope calibrate measured.csv --output ours.json
vramscope estimate --model llama2-7b --tp 2 --calibration ours.json"""
NOTES = """\
FILE has the columns of `vramscope estimate --batch`, and also mem_allocated_last_bytes and
mem_max_allocated_peak_bytes of the last rank.

The correction is two numbers: bytes to add between steps, and a factor for what the peak adds to that.
`vramscope estimate --calibration` applies them and says so."""


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(subparsers, common, "calibrate", DESCRIPTION, examples=EXAMPLES, notes=NOTES)
    parser.add_argument("measured", metavar="FILE", type=Path, help="CSV file of measured runs, one a row")
    parser.add_argument("--output", "-o", metavar="FILE", type=Path, help="write the correction to this file")
    parser.add_argument(
        "--json", action="store_true", default=SUPPRESS, help="print the correction as JSON, also with -o"
    )


def run(arguments: Namespace) -> int:
    return calibrate(arguments)


ALLOCATED = "mem_allocated_last_bytes"
PEAK = "mem_max_allocated_peak_bytes"
_LIMIT_BYTES = 65536


def calibrate(arguments: Namespace) -> int:
    from vramscope.analyzers.planning.theory.calibration import fit_calibration
    from vramscope.engine.files.base.input_file import show_path
    from vramscope.engine.files.base.output_file import write_whole
    from vramscope.engine.files.case_table import read_case_table
    from vramscope.exporters.json_lines import encode_report

    table = read_case_table(arguments.measured)
    for column in (ALLOCATED, PEAK):
        if column not in table.columns:
            raise InputFileError(
                f"{show_path(arguments.measured)}: the column {column} is missing; expected what each run "
                "measured"
            )
    runs, left_out = _measure(table)
    found = fit_calibration(runs, arguments.measured.name)
    text = encode_report(found).decode()
    if arguments.output is not None:
        write_whole(text.encode(), arguments.output)
    sys.stdout.write(text if arguments.json or arguments.output is None else "")
    complain(_describe(found, left_out))
    return 0


def read_calibration(path: Path) -> "Calibration":
    from vramscope.analyzers.planning.theory.calibration import SCHEMA, Calibration
    from vramscope.engine.files.base.input_file import read_input_file, show_path
    from vramscope.engine.soundness import check_numbers

    data = read_input_file(path, _LIMIT_BYTES)
    try:
        found = msgspec.json.decode(data, type=Calibration)
        check_numbers(found)
    except (msgspec.DecodeError, RecursionError, WireError) as error:
        raise InputFileError(
            f"{show_path(path)}: {error}; expected a file written by `vramscope calibrate -o`"
        ) from error
    if found.schema != SCHEMA or not 0 < found.activation_scale < 100:
        raise InputFileError(
            f"{show_path(path)}: schema {found.schema!r} with activation_scale {found.activation_scale:g}; "
            f"expected {SCHEMA} and a scale between 0 and 100"
        )
    return found


def _measure(table: "CaseTable") -> "tuple[list[Measured], int]":
    """Return the rows with measurements that could be estimated, and how many were left out."""
    from vramscope.analyzers.planning.theory import estimate_stage
    from vramscope.analyzers.planning.theory.calibration import Measured
    from vramscope.analyzers.planning.theory.configs.cases import read_case

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


def _describe(found: "Calibration", left_out: int) -> str:
    from vramscope.engine.units import MIB

    text = (
        f"{found.runs} runs: {found.offset_bytes / MIB:+,.1f} MiB between steps, activations x "
        f"{found.activation_scale:.3f}; error of peaks left out of the fit: "
        f"{found.held_out_error_percent:.2f} %, without the correction {found.plain_error_percent:.2f} %"
    )
    return text + (f"; {left_out} rows left out" if left_out else "")
