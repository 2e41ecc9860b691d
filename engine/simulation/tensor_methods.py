"""Factories, methods of tensors and storages that name a device, `torch.device`, and types of old scripts."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch.utils import _device as default_devices

from .card import OutOfMemory
from .devices import ELSEWHERE, HOST, Devices, state, targeting, uncharged
from .patching import name_for_scripts, replace
from .storages import PinnedMemory, StorageRegistry, Transfers, storage_of

_CPU = torch.device("cpu")
_LIKE = ("empty", "zeros", "ones", "full", "rand", "randn", "randint")
_NEW = ("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor", "new_empty_strided")
_FROM_DATA = ("tensor", "as_tensor", "asarray")
# Factories that `torch.set_default_device` leaves alone.
_NAMED_NOWHERE = ("normal",)


class Factories:
    """Wraps every function with `device=`."""

    def __init__(
        self, devices: Devices, registry: StorageRegistry, transfers: Transfers, pinned: PinnedMemory
    ) -> None:
        self._devices = devices
        self._registry = registry
        self._transfers = transfers
        self._pinned = pinned

    def install(self) -> None:
        """Replace torch's own functions by the wrappers."""
        originals = set(default_devices._device_constructors())
        for owner in (torch, torch.fft, torch.nested):
            for name, value in list(vars(owner).items()):
                if callable(value) and _is_among(value, originals) and name not in _FROM_DATA:
                    replace(owner, name, self._wrap_constructor)
        for name in _FROM_DATA:
            replace(torch, name, self._wrap_from_data)
        for name in _NAMED_NOWHERE:
            replace(torch, name, self._wrap_follower)
        for name in _LIKE:
            replace(torch, f"{name}_like", self._wrap_follower)
        for name in _NEW:
            replace(torch.Tensor, name, self._wrap_follower)
        self._simulate_default(originals)

    def _wrap_constructor(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function whose tensor is on the default device if no device is named."""

        def construct(*args: Any, **kwargs: Any) -> Any:
            device = kwargs.get("device")
            if device is None:
                return self._make_on_host(original, args, kwargs)
            return self._make(original, device, args, kwargs)

        return construct

    def _wrap_follower(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function whose tensor is on the device of its first argument if no device is named."""

        def follow(*args: Any, **kwargs: Any) -> Any:
            device = kwargs.get("device")
            if (
                device is None
                and kwargs.get("pin_memory")
                and args
                and self._registry.where_is(args[0]) is None
            ):
                return self._make_on_host(original, args, kwargs)
            if device is None:
                made = original(*args, **kwargs)
                if not state.is_inside and args and isinstance(args[0], torch.Tensor):
                    place = self._registry.where_is(args[0])
                    if place is not None:
                        self._registry.place_tensor(made, place)
                return made
            return self._make(original, device, args, kwargs)

        return follow

    def _wrap_from_data(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function of numbers, arrays or tensors, whose memory the result may share."""
        construct = self._wrap_constructor(original)
        is_copying = original.__name__ == "tensor"

        def make(data: Any = None, *args: Any, **kwargs: Any) -> Any:
            device = kwargs.get("device")
            if isinstance(data, torch.Tensor) and not is_copying:
                if device is not None:
                    data = data.to(kwargs.pop("device"))
                return original(data, *args, **kwargs)
            made = construct(data, *args, **kwargs)
            if (
                not is_copying
                and self._registry.where_is(made) is not None
                and not isinstance(data, (int, float))
            ):
                # The host's copy would be the caller's own array.
                return self._transfers.copy(made, self._transfers.where_is(made))
            return made

        return make

    def _make(self, original: Callable[..., Any], device: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        target = self._devices.resolve(device)
        if target in (HOST, ELSEWHERE):
            return self._make_on_host(original, args, kwargs)
        if state.is_inside:
            return original(*args, **{**kwargs, "device": _CPU})
        # Refuse a generator of the host for a tensor of a device, as CUDA does.
        generator = kwargs.get("generator")
        if generator is not None and generator.device.type != "cuda":
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        kwargs["device"] = _CPU
        if kwargs.pop("pin_memory", False):
            raise RuntimeError("Only dense CPU tensors can be pinned")
        try:
            with targeting(target):
                made = original(*args, **kwargs)
                self._registry.place_tensor(made, target)
        except OutOfMemory as error:
            # The line of the user stands next to what is said; the steps below it are ours.
            raise error.with_traceback(None) from None
        return made

    def _make_on_host(self, original: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Make a tensor of the host, pinned where that is asked for: CUDA does that in the factory."""
        is_pinned = bool(kwargs.pop("pin_memory", False))
        with targeting(HOST):
            made = original(*args, **kwargs)
        if is_pinned:
            self._pinned.note(made)
        return made

    def _simulate_default(self, originals: set[Any]) -> None:
        """Make the default-device mode create tensors on a simulated device."""
        context = default_devices.DeviceContext
        handle = context.__torch_function__

        def handle_default(mode: Any, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if mode.device.type != "cuda":
                return handle(mode, function, types, args, kwargs)
            kwargs = kwargs or {}
            if function in originals and kwargs.get("device") is None:
                return self._make(function, mode.device, args, kwargs)
            return function(*args, **kwargs)

        context.__torch_function__ = handle_default
        default_devices._device_constructors = lambda: originals


def _is_among(value: Any, originals: set[Any]) -> bool:
    try:
        return value in originals
    except TypeError:
        return False


_base = torch._C.TensorBase


class TensorMethods:
    """Gives every tensor the answers that CUDA would give."""

    def __init__(
        self, devices: Devices, registry: StorageRegistry, transfers: Transfers, pinned: PinnedMemory
    ) -> None:
        self._devices = devices
        self._registry = registry
        self._transfers = transfers
        self._pinned = pinned

    def install(self) -> None:
        """Install the answers, on the class that all tensors share."""
        self._install_properties()
        replace(torch.Tensor, "to", self._make_to)
        replace(torch.Tensor, "cuda", self._make_cuda)
        replace(torch.Tensor, "cpu", self._make_cpu)
        replace(torch._C._nn, "_parse_to", self._make_parse)
        replace(torch.Tensor, "type", self._make_type)
        replace(torch.Tensor, "get_device", self._make_get_device)
        replace(torch, "get_device", self._make_get_device)
        replace(torch.Tensor, "numpy", self._make_host_only)
        replace(torch.Tensor, "__array__", self._make_host_only)
        replace(torch.Tensor, "pin_memory", self._make_pin_memory)
        replace(torch.Tensor, "is_pinned", self._make_is_pinned)
        replace(torch.Tensor, "record_stream", self._make_record_stream)
        torch.Tensor._make_wrapper_subclass = staticmethod(
            self._make_wrapper(torch.Tensor._make_wrapper_subclass)
        )

    def _install_properties(self) -> None:
        records = self._registry.records
        names = self._devices.names
        where_is = self._registry.where_is
        real_device = _base.device.__get__
        real_is_cpu = _base.is_cpu.__get__

        def device(tensor: Any) -> Any:
            try:
                record = records.get(storage_of(tensor)._cdata)
            except (NotImplementedError, RuntimeError):
                place = where_is(tensor)
                return real_device(tensor) if place is None else names[place]
            return real_device(tensor) if record is None or record.device < 0 else names[record.device]

        torch.Tensor.device = property(device)
        torch.Tensor.is_cuda = property(lambda tensor: where_is(tensor) is not None)
        torch.Tensor.is_cpu = property(lambda tensor: where_is(tensor) is None and real_is_cpu(tensor))

    def _make_to(self, original: Any) -> Any:
        def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            device, dtype, rest, options = _read_to(args, kwargs)
            if device is None:
                return original(tensor, *args, **kwargs)
            target = self._devices.resolve(device)
            source = self._transfers.where_is(tensor)
            if target == ELSEWHERE:
                with targeting(HOST):  # what is made, on `meta`, is on no card
                    return original(tensor, *args, **kwargs)
            if target == HOST and source == HOST:
                return original(tensor, *args, **kwargs)
            if target == source:
                return original(tensor, dtype or tensor.dtype, *rest, **options)
            return self._transfers.move(tensor, target, dtype, options.get("memory_format"))

        return to

    def _make_parse(self, original: Any) -> Any:
        """`Module.to` reads its arguments with this, which knows no number of a card on a build for CPUs."""

        def parse(*args: Any, **kwargs: Any) -> Any:
            device = kwargs.get("device", args[0] if args else None)
            if isinstance(device, int) and not isinstance(device, bool):
                named = self._devices.names[self._devices.resolve(device)]
                args, kwargs = (
                    ((), {**kwargs, "device": named}) if "device" in kwargs else ((named, *args[1:]), kwargs)
                )
            return original(*args, **kwargs)

        return parse

    def _make_cuda(self, original: Any) -> Any:
        def cuda(
            tensor: Any,
            device: Any = None,
            non_blocking: bool = False,
            memory_format: torch.memory_format | None = None,
        ) -> Any:
            target = self._devices.resolve("cuda" if device is None else device)
            if target == HOST:
                raise RuntimeError("Invalid device, must be cuda device")
            if target == self._transfers.where_is(tensor):
                return tensor
            return self._transfers.move(tensor, target, None, memory_format)

        return cuda

    def _make_cpu(self, original: Any) -> Any:
        def cpu(tensor: Any, memory_format: torch.memory_format | None = None) -> Any:
            if self._transfers.where_is(tensor) == HOST:
                return original(tensor) if memory_format is None else original(tensor, memory_format)
            return self._transfers.move(tensor, HOST, None, memory_format)

        return cpu

    def _make_type(self, original: Any) -> Any:
        def type_(tensor: Any, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
            if dtype is None:
                name: str = original(tensor)
                # Where a function mode is active, torch comes here a second time.
                is_simulated = self._transfers.where_is(tensor) != HOST and ".cuda." not in name
                return name.replace("torch.", "torch.cuda.", 1) if is_simulated else name
            if isinstance(dtype, LegacyType):
                dtype = f"torch.cuda.{dtype.__name__}"
            name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", "")
            if isinstance(dtype, str) and name.startswith("torch.cuda."):
                return original(tensor.cuda(), name.replace("torch.cuda.", "torch.", 1))
            if isinstance(dtype, str) and self._transfers.where_is(tensor) != HOST:
                return original(tensor.cpu(), dtype)
            return original(tensor, dtype, non_blocking, **kwargs)

        return type_

    def _make_get_device(self, original: Any) -> Any:
        def get_device(tensor: Any) -> int:
            place = self._registry.where_is(tensor)
            return int(original(tensor)) if place is None else place

        return get_device

    def _make_host_only(self, original: Any) -> Any:
        def convert(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            place = self._registry.where_is(tensor)
            if place is not None:
                raise TypeError(
                    f"can't convert cuda:{place} device type tensor to numpy. "
                    "Use Tensor.cpu() to copy the tensor to host memory first."
                )
            return original(tensor, *args, **kwargs)

        return convert

    def _make_pin_memory(self, original: Any) -> Any:
        def pin_memory(tensor: Any, device: Any = None) -> Any:
            if self._registry.where_is(tensor) is not None:
                raise RuntimeError(f"cannot pin '{tensor.type()}' only dense CPU tensors can be pinned")
            return self._pinned.pin(tensor)

        return pin_memory

    def _make_is_pinned(self, original: Any) -> Any:
        return lambda tensor, device=None: self._pinned.is_pinned(tensor)

    def _make_wrapper(self, original: Any) -> Any:
        """A tensor around others is of the host too; it costs nothing, as its parts are counted."""

        def make_wrapper(*args: Any, device: Any = None, **kwargs: Any) -> Any:
            target = ELSEWHERE if device is None else self._devices.resolve(device)
            if target < 0:
                return original(*args, device=device, **kwargs)
            made = original(*args, device=_CPU, **kwargs)
            with uncharged():
                self._registry.place_tensor(made, target)
            return made

        return make_wrapper

    def _make_record_stream(self, original: Any) -> Any:
        def record_stream(tensor: Any, stream: Any) -> None:
            record = self._registry.record_of(tensor)
            if record is not None and record.card is not None:
                record.card.allocator.record_stream(record.address, stream.stream_id)

        return record_stream


def _read_to(args: Any, kwargs: Any) -> tuple[Any, Any, tuple[Any, ...], dict[str, Any]]:
    """Return device, dtype, further positional and named arguments of a call of `Tensor.to`."""
    options = dict(kwargs)
    device = options.pop("device", None)
    dtype = options.pop("dtype", None)
    other = options.pop("other", None)
    rest = tuple(args)
    if rest and isinstance(rest[0], torch.Tensor):
        other = rest[0]
        rest = rest[1:]
    elif rest and isinstance(rest[0], torch.dtype):
        dtype = rest[0]
        rest = rest[1:]
    elif rest:
        device = rest[0]
        rest = rest[1:]
        if rest and (rest[0] is None or isinstance(rest[0], torch.dtype)):
            dtype = rest[0]
            rest = rest[1:]
    if other is not None:
        device = other.device
        dtype = other.dtype
    return device, dtype, rest, options


_DTYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "LongTensor": torch.int64,
    "IntTensor": torch.int32,
    "ShortTensor": torch.int16,
    "CharTensor": torch.int8,
    "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}


class LegacyType(type):
    """A type whose instances are all tensors of one dtype on a device."""

    dtype: torch.dtype

    def __call__(cls, *args: Any, device: Any = None) -> Any:
        """Return a tensor of some sizes, or of some data, as the type of the host does."""
        if args and isinstance(args[0], torch.Tensor):
            return args[0].to("cuda" if device is None else device, cls.dtype)
        return getattr(torch, cls.__name__)(*args).cuda(device)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype == cls.dtype


def install_legacy_types() -> None:
    """Install the types, and make them possible as the default type."""
    for name, dtype in _DTYPES.items():
        made = LegacyType(name, (), {"dtype": dtype, "__module__": "torch.cuda"})
        setattr(torch.cuda, name, made)
    replace(torch, "set_default_tensor_type", _make_set_default)


def _make_set_default(original: Any) -> Any:
    def set_default_tensor_type(kind: Any) -> None:
        name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
        if not name.startswith("torch.cuda."):
            torch.set_default_device(None)
            original(kind)
            return
        torch.set_default_dtype(_DTYPES[name.rsplit(".", 1)[-1]])
        torch.set_default_device("cuda")

    return set_default_tensor_type


_Device = torch.device


class DeviceType(type):
    """Lets `torch.device` take the ordinal of a card, which a build for CPUs refuses.

    Devices themselves stay of PyTorch's own class, which cannot be derived from: to tables and comparisons
    the two classes are one.
    """

    devices: Devices

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.device:
        named = args[0] if args else kwargs.get("device")
        if len(args) + len(kwargs) == 1 and isinstance(named, int) and not isinstance(named, bool):
            return cls.devices.names[cls.devices.resolve(named)]
        return _Device(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Device)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _Device)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is _Device

    def __hash__(cls) -> int:
        return hash(_Device)

    def __getattr__(cls, name: str) -> Any:
        return getattr(_Device, name)


def install_device_type(devices: Devices) -> None:
    replace(
        torch, "device", lambda it: DeviceType(it.__name__, (), {"__module__": "torch", "devices": devices})
    )
    name_for_scripts(torch.device, _Device)


_storage_base = torch._C.StorageBase


class StorageMethods:
    """Gives every storage the answers that CUDA would give."""

    def __init__(self, devices: Devices, registry: StorageRegistry) -> None:
        self._devices = devices
        self._registry = registry

    def install(self) -> None:
        records = self._registry.records
        names = self._devices.names
        real_device = torch.UntypedStorage.device.__get__

        def device(storage: Any) -> Any:
            record = records.get(storage._cdata)
            return real_device(storage) if record is None or record.device < 0 else names[record.device]

        torch.UntypedStorage.device = property(device)
        torch.UntypedStorage.__new__ = staticmethod(self._make)
        replace(torch.UntypedStorage, "resize_", self._make_resize)
        replace(torch.UntypedStorage, "is_shared", self._make_is_shared)

    def _make(self, cls: Any, *args: Any, **kwargs: Any) -> Any:
        """Make a storage on the device that is asked for; its content is undefined."""
        device = kwargs.get("device")
        target = HOST if device is None else self._devices.resolve(device)
        if target < 0:
            return _storage_base.__new__(cls, *args, **kwargs)
        kwargs["device"] = "cpu"
        made = _storage_base.__new__(cls, *args, **kwargs)
        self._registry.place(made, target)
        return made

    def _make_resize(self, original: Any) -> Any:
        def resize(storage: Any, size_bytes: int) -> Any:
            resized = original(storage, size_bytes)
            self._registry.resize(storage)
            return resized

        return resize

    def _make_is_shared(self, original: Any) -> Any:
        def is_shared(storage: Any) -> bool:
            return storage._cdata in self._registry.records or bool(original(storage))

        return is_shared
