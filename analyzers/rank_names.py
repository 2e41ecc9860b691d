"""How sentences name a training process."""

from ..engine.model import RankSample


def name_rank(rank: RankSample) -> str:
    """Return what a sentence calls a process: `rank 3`, or `process 4711` where it has told no rank."""
    return f"process {rank.pid}" if rank.coordinates is None else f"rank {rank.coordinates.rank}"
