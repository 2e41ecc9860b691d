"""The simulated servers of benchmarks, computed in C up to the first preemption: some fifty times as fast.

`serving_rollouts.c` is an exact copy of the engine of `engine/workloads/serving/pool.py`, and a test compares
both. Without a C compiler the simulator itself is used.
"""

import ctypes
import struct
from functools import cache

import numpy as np
import numpy.typing as npt

from vramscope.engine.errors import UsageError
from vramscope.engine.workloads.serving.pool import Engine, EngineSetup, Request, Sequence, Traffic
from vramscope.engine.workloads.serving.server import ServerSetup, SimulatedServer

from .compiled import load_compiled

MOST_PREFIXES = 64
Numbers = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int32]

# `Sequence` of the C file: prompt, output, prefix, tokens of it, own and shared blocks, computed, generated,
# and the median of the law that the output was drawn from.
_SEQUENCE = struct.Struct("=qqiiiiddd")
# What stands for a sequence that is in C.
_SOME = Sequence(Request(0.0, 1, 1))


def _list_fields(kind: type, names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names.split()]


class State(ctypes.Structure):
    """`State` of `serving_rollouts.c`."""

    _fields_ = [
        *_list_fields(ctypes.c_int32, "blocks block_tokens most_sequences used left idle"),
        *_list_fields(ctypes.c_int32 * MOST_PREFIXES, "idle_key idle_blocks busy_blocks busy_count"),
        *_list_fields(ctypes.c_double, "prefill_per_s step_s sequence_s token_s"),
        *_list_fields(ctypes.c_double, "prompt_median prompt_spread output_median output_spread"),
        *_list_fields(ctypes.c_int32, "prefixes prefix_tokens"),
        ("prefix_share", ctypes.c_double),
        ("longest", ctypes.c_int64),
        ("think_s", ctypes.c_double),
    ]


class Reading(ctypes.Structure):
    """`Reading` of `serving_rollouts.c`."""

    _fields_ = [
        *_list_fields(ctypes.c_int32, "running waiting used"),
        *_list_fields(ctypes.c_int64, "finished queries hits"),
        *_list_fields(ctypes.c_double, "computed generated"),
    ]


@cache
def load_library() -> ctypes.CDLL:
    """Compile and load `serving_rollouts.c`; raises as `load_compiled` does."""
    library = load_compiled("serving_rollouts.c")
    library.make_engine.restype = ctypes.c_void_p
    library.make_engine.argtypes = [ctypes.c_void_p]
    library.free_engine.restype = None
    library.free_engine.argtypes = [ctypes.c_void_p]
    library.advance_engine.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
    library.roll_ahead.argtypes = [
        *(ctypes.c_void_p,) * 3,
        *(ctypes.c_int,) * 4,
        ctypes.c_uint64,
        ctypes.c_void_p,
    ]
    return library


class CompiledEngine(Engine):
    """An engine that is computed in C, in steps of a second; it stands still after its first preemption.

    `running` and `waiting` have as many sequences as there are, which say nothing else.
    """

    def __init__(self, setup: EngineSetup, traffic: Traffic) -> None:
        super().__init__(setup)
        if setup.most_queued is not None or not setup.has_prefix_cache:
            raise UsageError("a compiled engine has a prefix cache and a queue without a limit")
        speed = setup.speed
        state = State(
            blocks=setup.blocks,
            block_tokens=setup.block_tokens,
            most_sequences=setup.most_sequences,
            prefill_per_s=speed.prefill_tokens_per_s,
            step_s=speed.step_base_s,
            sequence_s=speed.step_sequence_s,
            token_s=speed.step_token_s,
            prompt_median=traffic.prompt_tokens,
            prompt_spread=traffic.prompt_spread,
            output_median=traffic.output_tokens,
            output_spread=traffic.output_spread,
            prefixes=traffic.prefixes,
            prefix_tokens=traffic.prefix_tokens,
            prefix_share=traffic.prefix_share,
            longest=traffic.longest,
            think_s=traffic.think_s or 0.0,
        )
        self._traffic = traffic
        self._library = load_library()
        self._engine = self._library.make_engine(ctypes.byref(state))
        self._asked: list[bytes] = []
        self._reading = Reading()

    def __del__(self) -> None:
        if hasattr(self, "_engine"):
            self._library.free_engine(self._engine)

    def ask(self, request: Request) -> None:
        length = self._traffic.length
        factor = 1.0 if length is None else length.at(request.arrived_s)
        self._asked.append(
            _SEQUENCE.pack(
                request.prompt_tokens,
                request.output_tokens,
                -1 if request.prefix is None else request.prefix,
                request.prefix_tokens,
                0,
                0,
                0.0,
                0.0,
                factor * self._traffic.output_tokens,
            )
        )

    def advance(self, now_s: float) -> None:
        if now_s != self.now_s + 1.0:
            raise UsageError(
                f"a compiled engine goes from {self.now_s} s to {self.now_s + 1} s, not to {now_s}"
            )
        self.now_s = now_s
        counters = self.counters
        if counters.preemptions:
            return
        reading = self._reading
        asked = b"".join(self._asked)
        is_full = self._library.advance_engine(self._engine, asked, len(self._asked), ctypes.byref(reading))
        self._asked.clear()
        self.running = [_SOME] * reading.running
        self.waiting.clear()
        self.waiting.extend([_SOME] * reading.waiting)
        self.used_blocks = reading.used
        counters.finished = reading.finished
        counters.prefix_queries, counters.prefix_hits = reading.queries, reading.hits
        counters.prompt_tokens, counters.generation_tokens = int(reading.computed), int(reading.generated)
        if is_full:
            counters.preemptions = 1
            counters.first_preemption_s = now_s

    def roll_ahead(
        self,
        rates: Numbers,
        factors: Numbers,
        *,
        redraws: bool,
        futures: int,
        screen: int,
        seed: int,
    ) -> tuple[Counts, float]:
        """Return the second of the first preemption in each future, and the most of the pool that is used.

        Where none comes it is one more than there are seconds.

        Args:
            rates: Requests of each second to come, or clients if they think between requests.
            factors: Factor on lengths in each second to come.
            redraws: Whether the outputs of present requests are unknown but for their law.
            screen: Where so many futures have no preemption, the others count as having none.
        """
        found = np.zeros(futures, np.int32)
        most_blocks = self._library.roll_ahead(
            self._engine,
            rates.ctypes.data,
            factors.ctypes.data,
            redraws,
            len(rates),
            futures,
            screen,
            seed,
            found.ctypes.data,
        )
        return found, most_blocks / self.setup.blocks


class CompiledServer(SimulatedServer):
    """A simulated server of one engine, computed in C up to its first preemption."""

    engines: list[Engine]

    def __init__(self, setup: ServerSetup, seed: int = 0) -> None:
        super().__init__(setup, seed)
        self.engines = [CompiledEngine(engine.setup, setup.traffic) for engine in self.engines]


def make_server(setup: ServerSetup, seed: int) -> SimulatedServer:
    """Return a server that is watched up to its first preemption, compiled where there is a compiler."""
    try:
        return CompiledServer(setup, seed)
    except UsageError:
        return SimulatedServer(setup, seed)
