"""A simulated server: engines over one kind of traffic, and the device memory that its plan takes."""

from dataclasses import dataclass, field

from ...units import GIB, MIB
from .pool import Engine, EngineSetup, Rate, Speed, Traffic

# Longest step of the simulation.
STEP_S = 1.0


@dataclass(frozen=True)
class MemoryPlan:
    """What each rank takes of its device, in bytes."""

    total_bytes: int = 80 * GIB
    share: float = 0.9
    """`--gpu-memory-utilization`."""
    weights_bytes: int = 15 * GIB
    activations_bytes: int = 2 * GIB
    libraries_bytes: int = 256 * MIB
    graphs_bytes: int = 640 * MIB
    context_bytes: int = 512 * MIB
    token_bytes: int = 128 << 10
    """Cache of one token on a rank."""

    @property
    def share_bytes(self) -> int:
        return int(self.share * self.total_bytes)

    @property
    def pool_bytes(self) -> int:
        taken = self.weights_bytes + self.activations_bytes + self.libraries_bytes
        return max(0, self.share_bytes - taken)


@dataclass(frozen=True)
class ServerSetup:
    """One simulated server."""

    model: str = "simulated-8b"
    plan: MemoryPlan = MemoryPlan()
    traffic: Traffic = field(default_factory=lambda: Traffic(Rate(((0.0, 3.0),))))
    most_sequences: int = 256
    most_queued: int | None = None
    longest: int = 8192
    block_tokens: int = 16
    engines: int = 1
    """Data-parallel replicas, which share the traffic."""
    tensor: int = 1
    growth_bytes_per_s: float = 0.0
    """What the process takes beyond its plan, as a leak outside of the pool would."""
    blocks: int | None = None
    """Blocks of an engine's pool; by default what the plan has room for."""
    speed: Speed = field(default_factory=Speed)

    @property
    def pool_blocks(self) -> int:
        return self.blocks or max(1, self.plan.pool_bytes // (self.plan.token_bytes * self.block_tokens))


class SimulatedServer:
    """A server that answers the traffic of a seed; the same seed gives the same run."""

    def __init__(self, setup: ServerSetup, seed: int = 0) -> None:
        self.setup = setup
        engine = EngineSetup(
            blocks=setup.pool_blocks,
            block_tokens=setup.block_tokens,
            most_sequences=setup.most_sequences,
            most_queued=setup.most_queued,
            speed=setup.speed,
        )
        self.engines = [Engine(engine) for _ in range(setup.engines)]
        self.now_s = 0.0
        self._source = setup.traffic.generate(seed, STEP_S)
        self._next = 0

    @property
    def is_asleep(self) -> bool:
        return all(engine.is_asleep for engine in self.engines)

    @property
    def used_bytes(self) -> int:
        """Bytes that a rank uses of its device."""
        plan = self.setup.plan
        if self.is_asleep:
            return plan.context_bytes + plan.libraries_bytes + plan.graphs_bytes
        parts = (
            plan.weights_bytes,
            plan.pool_bytes,
            plan.activations_bytes,
            plan.libraries_bytes,
            plan.graphs_bytes,
            plan.context_bytes,
            int(self.setup.growth_bytes_per_s * self.now_s),
        )
        return min(plan.total_bytes, sum(parts))

    def advance(self, now_s: float) -> None:
        """Go on to a moment in seconds from the start."""
        while self.now_s < now_s:
            self.now_s = min(now_s, self.now_s + STEP_S)
            asking = sum(len(engine.running) + len(engine.waiting) for engine in self.engines)
            for request in self._source.take_until(self.now_s, asking):
                self.engines[self._next].ask(request)
                self._next = (self._next + 1) % len(self.engines)
            for engine in self.engines:
                engine.advance(self.now_s)

    def sleep(self) -> None:
        for engine in self.engines:
            engine.sleep()

    def wake(self) -> None:
        for engine in self.engines:
            engine.wake()

    def write_log(self) -> str:
        """Return the lines of a start-up log of vLLM that say what each rank's memory is."""
        setup = self.setup
        plan = setup.plan
        tokens = setup.pool_blocks * setup.block_tokens
        total = f"{plan.total_bytes / GIB:.2f}"
        lines = [
            f"INFO 01-01 00:00:00 [core.py:58] Initializing a V1 LLM engine (v0.11.0) with config: "
            f"model='{setup.model}', max_seq_len={setup.longest}, tensor_parallel_size={setup.tensor}, "
            "pipeline_parallel_size=1"
        ]
        for rank in range(setup.tensor):
            name = f"(Worker_TP{rank} pid={100 + rank}) " if setup.tensor > 1 else ""
            head = f"{name}INFO 01-01 00:00:00 [gpu_worker.py:298] "
            lines += [
                f"{head}Model loading took {plan.weights_bytes / GIB:.4f} GiB and 10.0 seconds",
                f"{head}Free memory on device ({total}/{total} GiB) on startup. Desired GPU memory "
                f"utilization is ({plan.share}, {plan.share_bytes / GIB:.2f} GiB). Actual usage is "
                f"{plan.weights_bytes / GIB:.2f} GiB for weight, "
                f"{plan.activations_bytes / GIB:.2f} GiB for peak activation",
                f"{head}Available KV cache memory: {plan.pool_bytes / GIB:.2f} GiB",
                f"{head}Graph capturing finished in 20 secs, took {plan.graphs_bytes / GIB:.2f} GiB",
            ]
        lines += [
            f"INFO 01-01 00:00:00 [kv_cache_utils.py:1087] GPU KV cache size: {tokens:,} tokens",
            f"INFO 01-01 00:00:00 [kv_cache_utils.py:1091] Maximum concurrency for {setup.longest:,} tokens "
            f"per request: {tokens / setup.longest:.2f}x",
        ]
        return "\n".join(lines) + "\n"
