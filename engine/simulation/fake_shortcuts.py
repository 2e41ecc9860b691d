"""Shapes of frequent operations without the way through `FakeTensorMode`, which costs 0.1 ms each time.

What is made is what that mode makes in the end. Left out are the questions in between that have one answer
for these operations and arguments: symbolic sizes, constants, decompositions, devices, type promotion. What
an operation would refuse or answer otherwise is left to the mode itself, and so is every other operation.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from .thread_state import state

UNKNOWN = object()
"""Returned for what these shortcuts do not take."""

_aten = torch.ops.aten
_ask_device = torch.ops.prim.device.default
_HOST = torch.device("cpu")
_META = torch.device("meta")

_VIEWS = (
    "_unsafe_view alias as_strided detach diagonal expand permute select.int slice.Tensor split.Tensor "
    "split_with_sizes squeeze squeeze.dim squeeze.dims t transpose.int unbind.int unsqueeze view"
)
_LIKE = "empty_like ones_like zeros_like"
_POINTWISE = (
    "add.Tensor div.Tensor gelu gelu_backward mul.Tensor neg relu rsqrt sigmoid silu silu_backward "
    "sub.Tensor tanh"
)
_FILLS = "fill_.Scalar normal_ uniform_ zero_"
_LISTS = (
    "_foreach_add.List _foreach_add.Scalar _foreach_div.List _foreach_div.Scalar _foreach_div.ScalarList "
    "_foreach_mul.List _foreach_mul.Scalar _foreach_mul.ScalarList _foreach_neg _foreach_reciprocal "
    "_foreach_sqrt _foreach_sub.List _foreach_sub.Scalar"
)
_IN_PLACE_LISTS = (
    "_foreach_add_.List _foreach_add_.Scalar _foreach_add_.ScalarList _foreach_add_.Tensor "
    "_foreach_addcdiv_.Scalar _foreach_addcdiv_.ScalarList _foreach_addcmul_.Scalar "
    "_foreach_addcmul_.ScalarList _foreach_div_.List _foreach_div_.Scalar _foreach_div_.ScalarList "
    "_foreach_lerp_.Scalar _foreach_mul_.List _foreach_mul_.Scalar _foreach_mul_.ScalarList "
    "_foreach_mul_.Tensor _foreach_neg_ _foreach_sqrt_ _foreach_sub_.List _foreach_sub_.Scalar _foreach_zero_"
)


class Shortcuts:
    """Runs what it knows, for fake tensors of one mode."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        ways = (
            (_VIEWS, self._view),
            (_LIKE, self._make_like),
            (_POINTWISE, self._compute_pointwise),
            (_FILLS, _fill),
            (_LISTS, self._compute_list),
            (_IN_PLACE_LISTS, _change_lists),
            ("mm addmm", self._multiply),
            ("_fused_sdp_choice", _choose_attention),
        )
        self._ways: dict[Any, Callable[[Any, Any, Any], Any]] = {
            operation: way for names, way in ways for operation in _find(names)
        }

    def run(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Return what an operation makes, or UNKNOWN."""
        way = self._ways.get(function)
        return UNKNOWN if way is None else way(function, args, kwargs)

    def _view(self, function: Any, args: Any, kwargs: Any) -> Any:
        return self._make(function, args, kwargs) if _is_plain(args[0]) else UNKNOWN

    def _make_like(self, function: Any, args: Any, kwargs: Any) -> Any:
        if not _is_plain(args[0]) or kwargs.get("device") or kwargs.get("pin_memory"):
            return UNKNOWN
        return self._make(_aten.empty_like.default, args, kwargs)

    def _compute_pointwise(self, function: Any, args: Any, kwargs: Any) -> Any:
        first = args[0]
        if not _is_plain(first) or not first.is_floating_point() or not first.is_contiguous():
            return UNKNOWN
        for other in args[1:]:
            is_alike = _is_plain(other) and other.is_contiguous() and _looks(other) == _looks(first)
            if not is_alike and not isinstance(other, (int, float)):
                return UNKNOWN
        return self._make(_aten.empty_like.default, (first,), {})

    def _compute_list(self, function: Any, args: Any, kwargs: Any) -> Any:
        if not _are_alike(args) or not args[0][0].is_floating_point():
            return UNKNOWN
        return [self._make(_aten.empty_like.default, (it,), {}) for it in args[0]]

    def _multiply(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Multiply two matrices of one type, with a row of it to add perhaps; the factors may be views."""
        if kwargs or not all(_is_plain(it) for it in args):
            return UNKNOWN
        first, second = args[-2:]
        shape = (first.shape[0], second.shape[-1])
        is_row = len(args) == 2 or (args[0].shape == shape[1:] and args[0].dtype == first.dtype)
        if not is_row or first.dim() != 2 or second.dim() != 2 or first.dtype != second.dtype:
            return UNKNOWN
        if first.shape[1] != second.shape[0]:
            return UNKNOWN
        return self._make(_aten.empty.memory_format, (shape,), {"dtype": first.dtype, "device": _META})

    def _make(self, function: Any, args: Any, kwargs: Any) -> Any:
        before = state.is_inside
        state.is_inside = True
        try:
            made = self._run_on_meta(function, args, kwargs)
            if isinstance(made, (list, tuple)):
                return [FakeTensor(self._mode, it, _HOST) for it in made]
            return FakeTensor(self._mode, made, _HOST)
        finally:
            state.is_inside = before

    def _run_on_meta(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Run the kernel of the meta device, which is where a fake tensor is to C++."""
        with torch._C._DisableTorchDispatch(), torch._C._PreserveDispatchKeyGuard():
            self._mode.in_kernel_invocation = True
            torch._C._set_meta_in_tls_dispatch_include(True)
            try:
                return function(*args, **kwargs)
            finally:
                self._mode.in_kernel_invocation = False


def answer_device(function: Any, args: Any) -> Any:
    """Return the host or the meta device where C++ asks a fake tensor for its device, else UNKNOWN."""
    if function is not _ask_device or not isinstance(args[0], FakeTensor):
        return UNKNOWN
    tensor = args[0]
    return _META if tensor.fake_mode.in_kernel_invocation else tensor.fake_device


def _find(names: str) -> list[Any]:
    """Return the overloads that this version of PyTorch has."""
    found = []
    for name in names.split():
        packet, _, overload = name.partition(".")
        found.append(getattr(getattr(_aten, packet, None), overload or "default", None))
    return [it for it in found if it is not None]


def _fill(function: Any, args: Any, kwargs: Any) -> Any:
    return args[0] if _is_plain(args[0]) else UNKNOWN


def _change_lists(function: Any, args: Any, kwargs: Any) -> Any:
    return None if _are_alike(args) else UNKNOWN


def _choose_attention(function: Any, args: Any, kwargs: Any) -> Any:
    """Return the kernel that the host would take, which the meta device does not know."""
    if not all(_is_plain(it) for it in args if isinstance(it, torch.Tensor)):
        return UNKNOWN
    with torch._C._DisableTorchDispatch():
        return function._op_dk(torch._C.DispatchKey.CPU, *args, **kwargs)


def _is_plain(tensor: Any) -> bool:
    """Tell a fake tensor of which no value is known."""
    return isinstance(tensor, FakeTensor) and tensor.constant is None


def _looks(tensor: Any) -> tuple[Any, Any]:
    return tensor.shape, tensor.dtype


def _are_alike(args: Any) -> bool:
    """Tell whether lists of tensors have the sizes of the first and all one type: no check would fail."""
    lists = [it for it in args if isinstance(it, (list, tuple)) and it and isinstance(it[0], torch.Tensor)]
    if not lists or not all(_is_plain(it) for members in lists for it in members):
        return False
    looks = [_looks(it) for it in lists[0]]
    is_one_type = len({dtype for _, dtype in looks}) == 1
    return is_one_type and all([_looks(it) for it in members] == looks for members in lists[1:])
