"""The training that the cost of the probe is measured on; run as a process of its own by `probe_cost`.

python -m benchmarks.probed_training count|pair FOLDER SECONDS|BLOCKS

A GPT of twelve layers on the CPU with one thread: 148 tensors of parameters, as GPT-2 small has, each of
them narrower, so that a step takes less than 100 ms here; the probe's cost follows from how many tensors
there are, not from how large they are. `torch.cuda` is a stand-in whose readings are fresh dicts of 122
statistics, made in C as PyTorch makes them.
"""

import ctypes
import importlib
import json
import marshal
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from tests.engine.probe.stand_in import MIB, StandInCuda

PROBE = Path(__file__).resolve().parents[1] / "engine" / "probe"
LAYERS, WIDTH, HEADS, VOCABULARY, LENGTH, BATCH = 12, 128, 4, 2048, 64, 4
STEP_S = 0.1
BLOCK_STEPS = 10
WARM_UP_STEPS = 5


class Training:
    """A model, its optimizer, and steps of them."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(1)
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.positions = torch.nn.Embedding(LENGTH, WIDTH)
        layers = [
            torch.nn.TransformerEncoderLayer(
                WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(LAYERS)
        ]
        self.layers = torch.nn.Sequential(*layers, torch.nn.LayerNorm(WIDTH))
        modules = (self.embedding, self.positions, self.layers)
        self.parameters = [parameter for module in modules for parameter in module.parameters()]
        self.optimizer = torch.optim.AdamW(self.parameters)
        self.phase: Callable[[str], AbstractContextManager[object]] = nullcontext
        """Names a part of a step."""

    def step(self) -> None:
        """Make one step on random words."""
        words = torch.randint(VOCABULARY, (BATCH, LENGTH))
        with self.phase("forward"):
            hidden = self.layers(self.embedding(words) + self.positions.weight)
            logits = hidden @ self.embedding.weight.T
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten())
        with self.phase("backward"):
            self.optimizer.zero_grad()
            loss.backward()
        with self.phase("optimizer"):
            self.optimizer.step()


class Counted:
    """CPU time of a function in the thread that calls it, with the cost of asking the clock."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.spent_ns: list[int] = []
        self._function = function

    def __call__(self, *arguments: object) -> Any:  # noqa: ANN401 - whatever the function returns
        """Call the function and count."""
        start_ns = time.thread_time_ns()
        try:
            return self._function(*arguments)
        finally:
            self.spent_ns.append(time.thread_time_ns() - start_ns)


class CountedPhases:
    """CPU time of the begin and the end of each named part.

    Args:
        make: Returns a part of a name, as `vramscope.phase` does.
    """

    def __init__(self, make: Callable[[str], AbstractContextManager[object]]) -> None:
        self.spent_ns: list[int] = []
        self._make = make

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Begin and end a part, and count both."""
        part = self._make(name)
        start_ns = time.thread_time_ns()
        part.__enter__()
        begun_ns = time.thread_time_ns()
        yield
        ended_ns = time.thread_time_ns()
        part.__exit__(None, None, None)
        self.spent_ns += [begun_ns - start_ns, time.thread_time_ns() - ended_ns]


class SystemCalls:
    """CPU time of the sampler's system calls: Python lets its lock go for each of them."""

    def __init__(self) -> None:
        self._counted: list[Counted] = []

    @property
    def spent_ns(self) -> int:
        """All of it together."""
        return sum(sum(each.spent_ns) for each in self._counted)

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(len(each.spent_ns) for each in self._counted)

    def watch(self) -> None:
        """Count in the modules of the probe that make them; before its session begins."""
        pread, fstat = self._count(os.pread), self._count(os.fstat)
        process, transport, descriptors = (
            importlib.import_module(f"vramscope_probe.{name}")
            for name in ("process", "transport", "descriptors")
        )
        vars(process)["os"] = SimpleNamespace(**{**vars(os), "pread": pread})
        vars(descriptors)["os"] = SimpleNamespace(**{**vars(os), "fstat": fstat})
        send, receive = self._count(socket.socket.send), self._count(socket.socket.recv)

        class Watched(socket.socket):
            def send(self, *arguments: object) -> int:
                return int(send(self, *arguments))

            def recv(self, *arguments: object) -> bytes:
                return bytes(receive(self, *arguments))

        vars(transport)["socket"] = SimpleNamespace(**{**vars(socket), "socket": Watched})

    def _count(self, function: Callable[..., Any]) -> Counted:
        self._counted.append(Counted(function))
        return self._counted[-1]


