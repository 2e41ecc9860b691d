"""Without storage: tensors on the card, and large ones on the host, have a shape and no values.

Fake tensors are PyTorch's own (`FakeTensorMode`), of the host, so that no kernel of CUDA is looked for. Small
tensors of the host stay real, and with them samplers, schedules and counters. A script that reads a missing
value gets a stand-in, or is stopped in one line that names the line of the script.
"""

from __future__ import annotations

import copy
import functools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from math import erf
from typing import Any, Callable, NoReturn

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from . import fake_files
from .alone import check_exchange, is_exchange
from .collectives import is_collective, is_functional
from .devices import HOST, inside, state
from .dispatch_mode import AccountingMode, Survey, measure_made
from .exact_values import ExactValues
from .host_memory import HostMemory, capture_stack
from .ledger import refuse
from .outside import OutsideUses
from .patching import replace
from .stand_ins import StandIns, read_value
from .storages import StorageRegistry

# From here on, a floating-point tensor that is made on the host has no storage either.
LARGE_BYTES = 1 << 20

# Rounds of an initialiser after which no more memory is needed than before.
_MOST_ROUNDS = 3

_VALUELESS = tuple(
    getattr(fake_tensor, name)
    for name in ("DataDependentOutputException", "DynamicOutputShapeException")
    if hasattr(fake_tensor, name)
)


class ThreadedFakeMode(FakeTensorMode):
    """PyTorch's mode, for several threads at once.

    It keeps in itself whether a kernel runs and what it has replaced; with two threads that compute (Keras
    fetches batches in one, DataLoader pins in one) each would find what the other has set, and PyTorch stops.
    """

    def __init__(self, **options: Any) -> None:
        self._threads = threading.local()
        super().__init__(**options)

    @property
    def in_kernel_invocation(self) -> bool:
        return getattr(self._threads, "is_in_kernel", False)

    @in_kernel_invocation.setter
    def in_kernel_invocation(self, value: bool) -> None:
        self._threads.is_in_kernel = value

    @property
    def enter_stack(self) -> list[Any]:
        stack: list[Any] | None = getattr(self._threads, "stack", None)
        if stack is None:
            stack = self._threads.stack = []
        return stack

    @enter_stack.setter
    def enter_stack(self, value: list[Any]) -> None:
        self._threads.stack = value


