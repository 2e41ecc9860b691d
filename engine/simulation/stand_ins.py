"""Numbers that a script reads in place of values that were not computed.

Every element of a tensor without storage counts as 1 (False for a flag). What a script asks about a single
number or a flag is computed from that, so that `torch.isfinite(loss)` is true, `loss > 0` is true and the
`found_inf` of a `GradScaler` stays 0: a script takes the way that it takes in a healthy run. A result whose
size depends on values (`nonzero`, a mask as index) has the largest size possible.
"""

from __future__ import annotations

import atexit
import operator
from functools import reduce
from typing import Any, Callable, Union

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from .devices import inside
from .endless_loops import LoopWatch
from .exact_values import ExactValues
from .host_memory import capture_stack
from .ledger import tell

Number = Union[bool, int, float, complex]

# More lines than this are counted and not named.
MOST_PLACES = 12
_ATTRIBUTE = "_vramscope_stand_in"
_aten = torch.ops.aten

# Operations whose result has the value of the first argument.
_KEEPING = (
    "_amp_update_scale_ _to_copy _unsafe_view alias all amax amin any clone contiguous cummax cumprod detach "
    "detach_ expand lift_fresh max mean median min permute reshape select slice squeeze t transpose "
    "unsqueeze view"
)
# Operations whose result is computed from one element of each argument.
_ELEMENTWISE = (
    "abs add bitwise_and bitwise_not bitwise_or bitwise_xor ceil clamp clamp_max clamp_min div eq exp floor "
    "fmax fmin ge gt isinf isnan isneginf isposinf le log logical_and logical_not logical_or logical_xor lt "
    "maximum minimum mul ne neg pow reciprocal remainder round rsqrt sign signbit sqrt sub where"
)
_keeping = frozenset(_KEEPING.split())
_elementwise = frozenset(_ELEMENTWISE.split())
_FILLING: dict[str, Callable[[Any], Number]] = {
    "fill": lambda args: args[1],
    "full": lambda args: args[1],
    "full_like": lambda args: args[1],
    "new_full": lambda args: args[2],
    "new_ones": lambda args: 1,
    "new_zeros": lambda args: 0,
    "ones": lambda args: 1,
    "ones_like": lambda args: 1,
    "scalar_tensor": lambda args: args[0],
    "zero": lambda args: 0,
    "zeros": lambda args: 0,
    "zeros_like": lambda args: 0,
}


