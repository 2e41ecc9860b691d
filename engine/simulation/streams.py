"""Streams and events: everything has always run already, so waiting ends at once."""

from __future__ import annotations

import itertools
import time
from typing import Any

import torch

from .devices import state
from .simulation import Simulation

CUDA_DEVICE_TYPE = 1
_numbers = itertools.count(1)


class Stream:
    simulation: Simulation | None = None

    def __init__(self, device: Any = None, priority: int = 0, **ids: Any) -> None:
        simulation = _simulation()
        self.device_index: int = ids.get("device_index", simulation.card(device).ordinal)
        self.stream_id: int = ids.get("stream_id", next(_numbers))
        self.device_type = CUDA_DEVICE_TYPE
        self.priority = priority
        self._before: list[int] = []

    @property
    def device(self) -> torch.device:
        return _simulation().devices.names[self.device_index]

    @property
    def cuda_stream(self) -> int:
        """A number instead of the pointer."""
        return self.stream_id

    _as_parameter_ = cuda_stream

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, -3

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Blocks of other streams become free."""
        _simulation().cards[self.device_index].allocator.synchronize()

    def is_capturing(self) -> bool:
        return False

    def wait_event(self, event: Any) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...

    def record_event(self, event: Any = None) -> Any:
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        self._before.append(state.streams.get(self.device_index, 0))
        state.streams[self.device_index] = self.stream_id
        return self

    def __exit__(self, *_: object) -> None:
        state.streams[self.device_index] = self._before.pop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.stream_id, self.device_index) == (
            other.stream_id,
            other.device_index,
        )

    def __hash__(self) -> int:
        return hash((self.stream_id, self.device_index))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.stream_id:#x} (simulated)>"


class Event:
    """An event of a simulated device; times between events are times of the host's computation."""

    def __init__(
        self, device: Any = None, enable_timing: bool = False, blocking: bool = False, **_: Any
    ) -> None:
        self.enable_timing = enable_timing
        self._recorded_s: float | None = None

    def record(self, stream: Any = None) -> None:
        self._recorded_s = time.perf_counter()

    def wait(self, stream: Any = None) -> None: ...

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        _simulation().card().allocator.synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between two events, on the host; raises `RuntimeError` if one was not recorded."""
        if self._recorded_s is None or end_event._recorded_s is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return 1000.0 * (end_event._recorded_s - self._recorded_s)


def install(simulation: Simulation) -> None:
    Stream.simulation = simulation
    low = torch._C
    low._cuda_getCurrentStream = lambda device: _describe(simulation.card(device).ordinal)
    low._cuda_getDefaultStream = lambda device: (0, simulation.card(device).ordinal, CUDA_DEVICE_TYPE)
    low._cuda_getStreamFromExternal = lambda pointer, device: (pointer, device, CUDA_DEVICE_TYPE)
    low._cuda_getCurrentRawStream = lambda device: state.streams.get(device, 0)
    low._cuda_setStream = _set_stream
    for owner in (torch.cuda, torch.cuda.streams):
        owner.Stream = Stream
        owner.Event = Event
    torch.Stream = Stream
    torch.Event = Event


def _simulation() -> Simulation:
    if Stream.simulation is None:
        raise RuntimeError("no simulated device is installed in this process")
    return Stream.simulation


def _describe(device: int) -> tuple[int, int, int]:
    return state.streams.get(device, 0), device, CUDA_DEVICE_TYPE


def _set_stream(stream_id: int, device_index: int, device_type: int) -> None:
    state.streams[device_index] = stream_id
    if state.device != device_index:
        _simulation().choose(device_index)
