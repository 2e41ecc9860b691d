"""What a stack says of a block: the line that asked for it, the module, and the part of the program."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Literal

from ...engine.model.memory_snapshot import Frame
from ..segments import find_headline, is_of_torch, is_ours, is_python, keep_python

Kind = Literal["model", "forward", "backward", "optimizer", "communication", "other", "unknown"]
KIND_NAMES: dict[Kind, str] = {
    "model": "model: built, loaded or moved",
    "forward": "forward pass",
    "backward": "backward pass",
    "optimizer": "optimizer step",
    "communication": "communication",
    "other": "other lines",
    "unknown": "no stack recorded",
}
NO_LINE = "no stack recorded"
NO_MODULE = "outside of a module's forward"
# Modules above the innermost that a name has; deeper ones lose those in the middle.
MOST_MODULES = 8

_OPTIMIZER = re.compile(r"/(?:optim|optimizers?)/")
_ENGINE = re.compile(r"/torch/autograd/(?:__init__|graph)\.py$")
_CPP_BACKWARD = re.compile(r"\btorch::autograd::(?:generated::\w+::apply|Engine)\b")
_MODEL_FILE = re.compile(r"/torch/(?:nn/(?:parameter|init)|serialization)\.py$|/safetensors/")
_MODULE_FILE = re.compile(r"/torch/nn/")
_MODEL_FUNCTIONS = frozenset({"__init__", "reset_parameters", "_apply", "to_empty", "load_state_dict"})
_LOADERS = frozenset({"from_pretrained", "load_state_dict"})
_CONTAINERS = frozenset({"container", "module"})


def find_kind(frames: Sequence[Frame]) -> Kind:
    """Return which part of the program allocated: that of the innermost frame that belongs to one.

    What a checkpointed block computes a second time within the backward pass is of the forward pass.
    """
    frames = [frame for frame in frames if not is_ours(frame.filename)]
    if not frames:
        return "unknown"
    found = (kind for frame in frames if (kind := _judge(frame)) is not None)
    return next(found, "other" if any(is_python(frame.filename) for frame in frames) else "unknown")


@cache
def _judge(frame: Frame) -> Kind | None:
    name = frame.name.rpartition(".")[2]
    path = frame.filename.replace("\\", "/")
    if not is_python(path):
        return "backward" if _CPP_BACKWARD.search(frame.name) else None
    is_model = _MODEL_FILE.search(path) or (name in _MODEL_FUNCTIONS and _MODULE_FILE.search(path))
    rules: tuple[tuple[object, Kind], ...] = (
        (_OPTIMIZER.search(path), "optimizer"),
        (name == "backward" or _ENGINE.search(path), "backward"),
        (name == "forward", "forward"),
        (is_model or name in _LOADERS, "model"),
        ("/torch/distributed/" in path, "communication"),
    )
    return next((kind for is_met, kind in rules if is_met), None)


def name_line(frames: Sequence[Frame]) -> tuple[str, Frame | None]:
    """Return the place that asked for the memory, in words and as a frame; None where no frame says it."""
    frame = find_headline(keep_python(tuple(frames)))
    return (NO_LINE, None) if frame is None else (f"{frame.name} {frame.filename}:{frame.line}", frame)


def name_module(frames: Sequence[Frame]) -> str:
    """Return the modules whose `forward` ran, the outermost first: `train.py:40 > block.py:22 > linear`.

    A stack has no names of modules, but the lines at which each calls the next; PyTorch's own modules are
    named by their file.
    """
    names: list[str] = []
    for frame in reversed(frames):
        owner, _, name = frame.name.rpartition(".")
        if name != "forward" or not is_python(frame.filename) or is_ours(frame.filename):
            continue
        file = frame.filename.replace("\\", "/").rpartition("/")[2]
        stem = file.removesuffix(".py")
        if is_of_torch(frame.filename):
            names += [] if stem in _CONTAINERS else [owner or stem]
        else:
            names.append(f"{owner or file}:{frame.line}")
    if len(names) > MOST_MODULES:
        names = [names[0], "…", *names[2 - MOST_MODULES :]]
    return " > ".join(names) or NO_MODULE
