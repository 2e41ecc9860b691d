"""What a server said of its memory when it started."""

from typing import Literal

import msgspec

ServerName = Literal["vLLM", "SGLang", "llama.cpp"]
FailureKind = Literal["no cache", "sequence too long", "device too full", "out of memory"]


class RankStart(msgspec.Struct, frozen=True, kw_only=True):
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
