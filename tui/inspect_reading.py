"""From a file to what the inspect screen shows of it."""

from pathlib import Path

from ..engine.model.flight_record import FlightRecord
from ..engine.readers.input_file import show_name
from ..engine.readers.memory_file import read_memory_file
from .inspected import Inspected
from .inspected_flight import view_flight_record
from .inspected_snapshot import view_snapshot


def read_inspected(path: Path, device: int | None = None) -> Inspected:
    """Read a file and return it as it is shown; takes seconds where it is large.

    Args:
        path: The file.
        device: The only device to show; None for all.

    Raises:
        InputFileError: The file cannot be read or understood.
        UsageError: It does not tell of the device.
    """
    content = read_memory_file(path)
    if isinstance(content, FlightRecord):
        return view_flight_record(content, show_name(path), device)
    return view_snapshot(content, show_name(path), device)
