"""What a server said of its memory when it started."""

from typing import Literal

import msgspec

ServerName = Literal["vLLM", "SGLang", "llama.cpp"]
FailureKind = Literal["no cache", "sequence too long", "device too full", "out of memory"]


class RankStart(msgspec.Struct, frozen=True):
    """Memory of one rank, or of one device of llama.cpp; null where the log does not say."""

    name: str
    weights_bytes: int | None = None
    activations_bytes: int | None = None
    """Greatest forward pass."""
    libraries_bytes: int | None = None
    """Libraries and communication."""
    cache_bytes: int | None = None
    states_bytes: int | None = None
    """States of recurrent layers."""
    graphs_bytes: int | None = None
    """CUDA graphs, which some versions take from outside of the share."""
    device_bytes: int | None = None
    share_bytes: int | None = None
    """What the server may take of the device."""


class ServerFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a server did not start, or ended."""

    kind: FailureKind
    line: int
    needed_bytes: int | None = None
    """Cache that one longest sequence needs; of an out-of-memory error the request."""
    found_bytes: int | None = None
    """Cache that there is; of an out-of-memory error what was free."""
    longest: int | None = None
    """Longest sequence that would fit, as the server estimates it."""


class StartLog(msgspec.Struct, frozen=True, kw_only=True):
    """The memory plan in a start-up log."""

    file: str
    server: ServerName
    version: str | None = None
    model: str | None = None
    tensor: int | None = None
    pipeline: int | None = None
    ranks: tuple[RankStart, ...]
    tokens: int | None = None
    """Tokens in the cache."""
    sequence: int | None = None
    """Longest sequence."""
    concurrency: float | None = None
    """Longest sequences at once, as the server says."""
    failures: tuple[ServerFailure, ...] = ()


# What a running server reports, added to each sample of its node.

ServerKind = Literal["vLLM", "SGLang", "TensorRT-LLM", "llama.cpp", "TGI", "Ollama"]
ServerState = Literal["starting", "ok", "asleep", "silent"]
"""`starting`: its process holds memory of a device and does not answer yet; `asleep`: it has given its memory
back for a while (vLLM's sleep mode); `silent`: it answered before and does not any more.
"""


class EngineReading(msgspec.Struct, frozen=True, gc=False):
    """One engine of a server: a data-parallel replica with a cache of its own. Tensor-parallel ranks of it
    report the same numbers, which are counted once.
    """

    name: str = "0"
    running: int | None = None
    """Sequences that are computed."""
    waiting: int | None = None
    """Requests in the queue."""
    pool_tokens: int | None = None
    """Tokens for which the KV pool has room."""
    used_share: float | None = None
    """Share of the pool that sequences use, 0 to 1, without what is only cached."""
    cached_tokens: int | None = None
    """Tokens of the pool that are kept for later requests with the same beginning and evicted when needed;
    None where the server does not distinguish them from free ones.
    """
    preemptions: int | None = None
    """Sequences since the start whose cache was taken away, to be computed again (SGLang: retracted)."""
    rejections: int | None = None
    """Requests since the start that were refused because the queue was full."""
    prompt_tokens: int | None = None
    generation_tokens: int | None = None
    prefix_queries: int | None = None
    """Prompt tokens since the start that were looked up in the prefix cache."""
    prefix_hits: int | None = None
    """Prompt tokens since the start that were found there."""
    hit_rate: float | None = None
    """Share found there, as the server itself says (SGLang); None where it counts queries and hits."""
    is_asleep: bool | None = None
    finished: int | None = None
    """Requests since the start that ended, however they did."""


class ServerDevice(msgspec.Struct, frozen=True, gc=False):
    """One device that processes of a server use."""

    uuid: str
    pids: tuple[int, ...] = ()
    rank: str | None = None
    """Name of the rank on it, where the process carries it as its title: `TP0`, `DP1_TP0`."""
    used_bytes: int | None = None
    """What these processes use of it; None where the driver does not report that."""


class ServerSample(msgspec.Struct, frozen=True, gc=False):
    """One server of models on a node at one published tick."""

    kind: ServerKind | None
    """None before a server that was named has answered."""
    name: str
    """Unique on the node: its address, or its process while the address is unknown."""
    url: str | None = None
    state: ServerState = "ok"
    reason: str | None = None
    """Why the state is not `ok`, or what else is not known, in one sentence."""
    age_s: float | None = None
    """Seconds since it answered last; None before the first answer."""
    pid: int | None = None
    """The process that was started; None where only the address is known."""
    started_s: float | None = None
    model: str | None = None
    is_simulated: bool = False
    engines: tuple[EngineReading, ...] = ()
    devices: tuple[ServerDevice, ...] = ()
    plan: tuple[RankStart, ...] = ()
    """The memory of each rank, as planned at the start; empty where it is unknown."""
    plan_source: Literal["log", "metrics"] | None = None
    resident_bytes: int | None = None
    """Device memory that the server itself says it uses (Ollama)."""
    utilization: float | None = None
    """Share of the device that it may use (`--gpu-memory-utilization`, `--mem-fraction-static`)."""
    longest: int | None = None
    """Longest sequence in tokens (`--max-model-len`)."""
    most_sequences: int | None = None
    """Most sequences at once (`--max-num-seqs`)."""
    unmeasured: str | None = None
    """Why it is not known what it holds of a device, in a few words; None where that is known."""