class StandIns:
    """Follows single numbers and flags through operations, and answers what reads a value."""

    def __init__(self, mode: FakeTensorMode, exact: ExactValues, *, has_largest_sizes: bool) -> None:
        self._mode = mode
        self.exact = exact
        self._has_largest_sizes = has_largest_sizes
        # Lines that read a value, by file.
        self._places: dict[str, list[object]] = {}
        self._loops = LoopWatch()
        atexit.register(self._name_places)

    def follow(self, function: Any, args: Any, made: Any) -> None:
        """Note the value of a result that is a single number or a flag."""
        if type(made) is not FakeTensor or (made.dtype is not torch.bool and made.numel() != 1):
            return
        value = _compute(function, args)
        if value is not None:
            setattr(made, _ATTRIBUTE, value)
        elif hasattr(made, _ATTRIBUTE):
            delattr(made, _ATTRIBUTE)

    def answer(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Return what an operation that depends on values gives; NotImplemented if that is not known."""
        name = _name(function)
        known = self.exact.compute(function, args, kwargs)
        if known is not None:
            with inside(), self._mode:
                return _make_alike(known)
        if name == "_local_scalar_dense":
            value: Any = read_value(args[0])
        elif name == "equal":
            value = args[0].shape == args[1].shape
        elif name == "allclose":
            value = True
        else:
            masks = self._find_masks(name, args)
            if masks is None and not self._has_largest_sizes:
                return NotImplemented
            with inside(), self._mode:
                value = self._make_largest(name, function, args, kwargs, masks or [])
            if value is NotImplemented or masks is not None:
                return value
        self.note_reading(value)
        return value

    def note_reading(self, value: object = None) -> None:
        """Warn at the first line that reads a value; the other lines are named at the end.

        Raises:
            SystemExit: The line waits in a loop until the value changes.
        """
        frames = capture_stack().user_frames
        name, line = (
            (str(frames[0]["filename"]), int(str(frames[0]["line"]))) if frames else ("the script", 0)
        )
        if not self._places:
            place = f"{name}:{line}" if line else name
            tell(
                f"{place} reads the value of a tensor; with --fake tensors have no values, so it gets a "
                "stand-in (1 for a number, the largest size for a selection); --fake=strict stops the run "
                "there"
            )
        lines = self._places.setdefault(name, [])
        if line not in lines:
            lines.append(line)
        if isinstance(value, (bool, int, float)):
            self._loops.note(name, line, value)

    def list_places(self) -> list[tuple[str, object]]:
        """Return file and line of whatever has read a value."""
        return [(name, line) for name, lines in self._places.items() for line in lines]

    def _name_places(self) -> None:
        others = self.list_places()[1:]
        if not others:
            return
        named: dict[str, list[str]] = {}
        for name, line in others[:MOST_PLACES]:
            named.setdefault(name, []).append(str(line))
        left_out = len(others) - MOST_PLACES
        more = f"; and {left_out} more lines" if left_out > 0 else ""
        places = "; ".join(f"{name}:{', '.join(lines)}" for name, lines in named.items())
        tell(f"stand-ins for values were also read at {places}{more}")

    def _find_masks(self, name: str, args: Any) -> list[Any] | None:
        """Return the masks that select, by position; None if one is not known."""
        if name not in ("index", "masked_select"):
            return None
        masks = [self.exact.find(it) if _is_mask(it) else it for it in _list_indices(name, args)]
        is_known = all(mask is not None for mask, it in zip(masks, _list_indices(name, args)) if _is_mask(it))
        return masks if is_known else None

    def _make_largest(self, name: str, function: Any, args: Any, kwargs: Any, masks: list[Any]) -> Any:
        """Return a result of the largest size that its values could give it; of the right one with masks."""
        first = args[0]
        if name == "nonzero":
            return _make_integers((first.numel(), first.dim()))
        if name == "masked_select":
            shape = torch.broadcast_shapes(first.shape, args[1].shape)
            count = _count_selected(masks[0], shape) if masks else reduce(operator.mul, shape, 1)
            return torch.empty(count, dtype=first.dtype)
        if name in ("_unique2", "unique_dim", "unique_consecutive"):
            count = first.shape[args[1]] if name == "unique_dim" else first.numel()
            rest = first.shape if name != "unique_dim" else (count,)
            kept = first.shape if name == "unique_dim" else (count,)
            return torch.empty(kept, dtype=first.dtype), _make_integers(rest), _make_integers((count,))
        if name == "index":
            chosen = masks or [None] * len(args[1])
            parts = [part for pair in zip(args[1], chosen) for part in _spell_out(*pair)]
            return function(first, parts, **kwargs)
        return NotImplemented


def read_value(tensor: Any) -> Number:
    """Return the number that stands for each element of a tensor without storage."""
    value: Number | None = getattr(tensor, _ATTRIBUTE, None)
    return default_value(tensor.dtype) if value is None else _convert(value, tensor.dtype)


def default_value(dtype: torch.dtype) -> Number:
    return _convert(dtype is not torch.bool, dtype)


def _convert(value: Number, dtype: torch.dtype) -> Number:
    """Return a number as a tensor of this type would give it."""
    if dtype is torch.bool:
        return bool(value)
    if dtype.is_complex:
        return complex(value)
    if isinstance(value, complex):
        value = value.real
    return float(value) if dtype.is_floating_point else int(value)


def _name(function: Any) -> str:
    name: str = function._schema.name.partition("::")[2]
    return name


def _compute(function: Any, args: Any) -> Number | None:
    name = _name(function)
    plain = name.rstrip("_") if not name.startswith("_") else name
    try:
        if name == "copy_":
            return _read_one(args[1])
        if plain in _FILLING:
            return _read_one(_FILLING[plain](args))
        if name in _keeping:
            return _read_one(args[0])
        if plain in _elementwise:
            with torch._C._DisableTorchDispatch():
                made = function(*(_shrink(it) for it in args))
                value: Number = made.item()
                return value
    except (ArithmeticError, IndexError, RuntimeError, TypeError, ValueError):
        pass  # of arguments that do not go together as single numbers: the default stands
    return None


def _read_one(value: Any) -> Number:
    if isinstance(value, FakeTensor):
        return read_value(value)
    if isinstance(value, torch.Tensor):
        if value.numel() != 1:
            return default_value(value.dtype)
        with torch._C._DisableTorchDispatch():
            number: Number = value.item()
            return number
    return value  # type: ignore[no-any-return]  # a number of Python


def _shrink(value: Any) -> Any:
    """Return one element of a tensor as a tensor of the host; other arguments as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.tensor(_read_one(value), dtype=value.dtype)


def _make_integers(shape: Any) -> Any:
    return torch.empty(tuple(shape), dtype=torch.int64)


def _spell_out(index: Any, mask: Any) -> list[Any]:
    """Return a mask among the indices as positions: as many as it selects if it is known, else all."""
    if not _is_mask(index):
        return [index]
    count = index.numel() if mask is None else _count_selected(mask)
    return [_make_integers((count,)) for _ in range(index.dim())]


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)


def _list_indices(name: str, args: Any) -> Any:
    return args[1] if name == "index" else args[1:2]


def _count_selected(mask: Any, shape: Any = None) -> int:
    with torch._C._DisableTorchDispatch():
        return int(torch.count_nonzero(mask if shape is None else mask.expand(shape)).item())


def _make_alike(known: Any) -> Any:
    """Return what an operation gave for known values: numbers as they are, tensors by their shapes."""
    if isinstance(known, torch.Tensor):
        return torch.empty_strided(tuple(known.shape), known.stride(), dtype=known.dtype)
    return tuple(map(_make_alike, known)) if isinstance(known, (list, tuple)) else known