class FakeAccountingMode(AccountingMode):
    """Counts as for real tensors, and computes shapes only."""

    def __init__(
        self,
        registry: StorageRegistry,
        host: HostMemory,
        uses: OutsideUses,
        *,
        has_stand_ins: bool,
        has_largest_sizes: bool,
    ) -> None:
        super().__init__(registry, host, uses)
        self._fake = ThreadedFakeMode(allow_non_fake_inputs=True)
        self.exact = ExactValues(registry) if has_stand_ins else None
        self.stand_ins = (
            StandIns(self._fake, self.exact, has_largest_sizes=has_largest_sizes) if self.exact else None
        )
        self._shortcuts = Shortcuts(self._fake)
        # Answers for torch's own code that reads flags, from the last to the first; None elsewhere.
        self._flags: list[bool] | None = None

    @contextmanager
    def answering(self, flags: list[bool]) -> Iterator[None]:
        """Within the block, a number that is read is one flag after the other, and False after them."""
        before = self._flags
        self._flags = flags[::-1]
        try:
            yield
        finally:
            self._flags = before

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Two thirds of all that comes here: C++ asks what a tensor's device is.
        device = answer_device(function, args)
        if device is not UNKNOWN:
            return device
        made = super().__torch_dispatch__(function, types, args, kwargs)
        if self.exact is not None and made is not NotImplemented:
            self.exact.follow(function, args, kwargs or {}, made)
        return made

    def run(self, function: Any, args: Any, kwargs: Any, survey: Survey) -> Any:
        """Compute an operation on the host if it is small and stays there, else its shape alone.

        Raises:
            SystemExit: It reads a value that does not exist, and there are no stand-ins.
        """
        if not self._is_valueless(args, kwargs, survey):
            return function(*args, **kwargs)
        if self.exact is not None and state.target == HOST and function is _aten._to_copy.default:
            known = self.exact.compute(function, args, {**kwargs, "device": None})
            if known is not None:
                return known
        made = self._shortcuts.run(function, args, kwargs)
        if made is UNKNOWN:
            try:
                with inside(), self._fake:
                    made = function(*args, **kwargs)
            except _VALUELESS:
                return self._answer(function, args, kwargs)
        if self.stand_ins is not None:
            self.stand_ins.follow(function, args, made)
        return made

    def run_collective(self, function: Any, args: Any, kwargs: Any, survey: Survey) -> Any:
        if not self._is_valueless(args, kwargs, survey):
            return super().run_collective(function, args, kwargs, survey)
        if is_exchange(function):
            check_exchange(function, args)
        if is_collective(function):
            return self._collectives.complete(function, args)
        made = self.run(function, args, kwargs, survey)
        if is_functional(function):
            self._collectives.hold(function, args, made)
        return made

    def _answer(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Return the stand-in for what depends on a value."""
        if self._flags is not None and function is _aten._local_scalar_dense.default:
            return self._flags.pop() if self._flags else False
        value = NotImplemented if self.stand_ins is None else self.stand_ins.answer(function, args, kwargs)
        return refuse_reading() if value is NotImplemented else value

    def _is_valueless(self, args: Any, kwargs: Any, survey: Survey) -> bool:
        if survey.device is not None or state.target >= 0:
            return True
        if self._holds_fake(args) or self._holds_fake(kwargs.values()):
            return True
        if state.is_inside or kwargs.get("device") == _META:
            return False
        dtype = kwargs.get("dtype") or torch.get_default_dtype()
        return dtype.is_floating_point and measure_made(args, kwargs) >= LARGE_BYTES

    def owns(self, tensor: FakeTensor) -> bool:
        return tensor.fake_mode is self._fake

    def _holds_fake(self, values: Any) -> bool:
        """Return whether there is a fake tensor among some values, in lists too.

        Those of a mode of PyTorch's own (sharded tensors compute their shapes with one) are left to it.
        """
        return any(
            self.owns(it)
            if isinstance(it, FakeTensor)
            else isinstance(it, (list, tuple)) and self._holds_fake(it)
            for it in values
        )


def install(registry: StorageRegistry, mode: FakeAccountingMode) -> None:
    """Make fake tensors answer with their simulated devices, and with stand-ins for their values."""
    stand_ins = mode.stand_ins
    real_device = FakeTensor.device.fget
    names = torch.Tensor.device.fget

    def device(tensor: Any) -> Any:
        return real_device(tensor) if registry.where_is(tensor) is None else names(tensor)

    FakeTensor.device = property(device)
    for owner, real in (
        (torch.Tensor, torch._C.TensorBase.device.__get__),
        (torch.UntypedStorage, torch._C.StorageBase.device.__get__),
    ):
        owner.device = property(_make_honest(real, owner.device.fget))
    for name, read in _READERS.items():
        replace(torch.Tensor, name, partial(_make_reading, read=read, stand_ins=stand_ins, registry=registry))
    # Its own reads one element after the other, each by a call of its own.
    FakeTensor.tolist = torch.Tensor.tolist
    FakeTensor.__repr__ = torch.Tensor.__repr__
    FakeTensor.__deepcopy__ = _copy_deeply
    fake_files.install()
    torch._subclasses.FakeTensor = _hide_fakes(mode)
    torch.Tensor._make_subclass = staticmethod(_make_subclasses(torch.Tensor._make_subclass))
    for name in ("tensor", "as_tensor"):
        replace(torch, name, _make_from_list)
    replace(torch.nn.init, "_no_grad_trunc_normal_", partial(_make_truncated, mode=mode))
    replace(torch.utils, "swap_tensors", _make_swap)
    torch.Tensor.data = property(torch.Tensor.data.__get__, partial(_set_data, torch.Tensor.data.__set__))
    replace(torch.nn.Module, "_apply", _make_apply)
    # `torch.optim` hides its module of this name behind the class.
    for name in ("torch.utils._foreach_utils", "torch.optim.optimizer"):
        import_module(name)._foreach_supported_types.append(FakeTensor)


def refuse_reading() -> NoReturn:
    """Stop the script at the line that reads a value."""
    frames = capture_stack().user_frames
    place = f"{frames[0]['filename']}:{frames[0]['line']}" if frames else "the script"
    refuse(
        f"{place} reads the value of a tensor, but with --fake tensors have no values: remove the "
        "line, guard it (if 'VRAMSCOPE_SIMULATE' not in os.environ), or run without --fake"
    )


def _copy_deeply(tensor: Any, memo: dict[int, Any]) -> Any:
    """Copy a fake tensor; PyTorch itself would look for its storage, which has no address."""
    copied = tensor.detach().clone()
    if isinstance(tensor, torch.nn.Parameter):
        copied = torch.nn.Parameter(copied, tensor.requires_grad)
    else:
        copied.requires_grad_(tensor.requires_grad)
    memo[id(tensor)] = copied
    return copied


def _hide_fakes(mode: FakeAccountingMode) -> type:
    """Return a class that only PyTorch itself sees as that of the tensors of a mode.

    Libraries that find a fake tensor believe that they are traced, and take other ways than in a training:
    transformers makes masks of attention that it leaves out otherwise.
    """

    class Asked(type(FakeTensor)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: Any) -> bool:
            if not isinstance(instance, FakeTensor):
                return False
            asking: str = sys._getframe(1).f_globals.get("__name__", "")
            return asking.partition(".")[0] == "torch" or not mode.owns(instance)

    return Asked("FakeTensor", (FakeTensor,), {})


def _make_subclasses(original: Any) -> Any:
    """A tensor of a library's own kind (weights of 4 bits) is one without storage, too.

    PyTorch would make an object of that kind alone, with a tensor of the meta device inside.
    """

    def make_subclass(cls: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(data, FakeTensor) or issubclass(cls, FakeTensor):
            return original(cls, data, *args, **kwargs)
        made = data.detach()
        made.__class__ = _join_kinds(cls)
        return made.requires_grad_(bool(args[0] if args else kwargs.get("require_grad", False)))

    return make_subclass


@functools.cache
def _join_kinds(kind: type) -> type:
    return type(kind.__name__, (kind, FakeTensor), {"__module__": kind.__module__})


def _make_from_list(original: Any) -> Any:
    """A list of single numbers of the card is read number by number, as CUDA does."""

    def make(data: Any, *args: Any, **kwargs: Any) -> Any:
        kinds: list[torch.dtype] = []
        read = _read_numbers(data, kinds)
        if kinds and kwargs.get("dtype") is None:
            kwargs["dtype"] = functools.reduce(torch.promote_types, kinds)
        return original(read if kinds else data, *args, **kwargs)

    return make


def _read_numbers(value: Any, kinds: list[torch.dtype]) -> Any:
    """Return a nested list with numbers in place of tensors without storage, whose types are added."""
    if not isinstance(value, (list, tuple)):
        return value
    read = []
    for it in value:
        is_fake = isinstance(it, FakeTensor)
        if is_fake:
            kinds.append(it.dtype)
        read.append(it.tolist() if is_fake else _read_numbers(it, kinds))
    return read


def _make_truncated(original: Any, *, mode: FakeAccountingMode) -> Any:
    """Let the initialiser draw as often as it is expected to until all numbers are within bounds."""

    def fill(tensor: Any, mean: float, std: float, a: float, b: float, *args: Any, **kwargs: Any) -> Any:
        if not tensor.is_cuda and not isinstance(tensor, FakeTensor):
            return original(tensor, mean, std, a, b, *args, **kwargs)
        spread = std * 2**0.5
        outside = 1.0 - (erf((b - mean) / spread) - erf((a - mean) / spread)) / 2.0
        rounds = 0
        while rounds < _MOST_ROUNDS and tensor.numel() * outside ** (rounds + 1) >= 0.5:
            rounds += 1
        with mode.answering([True] * rounds):
            return original(tensor, mean, std, a, b, *args, **kwargs)

    return fill


def _make_apply(original: Any) -> Any:
    """Move a module so that its parameters stay the same objects, as they do on a real card.

    A real one would be replaced by a fake one: tied weights would be two from then on, and an optimizer that
    was made before would have others than the model.
    """

    def apply(module: Any, *args: Any, **kwargs: Any) -> Any:
        future = torch.__future__
        before = future.get_swap_module_params_on_conversion()
        future.set_swap_module_params_on_conversion(True)
        try:
            return original(module, *args, **kwargs)
        finally:
            future.set_swap_module_params_on_conversion(before)

    return apply


def _make_swap(original: Any) -> Any:
    """`Module.to` swaps parameters with this; PyTorch itself has weak references to fake ones."""

    def swap(parameter: Any, converted: Any) -> None:
        fakes = isinstance(parameter, FakeTensor) + isinstance(converted, FakeTensor)
        is_wrapper = fakes == 0 and is_traceable_wrapper_subclass(parameter)
        if is_wrapper or (fakes == 0 and not torch.__future__.get_swap_module_params_on_conversion()):
            original(parameter, converted)
        elif fakes != 1:
            parameter.data = converted.data
        else:
            parameter.__class__, converted.__class__ = converted.__class__, parameter.__class__
            parameter.__dict__, converted.__dict__ = converted.__dict__, parameter.__dict__
            torch._C._swap_tensor_impl(parameter, converted)

    return swap


def _set_data(original: Any, tensor: Any, value: Any) -> None:
    """Let `tensor.data = value` make a real tensor a fake one: so FSDP moves a module to the card.

    PyTorch would put the insides of the fake one, which are of the meta device, into a real tensor.
    """
    if tensor.is_leaf and isinstance(tensor, FakeTensor) != isinstance(value, FakeTensor):
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        made = torch.nn.Parameter(value, False) if is_parameter else value.detach()
        made.requires_grad_(tensor.requires_grad)
        made.grad = tensor.grad
        torch.utils.swap_tensors(tensor, made)
    else:
        original(tensor, value)


def _make_honest(real: Any, simulated: Any) -> Any:
    return lambda it: real(it) if state.is_inside else simulated(it)


def _make_reading(original: Any, *, read: Any, stand_ins: StandIns | None, registry: StorageRegistry) -> Any:
    def read_stand_in(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(tensor, FakeTensor):
            return original(tensor, *args, **kwargs)
        if stand_ins is None:
            refuse_reading()
        known = None if read is _make_array else stand_ins.exact.find(tensor)
        if known is not None:
            found = original(known, *args, **kwargs)
            place = "" if tensor.device.type == "cpu" else f", device='{tensor.device}'"
            return f"{found[:-1]}{place})" if read is _show else found
        if read is _make_array and registry.where_is(tensor) is not None and kwargs.get("force") is not True:
            return original(tensor, *args, **kwargs)  # refuses a tensor of the card, as CUDA does
        stand_ins.note_reading()
        return read(tensor, *args, **kwargs)

    return read_stand_in


def _describe(tensor: Any) -> str:
    value = f"{read_value(tensor)}" if tensor.dim() == 0 else f"..., size={tuple(tensor.shape)}"
    device = "" if tensor.device.type == "cpu" else f", device='{tensor.device}'"
    kind = "" if tensor.dtype in (torch.float32, torch.int64, torch.bool) else f", dtype={tensor.dtype}"
    return f"tensor({value}{device}{kind})"


def _show(tensor: Any, **_: Any) -> str:
    return _describe(tensor)


def _format(tensor: Any, specification: str) -> str:
    return format(read_value(tensor) if tensor.dim() == 0 else _describe(tensor), specification)


def _list(tensor: Any) -> Any:
    value: Any = read_value(tensor)
    for size in reversed(tensor.shape):
        value = [value] * size if not isinstance(value, list) else [copy.deepcopy(value) for _ in range(size)]
    return value


def _make_array(tensor: Any, dtype: Any = None, **_: Any) -> Any:
    """Return an array of stand-ins; a large one is a view of a single element, read-only."""
    import numpy

    number = torch.tensor(read_value(tensor), dtype=tensor.dtype, device="cpu").numpy()
    number = number if dtype is None else number.astype(dtype)
    shape = tuple(tensor.shape)
    if tensor.numel() * number.itemsize >= LARGE_BYTES:
        return numpy.broadcast_to(number, shape)
    return numpy.full(shape, number)


_READERS = {
    "__repr__": _show,
    "__format__": _format,
    "numpy": _make_array,
    "__array__": _make_array,
    "tolist": _list,
}


# The result is what that mode makes in the end. Left out are the questions in between that have one answer
# for these operations and arguments: symbolic sizes, constants, decompositions, devices, type promotion. The
# mode itself handles arguments that an operation would refuse or treat otherwise, and every other operation.

# Result of a shortcut that does not apply.
UNKNOWN = object()

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
    """Fast ways for the operations that it knows, for fake tensors of one mode."""

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
            ("mm.dtype bmm.dtype addmm.dtype baddbmm.dtype", self._multiply_wide),
            ("_grouped_mm", self._multiply_groups),
            ("_ctc_loss _ctc_loss.Tensor", self._align),
            ("_ctc_loss_backward _ctc_loss_backward.Tensor", self._align_back),
        )
        self._ways: dict[Any, Callable[[Any, Any, Any], Any]] = {
            operation: way for names, way in ways for operation in _find(names)
        }

    def run(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of an operation, or UNKNOWN."""
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
        """Multiply two matrices of one type, perhaps adding a row of it; the factors may be views."""
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

    def _multiply_wide(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Multiply into a wider type, which PyTorch's own shapes do not know for all of them."""
        first, second, dtype = args[-3:]
        shape = (*first.shape[:-1], second.shape[-1])
        return self._make(_aten.empty.memory_format, (shape,), {"dtype": dtype, "device": _META})

    def _multiply_groups(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Multiply groups of matrices in float32 too, which CUDA does and the meta device refuses."""
        first, second = args[:2]
        if not _is_plain(first) or not _is_plain(second) or first.dtype != second.dtype:
            return UNKNOWN
        offsets = kwargs.get("offs", args[2] if len(args) > 2 else None)
        shape = [first.shape[-2], second.shape[-1]]
        if first.dim() == second.dim():
            shape.insert(0, first.shape[0] if first.dim() == 3 else offsets.shape[0])
        dtype = kwargs.get("out_dtype") or first.dtype
        # Rows begin at multiples of 16 bytes.
        unit = 16 // dtype.itemsize
        row = -(-shape[-1] // unit) * unit
        strides = [row * shape[-2], row, 1][-len(shape) :]
        options = {"dtype": dtype, "device": _META}
        return self._make(_aten.empty_strided.default, (tuple(shape), tuple(strides)), options)

    def _align(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Loss and forward variables of CTC; targets in a row count as equally long."""
        tokens, batch, _ = args[0].shape
        longest = args[1].shape[1] if args[1].dim() == 2 else -(-args[1].numel() // batch)
        options = {"dtype": args[0].dtype, "device": _META}
        shapes = (batch,), (batch, tokens, 2 * longest + 1)
        return tuple(self._make(_aten.empty.memory_format, (shape,), options) for shape in shapes)

    def _align_back(self, function: Any, args: Any, kwargs: Any) -> Any:
        return self._make(_aten.empty_like.default, (args[1],), {})

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
    """Return the host or the meta device if C++ asks a fake tensor for its device, else UNKNOWN."""
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
    """Return the kernel that the host would use, which the meta device does not know."""
    if not all(_is_plain(it) for it in args if isinstance(it, torch.Tensor)):
        return UNKNOWN
    with torch._C._DisableTorchDispatch():
        return function._op_dk(torch._C.DispatchKey.CPU, *args, **kwargs)


def _is_plain(tensor: Any) -> bool:
    """A fake tensor without any known value."""
    return isinstance(tensor, FakeTensor) and tensor.constant is None


def _looks(tensor: Any) -> tuple[Any, Any]:
    return tensor.shape, tensor.dtype


def _are_alike(args: Any) -> bool:
    """Return whether lists of tensors have the sizes of the first and all one type: no check would fail."""
    lists = [it for it in args if isinstance(it, (list, tuple)) and it and isinstance(it[0], torch.Tensor)]
    if not lists or not all(_is_plain(it) for members in lists for it in members):
        return False
    looks = [_looks(it) for it in lists[0]]
    is_one_type = len({dtype for _, dtype in looks}) == 1
    return is_one_type and all([_looks(it) for it in members] == looks for members in lists[1:])
