"""What an error in the training means for its report."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import torch

from ...text import fit_to_reader
from .meters import Meter
from .models import RefusedError, UserError
from .updates import RunUpdate

_ASKED = re.compile(r"Tried to allocate (\d+(?:\.\d+)?) (bytes|KiB|MiB|GiB)")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_HOST_IS_FULL = "real tensors need real memory"
_PEER_IS_GONE = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")
"""In what gloo says when a rank is no longer there."""
_NEEDS_OPACUS = (
    "Opacus is not installed here: pip install 'vramscope[train]', or train without it by --dp-mode none"
)


def describe_failure(error: BaseException, notices: Sequence[str], meter: Meter) -> RunUpdate:
    """Return the last update of a run that did not finish.

    Where the user's own code raised, its traceback goes to stderr.

    Args:
        error: What was raised.
        notices: What the simulated device said.
        meter: Knows what was held.
    """
    if isinstance(error, torch.OutOfMemoryError):
        return RunUpdate(
            end="out_of_memory",
            requested_bytes=read_asked_bytes(str(error)),
            held=meter.read_peak(),
            error=_shorten(error),
        )
    if isinstance(error, RefusedError):
        return refuse(str(error))
    if isinstance(error, UserError):
        _print_theirs(error.__cause__ or error)
        return refuse(str(error))
    if isinstance(error, SystemExit) and notices:
        is_full = _HOST_IS_FULL in notices[-1]
        return RunUpdate(end="failed", error=notices[-1], obstacle="host_full" if is_full else None)
    return _describe_error(error)


def _describe_error(error: BaseException) -> RunUpdate:
    """Return what any other error means: no Opacus, another rank gone, or the code that is trained raised."""
    if isinstance(error, ModuleNotFoundError) and error.name == "opacus":
        return refuse(_NEEDS_OPACUS)
    if any(words in str(error) for words in _PEER_IS_GONE):
        return RunUpdate(end="failed", error="another rank had ended before")
    _print_theirs(error)
    return RunUpdate(end="failed", error=f"{type(error).__name__}: {_take_first_line(error)}")


def refuse(text: str) -> RunUpdate:
    """Return the update that says that there is no such run."""
    return RunUpdate(obstacle="refused", error=text)


def read_asked_bytes(message: str) -> int | None:
    """Return what an out-of-memory error says was asked for; None where it does not say."""
    found = _ASKED.search(message)
    return round(float(found.group(1)) * _UNITS[found.group(2)]) if found else None


def _print_theirs(error: BaseException) -> None:
    lines = traceback.format_exception(type(error), error, _skip_ours(error.__traceback__), chain=False)
    sys.stderr.write(fit_to_reader("".join(lines), sys.stderr))


def _skip_ours(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the first frame on that is neither ours nor the import machinery's."""
    import contextlib
    import importlib

    folder = Path(__file__).parent
    machinery = Path(importlib.__file__).parent
    ours = (str(folder), "<frozen importlib", str(machinery), contextlib.__file__)
    while trace is not None and trace.tb_next is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(ours):
            break
        trace = trace.tb_next
    return trace


def _shorten(error: BaseException) -> str:
    """Return what PyTorch says up to the capacity of the card; what was held is told as figures."""
    return _take_first_line(error).partition(" Including non-PyTorch")[0].strip()


def _take_first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "no message")
