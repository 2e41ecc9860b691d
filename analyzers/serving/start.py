"""The memory plan in a server's start-up log: what adds up, what is missing, and what would help."""

from typing import Literal

import msgspec

from ...engine.model.serving import RankStart, ServerFailure, StartLog

Flag = Literal["--max-model-len", "--gpu-memory-utilization", "--tensor-parallel-size", "--max-num-seqs"]
# Most that a server can ask of a device: contexts and graphs take the rest.
_MOST_SHARE = 0.98


class StartAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """A flag that would change the plan, and its number; null where the log does not have it."""

    flag: Flag
    value: float | None = None


def sum_share(rank: RankStart) -> int | None:
    """Return weights, activations, libraries and cache of a rank together; None where one is not known."""
    parts = (rank.weights_bytes, rank.activations_bytes, rank.libraries_bytes, rank.cache_bytes)
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def advise_start(log: StartLog, failure: ServerFailure) -> list[StartAdvice]:
    """Return what would help against a failure, computed from the log alone."""
    rank = find_fullest(log)
    if failure.kind == "out of memory":
        return [StartAdvice(flag="--gpu-memory-utilization"), StartAdvice(flag="--max-num-seqs")]
    advice = []
    if failure.longest is not None:
        advice.append(StartAdvice(flag="--max-model-len", value=failure.longest))
    missing = _count_missing(rank, failure)
    share = None
    if missing is not None and rank is not None and rank.share_bytes and rank.device_bytes:
        share = (rank.share_bytes + missing) / rank.device_bytes
    if share is not None and share <= _MOST_SHARE and failure.kind != "device too full":
        # Rounded up to what the flag is usually given with.
        advice.append(StartAdvice(flag="--gpu-memory-utilization", value=-(-share * 100 // 1) / 100))
    elif failure.kind == "device too full" and failure.found_bytes and rank is not None and rank.device_bytes:
        value = int(100 * failure.found_bytes / rank.device_bytes) / 100
        advice.append(StartAdvice(flag="--gpu-memory-utilization", value=value))
    elif failure.kind == "no cache":
        advice.append(StartAdvice(flag="--tensor-parallel-size"))
    return advice


def find_fullest(log: StartLog) -> RankStart | None:
    """Return the rank with the least cache, which decides for all."""
    return min(
        log.ranks,
        key=lambda rank: rank.cache_bytes if rank.cache_bytes is not None else 1 << 62,
        default=None,
    )


def _count_missing(rank: RankStart | None, failure: ServerFailure) -> int | None:
    """Return the bytes of cache that are missing."""
    if failure.needed_bytes is not None and failure.found_bytes is not None:
        return failure.needed_bytes - failure.found_bytes
    if failure.kind == "no cache" and rank is not None and rank.cache_bytes is not None:
        return max(0, -rank.cache_bytes)
    return None
