"""Private pools: memory that CUDA graphs and MemPools keep apart from the rest."""

from __future__ import annotations

from .blocks import Pool, PrivatePool
from .errors import PoolError
from .rules import SMALL_LIMIT_BYTES
from .tally import Tally

PoolId = tuple[int, int]


class PrivatePools:
    """The private pools, and which of them allocations go to at present."""

    def __init__(self, small: Tally, large: Tally) -> None:
        self._small = small
        self._large = large
        self.live: dict[PoolId, PrivatePool] = {}
        self.freeable: dict[PoolId, PrivatePool] = {}
        """Released by everybody; whatever they cache may go back to the device."""
        self.captures: list[tuple[PoolId, int | None]] = []
        """Pools being allocated to, each with its stream; None for every stream."""

    def begin(self, pool_id: PoolId, stream: int | None) -> None:
        """Let allocations of a stream, or of all, go to a pool; a new one where there is none."""
        if any(captured == pool_id for captured, _ in self.captures):
            raise PoolError(f"private pool {pool_id} is already being allocated to; end it first")
        pool = self.live.get(pool_id)
        if pool is None:
            self.live[pool_id] = PrivatePool(pool_id, self._small, self._large)
        elif pool.use_count == 0:
            raise PoolError(f"private pool {pool_id} was released; take another id")
        else:
            pool.use_count += 1
        self.captures.append((pool_id, stream))

    def end(self, pool_id: PoolId) -> None:
        """Let allocations go where they went before."""
        for capture in self.captures:
            if capture[0] == pool_id:
                self.captures.remove(capture)
                return
        raise PoolError(f"private pool {pool_id} is not being allocated to; begin it first")

    def release(self, pool_id: PoolId) -> None:
        """Take back one use; after the last the pool's cached memory may go back to the device."""
        pool = self.live.get(pool_id)
        if pool is None or pool.use_count == 0:
            raise PoolError(f"private pool {pool_id} has no use left to release")
        pool.use_count -= 1
        if pool.use_count == 0:
            self.freeable[pool_id] = pool

    def choose(self, size: int, stream: int) -> Pool | None:
        """Return the private pool that a request goes to, the latest begun; None for the default ones."""
        for pool_id, captured in reversed(self.captures):
            if captured is None or captured == stream:
                pool = self.live[pool_id]
                return pool.small if size <= SMALL_LIMIT_BYTES else pool.large
        return None

    def forget_empty(self) -> None:
        """Drop released pools that hold no memory any more."""
        for pool_id, pool in list(self.freeable.items()):
            if pool.segment_count == 0:
                del self.freeable[pool_id], self.live[pool_id]
