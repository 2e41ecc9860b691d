"""Functions that make tensors: the device they are asked for is simulated, the tensor is made on the host."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch.utils import _device as default_devices

from .card import OutOfMemory
from .devices import ELSEWHERE, HOST, Devices, state, targeting
from .patching import replace
from .storages import StorageRegistry
from .transfers import Transfers

_CPU = torch.device("cpu")
_LIKE = ("empty", "zeros", "ones", "full", "rand", "randn", "randint")
_NEW = ("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor", "new_empty_strided")
_FROM_DATA = ("tensor", "as_tensor", "asarray")
_NAMED_NOWHERE = ("normal",)
"""Factories that `torch.set_default_device` leaves alone."""


class Factories:
    """Wraps whatever takes `device=`."""

    def __init__(self, devices: Devices, registry: StorageRegistry, transfers: Transfers) -> None:
        self._devices = devices
        self._registry = registry
        self._transfers = transfers

    def install(self) -> None:
        """Put the wrappers in the places of torch's own functions."""
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
        """Wrap a function whose tensor is on the default device where none is named."""

        def construct(*args: Any, **kwargs: Any) -> Any:
            device = kwargs.get("device")
            if device is None:
                with targeting(HOST):
                    return original(*args, **kwargs)
            return self._make(original, device, args, kwargs)

        return construct

    def _wrap_follower(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function whose tensor is where its first argument is, where none is named."""

        def follow(*args: Any, **kwargs: Any) -> Any:
            device = kwargs.get("device")
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
        """Wrap a function that takes numbers, arrays or tensors, and may share what it is given."""
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
        """Make a tensor on the device that was named."""
        target = self._devices.resolve(device)
        if target in (HOST, ELSEWHERE):
            with targeting(HOST):
                return original(*args, **kwargs)
        if state.is_inside:
            return original(*args, **{**kwargs, "device": _CPU})
        _check_generator(kwargs.get("generator"))
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

    def _simulate_default(self, originals: set[Any]) -> None:
        """Let the default-device mode make tensors on a simulated device where it is the default."""
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


def _check_generator(generator: Any) -> None:
    """Refuse a generator of the host for a tensor of a device, as CUDA does.

    Raises:
        RuntimeError: The generator is not on a simulated device.
    """
    if generator is not None and generator.device.type != "cuda":
        raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
