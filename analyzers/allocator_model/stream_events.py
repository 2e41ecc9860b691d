"""Blocks that were freed while another stream may still use them.

`record_stream` marks such a use. When the block is freed, an event is put into each stream that used it, and
the block waits until all of them are done. Here nobody runs kernels, so a stream is done when `synchronize`
says so.
"""

from __future__ import annotations

from collections import deque
from typing import Callable

from .blocks import Block, PrivatePool


class StreamEvents:
    """The events that freed blocks wait for, in order for each stream."""

    def __init__(self, complete: Callable[[Block], None]) -> None:
        self._complete = complete
        self._queues: dict[int, deque[Block]] = {}
        self._done: dict[int, int] = {}
        self._deferred: list[Block] = []
        self._captured_uses: dict[Block, set[int]] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no block waits."""
        return not self._queues and not self._deferred

    def waiting(self) -> set[Block]:
        """Return the blocks that wait."""
        return {block for queue in self._queues.values() for block in queue} | set(self._deferred)

    def record_use(self, block: Block, stream: int, *, is_capturing: bool) -> None:
        """Note that a stream uses a block; its own stream needs no note."""
        if stream == block.arena.stream:
            return
        block.stream_uses = (block.stream_uses or set()) | {stream}
        if is_capturing:
            self._captured_uses.setdefault(block, set()).add(stream)

    def defer(self, block: Block, *, is_capturing: bool) -> None:
        """Let a freed block wait for the streams that used it; during a capture, for its end first."""
        if is_capturing:
            self._deferred.append(block)
        else:
            self._insert(block)

    def _insert(self, block: Block) -> None:
        uses = block.stream_uses or set()
        block.stream_uses = None
        for stream in sorted(uses):
            block.event_count += 1
            self._queues.setdefault(stream, deque()).append(block)

    def finish(self, stream: int | None) -> None:
        """Take it that a stream, or every stream, did all the work it was given so far."""
        for queued in list(self._queues) if stream is None else [stream]:
            if queued in self._queues:
                self._done[queued] = len(self._queues[queued])

    def process(self) -> None:
        """Complete the blocks whose events are done."""
        self._insert_deferred()
        for stream, count in self._done.items():
            queue = self._queues[stream]
            for _ in range(count):
                self._complete_event(queue.popleft())
            if not queue:
                del self._queues[stream]
        self._done.clear()

    def synchronize(self, private: PrivatePool | None = None) -> None:
        """Wait for all events, or those of the blocks of one private pool, and complete the blocks."""
        self._insert_deferred()
        for stream in list(self._queues):
            waiting = self._queues[stream]
            stays = deque(block for block in waiting if private not in {None, block.arena.pool.private})
            for block in waiting:
                if private is None or block.arena.pool.private is private:
                    self._complete_event(block)
            self._done.pop(stream, None)
            if stays:
                self._queues[stream] = stays
            else:
                del self._queues[stream]

    def _insert_deferred(self) -> None:
        """Put in the events that waited for the end of a capture; uses within the capture need none."""
        deferred = self._deferred
        self._deferred = []
        for block in deferred:
            captured = self._captured_uses.pop(block, None)
            if captured and block.stream_uses:
                block.stream_uses -= captured
            self._insert(block)
            if block.event_count == 0:
                self._complete(block)

    def _complete_event(self, block: Block) -> None:
        block.event_count -= 1
        if block.event_count == 0:
            self._complete(block)
