"""Where the parts lie that are loaded by path into the interpreter that trains."""

from pathlib import Path

_ENGINE = Path(__file__).resolve().parent

PROBE = _ENGINE / "probe"
SHIM = PROBE / "shim"
"""Folder of the `sitecustomize` that a job's interpreters import first."""
SIMULATION = _ENGINE / "simulation"


def locate_allocator_model() -> Path:
    """Return the folder of the allocator model, which stands beside the engine wherever that is."""
    return _ENGINE.parent / "analyzers" / "allocator_model"
