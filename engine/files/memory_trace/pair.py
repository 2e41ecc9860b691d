"""Finds the simulated run that stands beside a real one."""

from collections.abc import Sequence
from itertools import islice, product
from pathlib import Path

import msgspec

from ...errors import InputFileError
from ..base.input_file import explain_refusal, show_path
from .name import TraceName, parse_trace_name
from .run import FILE_PATTERN

_DEPTHS = (f"*/{FILE_PATTERN}", f"*/*/{FILE_PATTERN}")
_MOST_FILES = 20_000
_SIMULATED_FOLDER = "scaling"
"""In the name of the folder into which simulations are written (`memory_traces_scaling`)."""


class TracePair(msgspec.Struct, frozen=True):
    """A real run and the simulated one of the same layout."""

    real: Path
    simulated: Path


def find_trace_pair(paths: Sequence[Path]) -> TracePair | None:
    """Return the real and the simulated run among what was named; None where it is not one of each.

    Args:
        paths: Two runs in any order, or a folder with the folders of both below it.

    Raises:
        InputFileError: They are of different layouts, or a folder holds several pairs.
    """
    if len(paths) == 2:
        return _pair(paths[0], paths[1])
    if len(paths) == 1 and paths[0].is_dir() and _find_name(paths[0]) is None:
        return _find_below(paths[0])
    return None


def _pair(first: Path, second: Path) -> TracePair | None:
    names = {path: _find_name(path) for path in (first, second)}
    sides = [is_simulated_run(path, name) for path, name in names.items()]
    if None in sides or sides[0] == sides[-1]:
        return None
    pair = TracePair(second, first) if sides[0] else TracePair(first, second)
    difference = _explain_difference(names[pair.real], names[pair.simulated])
    if difference is not None:
        raise InputFileError(
            f"{show_path(pair.simulated)}: simulates another run than {show_path(pair.real)} ({difference}); "
            "expected two of one layout"
        )
    return pair


def _find_below(folder: Path) -> TracePair | None:
    try:
        found = islice((path for depth in _DEPTHS for path in folder.glob(depth)), _MOST_FILES)
        names = {path: _find_name(path) for path in sorted({path.parent for path in found})}
    except OSError as error:
        raise InputFileError(explain_refusal(folder, error)) from error
    sides = {path: is_simulated_run(path, name) for path, name in names.items()}
    pairs = [
        TracePair(real, simulated)
        for real, simulated in product(sides, sides)
        if sides[real] is False
        and sides[simulated]
        and _explain_difference(names[real], names[simulated]) is None
    ]
    if len(pairs) > 1:
        example = f"{show_path(pairs[0].real)} {show_path(pairs[0].simulated)}"
        raise InputFileError(
            f"{show_path(folder)}: {len(pairs):,} pairs of a real and a simulated run in it; expected one: "
            f"name both folders, such as {example}"
        )
    return pairs[0] if pairs else None


def _find_name(path: Path) -> TraceName | None:
    """Return what the name of the first trace of a run says."""
    if not path.is_dir():
        return parse_trace_name(path.name)
    names = (parse_trace_name(file.name) for file in sorted(islice(path.glob(FILE_PATTERN), _MOST_FILES)))
    return next((name for name in names if name is not None), None)


def is_simulated_run(path: Path, name: TraceName | None) -> bool | None:
    """Return whether a run is a simulation; None where it is no run. Its folder tells where names do not.

    Args:
        path: Folder of the run, or one of its files.
        name: Name of one of its traces; None where it has none.
    """
    if name is None or name.is_simulated is not None:
        return None if name is None else name.is_simulated
    return any(_SIMULATED_FOLDER in part for part in path.absolute().parts[-3:])


def _explain_difference(real: TraceName | None, simulated: TraceName | None) -> str | None:
    """Return what two runs do not have in common; None where it is nothing."""
    here = real.layout if real else {}
    there = simulated.layout if simulated else {}
    if not here or not there:
        return None
    differing = [key for key in here if key in there and here[key] != there[key]]
    differing += ["experts"] if ("experts" in here) != ("experts" in there) else []
    told = (f"{key} {here.get(key, 'none')} and {there.get(key, 'none')}" for key in differing)
    return ", ".join(told) or None