def load_probe() -> ModuleType:
    """Load the probe by its path, as the launcher does."""
    path = str(PROBE / "__init__.py")
    spec = spec_from_file_location(
        "vramscope_probe",
        path,
        loader=SourceFileLoader("vramscope_probe", path),
        submodule_search_locations=[str(PROBE)],
    )
    if spec is None or spec.loader is None:
        raise RuntimeError(f"the probe could not be loaded from {PROBE}")
    module = sys.modules["vramscope_probe"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stand_in() -> StandInCuda:
    """Put a stand-in in the place of `torch.cuda`."""
    cuda = StandInCuda()
    cuda.allocate(512 * MIB)
    packed = marshal.dumps(cuda.memory_stats_as_nested_dict(0))
    torch.cuda.memory_stats_as_nested_dict = lambda device: marshal.loads(packed)  # noqa: S302 - our own
    torch.cuda.is_initialized = cuda.is_initialized
    for name in ("host_memory_stats_as_nested_dict", "device_count"):
        setattr(torch.cuda, name, getattr(cuda, name))
    for name in ("get_device_properties", "get_per_process_memory_fraction", "memory_snapshot"):
        setattr(torch.cuda, name, getattr(cuda, name))
    return cuda


def count(folder: str, window_s: float) -> dict[str, object]:
    """Count the CPU time of the hook and of the sampler's thread over steps of 100 ms each."""
    training, _, probe = Training(), stand_in(), load_probe()
    calls = SystemCalls()
    calls.watch()
    probe.start(folder)
    hooks: dict[int, Any] = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
    (key,) = hooks
    hook = hooks[key] = Counted(hooks[key])
    sampler = _count_sampler()
    phases = training.phase = CountedPhases(probe.phase)
    for _ in range(WARM_UP_STEPS):
        _step_on_time(training)
    thread = _find_sampler()
    clock = time.pthread_getcpuclockid(thread)
    first, first_tick = len(hook.spent_ns), len(sampler.spent_ns)
    first_mark = len(phases.spent_ns)
    thread_ns, calls_ns, made = time.clock_gettime_ns(clock), calls.spent_ns, calls.count
    start_s = time.monotonic()
    nothing, control = Counted(_do_nothing), Counted(torch.cuda.memory_stats_as_nested_dict)
    while time.monotonic() - start_s < window_s:
        _step_on_time(training)
        nothing()
        control(0)
    thread_ns = time.clock_gettime_ns(clock) - thread_ns
    spent_s = time.monotonic() - start_s
    clock_ns = statistics.median(nothing.spent_ns)
    steps = [each - clock_ns for each in hook.spent_ns[first:]]
    ticks = [each - clock_ns for each in sampler.spent_ns[first_tick:]]
    calls_ns = calls.spent_ns - calls_ns - int((calls.count - made) * _clock_overhead_ns())
    probe.stop()
    return {
        "tensors": len(training.parameters),
        "sampler_thread_us": thread_ns / 1e3 / (spent_s / STEP_S),
        "statistics_cold_us": statistics.median(control.spent_ns) / 1e3,
        "phases_us": sum(it - clock_ns for it in phases.spent_ns[first_mark:]) / 1e3 / (spent_s / STEP_S),
        "phase_median_us": (statistics.median(phases.spent_ns[first_mark:]) - clock_ns) / 1e3,
        "statistics_us": _cost_of(lambda: torch.cuda.memory_stats_as_nested_dict(0)),
        **_sum_up(steps, ticks, calls_ns, clock_ns, spent_s),
    }


def _sum_up(
    steps: list[float], ticks: list[float], calls_ns: int, clock_ns: float, spent_s: float
) -> dict[str, object]:
    """Return what was counted, in µs; of both threads per 100 ms."""
    periods = spent_s / STEP_S
    return {
        "steps": len(steps),
        "step_s": spent_s / len(steps),
        "clock_us": clock_ns / 1e3,
        "hook_us": sum(steps) / 1e3 / periods,
        "hook_median_us": statistics.median(steps) / 1e3,
        "hook_worst_us": max(steps) / 1e3,
        "sampler_us": (sum(ticks) - calls_ns) / 1e3 / periods,
        "system_calls_us": calls_ns / 1e3 / periods,
        "ticks_a_second": len(ticks) / spent_s,
        "tick_us": statistics.median(ticks) / 1e3,
    }


def pair(folder: str, blocks: int) -> dict[str, object]:
    """Time blocks of steps with and without the probe in turn; return the median step of each block."""
    training, _, probe = Training(), stand_in(), load_probe()
    for _ in range(WARM_UP_STEPS):
        training.step()
    seconds: dict[str, list[float]] = {"without": [], "with": []}
    for block in range(2 * blocks):
        # A B B A, so that a drift of the machine falls on both alike.
        way = ("without", "with", "with", "without")[block % 4]
        if way == "with":
            probe.start(folder)
            training.step()
        seconds[way].append(statistics.median(_time(training.step) for _ in range(BLOCK_STEPS)))
        probe.stop()
    return dict(seconds)


def _count_sampler() -> Counted:
    """Count what the sampler's thread does between two waits: there it holds the interpreter's lock."""
    session = sys.modules["vramscope_probe.base.current"].session
    counted = Counted(session._thread._tick)
    session._thread._tick = counted
    return counted


def _step_on_time(training: Training) -> None:
    start_s = time.monotonic()
    training.step()
    time.sleep(max(0.0, STEP_S - (time.monotonic() - start_s)))


def _find_sampler() -> int:
    """Return the identity of the probe's thread."""
    import threading

    (thread,) = [it for it in threading.enumerate() if it.name == "vramscope-probe"]
    if thread.ident is None:
        raise RuntimeError("the probe's thread has not begun")
    return thread.ident


def _time(action: Callable[[], None]) -> float:
    start_s = time.perf_counter()
    action()
    return time.perf_counter() - start_s


def _do_nothing() -> None:
    """What is left of a count of this is the cost of counting, with caches as a step leaves them."""


def _clock_overhead_ns() -> int:
    readings = [time.thread_time_ns() for _ in range(2000)]
    return int(statistics.median(after - before for before, after in pairwise(readings)))


def _cost_of(action: Callable[[], object], runs: int = 2000) -> float:
    start_ns = time.thread_time_ns()
    for _ in range(runs):
        action()
    return (time.thread_time_ns() - start_ns) / runs / 1e3


def _end_with_parent() -> None:
    """Ask Linux to end this process with the benchmark (`PR_SET_PDEATHSIG`)."""
    ctypes.CDLL(None).prctl(1, 15)


if __name__ == "__main__":
    _end_with_parent()
    if sys.argv[1] == "count":
        print(json.dumps(count(sys.argv[2], float(sys.argv[3]))))
    else:
        print(json.dumps(pair(sys.argv[2], int(sys.argv[3]))))
