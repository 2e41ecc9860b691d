"""`vramscope calibrate`: what measured runs say about the estimates of `vramscope estimate`."""

import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vramscope.engine.errors import InputFileError, UsageError

from ..frame.emit import complain
from ..frame.parse import SubParsers, add_verb

if TYPE_CHECKING:
    from vramscope.analyzers.planning.theory.calibration import Calibration, Measured
    from vramscope.engine.files.case_table import CaseTable

SUMMARY = "learn from runs that were measured how this software differs from the memory theory"
DESCRIPTION = """\
Compare estimates with what runs measured, and keep two numbers in a small file: bytes more between steps, and
a factor of what the peak is above that. `vramscope estimate --calibration FILE` applies them, and says so."""
EPILOG = """\
examples:
  vramscope calibrate measured.csv --output ours.json
  vramscope estimate --model llama2-7b --tp 2 --calibration ours.json

The table has the columns of `vramscope estimate --batch`, and beside them mem_allocated_last_bytes and
mem_max_allocated_peak_bytes of the last rank.
exit codes: 0 done, 2 usage, or a file that cannot be read"""


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(subparsers, common, "calibrate", SUMMARY, DESCRIPTION, EPILOG)
    parser.add_argument("measured", metavar="FILE", type=Path, help="a CSV file of measured runs")
    parser.add_argument("--output", "-o", metavar="FILE", type=Path, help="where to keep it")
    parser.add_argument(
        "--json", action="store_true", default=SUPPRESS, help="print it as JSON, also with -o"
    )


def run(arguments: Namespace) -> int:
    return calibrate(arguments)


ALLOCATED = "mem_allocated_last_bytes"
PEAK = "mem_max_allocated_peak_bytes"
_LIMIT_BYTES = 65536


def calibrate(arguments: Namespace) -> int:
    """Fit, tell what was learnt, and keep it where asked."""
    from vramscope.analyzers.planning.theory.calibration import fit_calibration
    from vramscope.engine.files.base.input_file import show_path
    from vramscope.engine.files.base.output_file import write_whole
    from vramscope.engine.files.case_table import read_case_table
    from vramscope.exporters.json_lines import encode_report

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


def read_calibration(path: Path) -> "Calibration":
    from vramscope.analyzers.planning.theory.calibration import SCHEMA, Calibration
    from vramscope.engine.files.base.input_file import read_input_file, show_path

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


def _measure(table: "CaseTable") -> "tuple[list[Measured], int]":
    """Return the rows that were measured and could be estimated, and how many were left out."""
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
        f"{found.runs} runs: {found.offset_bytes / MIB:+.1f} MiB between steps, activations x "
        f"{found.activation_scale:.3f}; peaks held out are off by {found.held_out_error_percent:.2f} %, "
        f"without it by {found.plain_error_percent:.2f} %"
    )
    return text + (f"; {left_out} rows left out" if left_out else "")
