"""Without storage: what is on the card, and what is large on the host, has a shape and no values.

Fake tensors are PyTorch's own (`FakeTensorMode`), of the host, so that no kernel of CUDA is looked for. Small
tensors of the host stay real, and with them samplers, schedules and counters; who reads a value that is not
there is stopped in one line that names the line of the script.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NoReturn

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from .dispatch_mode import AccountingMode, Survey
from .fake_shortcuts import UNKNOWN, Shortcuts, answer_device
from .host_memory import HostMemory
from .notices import refuse
from .operations import measure_made
from .patching import replace
from .stacks import capture_stack
from .storages import StorageRegistry
from .thread_state import inside, state

LARGE_BYTES = 1 << 20
"""From here on, a floating-point tensor that is made on the host has no storage either."""

_VALUELESS = tuple(
    getattr(fake_tensor, name)
    for name in ("DataDependentOutputException", "DynamicOutputShapeException")
    if hasattr(fake_tensor, name)
)


class FakeAccountingMode(AccountingMode):
    """Accounts as for real tensors, and computes shapes only."""

    def __init__(self, registry: StorageRegistry, host: HostMemory) -> None:
        super().__init__(registry, host)
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._shortcuts = Shortcuts(self._fake)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Two thirds of all that comes here: C++ asks what a tensor's device is.
        device = answer_device(function, args)
        return super().__torch_dispatch__(function, types, args, kwargs) if device is UNKNOWN else device

    def run(self, function: Any, args: Any, kwargs: Any, survey: Survey) -> Any:
        """Compute an operation on the host where it is small and stays there, else its shape alone.

        Raises:
            SystemExit: It reads a value that is not there.
        """
        if not self._is_valueless(args, kwargs, survey):
            return function(*args, **kwargs)
        made = self._shortcuts.run(function, args, kwargs)
        if made is not UNKNOWN:
            return made
        try:
            with inside(), self._fake:
                return function(*args, **kwargs)
        except _VALUELESS:
            refuse_reading()

    @staticmethod
    def _is_valueless(args: Any, kwargs: Any, survey: Survey) -> bool:
        if survey.device is not None or state.target >= 0:
            return True
        if _holds_fake(args) or _holds_fake(kwargs.values()):
            return True
        dtype = kwargs.get("dtype") or torch.get_default_dtype()
        return dtype.is_floating_point and measure_made(args, kwargs) >= LARGE_BYTES


def install(registry: StorageRegistry) -> None:
    """Let fake tensors answer for their simulated devices, and stop who would read them."""
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
    for name in ("__repr__", "__format__", "numpy", "__array__", "tolist"):
        replace(torch.Tensor, name, _make_reading)
    FakeTensor.__repr__ = torch.Tensor.__repr__
    FakeTensor.__deepcopy__ = _copy_deeply
    replace(torch.utils, "swap_tensors", _make_swap)
    replace(torch.nn.Module, "_apply", _make_apply)
    # `torch.optim` hides its module of this name behind the class.
    for name in ("torch.utils._foreach_utils", "torch.optim.optimizer"):
        import_module(name)._foreach_supported_types.append(FakeTensor)


def refuse_reading() -> NoReturn:
    """Stop the script at the line that reads a value.

    Raises:
        SystemExit: Always.
    """
    frames = capture_stack().frames
    place = f"{frames[0]['filename']}:{frames[0]['line']}" if frames else "the script"
    refuse(
        f"{place} reads the value of a tensor, and with --fake tensors have none: leave the line out, or "
        "guard it (if 'VRAMSCOPE_SIMULATE' not in os.environ), or run without --fake"
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


def _make_apply(original: Any) -> Any:
    """Return what moves a module so that its parameters stay the same objects, as they do on a real card.

    A real one would be replaced by a fake one: tied weights were two from then on, and an optimizer that was
    made before had others than the model.
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
    """Return what `Module.to` swaps a parameter with; PyTorch itself holds weak references to fake ones."""

    def swap(parameter: Any, converted: Any) -> None:
        fakes = isinstance(parameter, FakeTensor) + isinstance(converted, FakeTensor)
        if fakes == 0 and not torch.__future__.get_swap_module_params_on_conversion():
            original(parameter, converted)
        elif fakes != 1:
            parameter.data = converted.data
        else:
            parameter.__class__, converted.__class__ = converted.__class__, parameter.__class__
            parameter.__dict__, converted.__dict__ = converted.__dict__, parameter.__dict__
            torch._C._swap_tensor_impl(parameter, converted)

    return swap


def _make_honest(real: Any, simulated: Any) -> Any:
    return lambda it: real(it) if state.is_inside else simulated(it)


def _make_reading(original: Any) -> Any:
    def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(tensor, FakeTensor):
            refuse_reading()
        return original(tensor, *args, **kwargs)

    return read


def _holds_fake(values: Any) -> bool:
    """Tell whether a fake tensor is among some values, lists among them included."""
    return any(
        isinstance(it, FakeTensor) or (isinstance(it, (list, tuple)) and _holds_fake(it)) for it in values
    )
