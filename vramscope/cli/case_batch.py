"""Many cases at once: a CSV file in, the same rows with predictions out."""

import csv
import io
import sys
from argparse import Namespace
from collections.abc import Mapping

from vramscope.analyzers.planning.theory import estimate_stage
from vramscope.analyzers.planning.theory.calibration import Calibration
from vramscope.analyzers.planning.theory.configs.cases import read_case
from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.files.base.input_file import show_path
from vramscope.engine.files.base.output_file import write_whole
from vramscope.engine.files.case_table import MODEL_COLUMNS, CaseTable, read_case_table
from vramscope.engine.text import make_printable

from .calibrating import read_calibration
from .frame.diagnostics import complain
from .frame.progress import ProgressLine

PREDICTED = ("predicted_allocated_bytes", "predicted_peak_bytes", "predicted_error")
"""Columns that are added; the last one says why a row has no figures."""


def estimate_batch(arguments: Namespace) -> int:
    """Estimate every row for its last rank, and write the rows with what was predicted.

    Returns:
        The exit code: that of bad input where no row at all could be estimated.

    Raises:
        UsageError: A flag that describes one run is given.
        InputFileError: The file cannot be read or understood.
        OutputFileError: The output cannot be written.
    """
    if arguments.json or arguments.capacity or arguments.figure or arguments.theory != "vramscope":
        raise UsageError("--json, --capacity, --figure and --theory do not go with --batch: it writes CSV")
    table = read_case_table(arguments.batch)
    if not MODEL_COLUMNS.intersection(table.columns):
        raise InputFileError(
            f"{show_path(arguments.batch)}: line 1: no column of a model; expected num_layers, hidden and "
            "others, or arguments with the flags of Megatron-LM"
        )
    calibration = None if arguments.calibration is None else read_calibration(arguments.calibration)
    predictions: list[dict[str, str]] = []
    with ProgressLine("vramscope estimate", "cases estimated") as progress:
        for done, row in enumerate(table.rows):
            progress.show_count(done, len(table.rows))
            predictions.append(predict_case(row, calibration))
    text = render_table(table, predictions)
    refused = sum(bool(row[PREDICTED[2]]) for row in predictions)
    if arguments.output is None:
        sys.stdout.write(text)
    else:
        write_whole(text.encode(), arguments.output)
    told = f"{len(predictions) - refused} of {len(predictions)} cases estimated"
    told += f", calibrated by {calibration.source}" if calibration is not None else ""
    told += f"; the others say why in {PREDICTED[2]}" if refused else ""
    complain(told)
    return UsageError.exit_code if predictions and refused == len(predictions) else 0


def predict_case(row: Mapping[str, str], calibration: Calibration | None = None) -> dict[str, str]:
    """Return the added cells of one row; an impossible row gets a sentence in place of figures."""
    try:
        run = read_case(row)
        memory = estimate_stage(run.shape, run.layout, run.setup, -1)
    except UsageError as error:
        return dict(zip(PREDICTED, ("", "", str(error)), strict=True))
    figures = (memory.allocated_bytes, memory.peak_bytes)
    if calibration is not None:
        figures = calibration.shift(*figures)
    cells = (str(figures[0]), str(figures[1]), "")
    return dict(zip(PREDICTED, cells, strict=True))


def render_table(table: CaseTable, predictions: list[dict[str, str]]) -> str:
    """Return the rows with the added columns as CSV; columns of those names are replaced."""
    columns = [name for name in table.columns if name not in PREDICTED] + list(PREDICTED)
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(make_printable, columns))
    for row, predicted in zip(table.rows, predictions, strict=True):
        cells = row | predicted
        writer.writerow(make_printable(cells[name]) for name in columns)
    return stream.getvalue()
