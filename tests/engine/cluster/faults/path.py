"""A way between a viewer and an agent that can be slow, stand still, be cut, or forget whom it connected."""

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

from vramscope.engine.cluster.addresses import LOOPBACK, TcpAddress

CHUNK_BYTES = 4096
MOST_CHUNKS = 64
"""Chunks that are under way in one direction of a connection; then who sends is held up."""
_RESET = struct.pack("ii", 1, 0)
"""For SO_LINGER: closing sends a reset at once, as a cut connection does that is noticed."""


class _Passage(NamedTuple):
    """One connection: the sockets at either end, and what hands bytes on."""

    ends: tuple[asyncio.StreamWriter, asyncio.StreamWriter]
    pumps: "asyncio.Future[tuple[None, None]]"


class FaultyPath:
    """Listens on a port and hands bytes on to an agent, on a thread of its own; faults are set from any.

    Args:
        target: Where the agent listens.
        host: Address of this machine to listen at.
    """

    def __init__(self, target: TcpAddress, host: str = LOOPBACK) -> None:
        self.delay_s = 0.0
        """For which bytes are under way, in each direction."""
        self.bytes_per_s: float | None = None
        """What passes in each direction of a connection; None for all that comes."""
        self.handed_on_bytes = 0
        self.connections = 0
        """Connections that there have been."""
        self._target = target
        self._passages: list[_Passage] = []
        self._forgotten: list[_Passage] = []
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._flows = asyncio.Event()
        self._flows.set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        with socket.create_server((host, 0)) as found:
            self.address = TcpAddress(host, found.getsockname()[1])
        self._do(self._listen())

    def stall(self) -> None:
        """Keep all bytes; nothing is closed, and new connections get no answer."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def resume(self) -> None:
        """Hand on what was kept, and what comes."""
        self._loop.call_soon_threadsafe(self._flows.set)

    def forget(self) -> None:
        """Leave the connections that there are half open: neither end hears anything more. New ones work."""
        self._do(self._forget())

    def cut(self) -> None:
        """Reset all connections, and refuse new ones."""
        self._do(self._cut())

    def heal(self) -> None:
        """Let new connections in again after a cut."""
        self._do(self._listen())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10.0)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._connect, self.address.host, self.address.port)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._flows.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection(self._target.host, self._target.port)
        except OSError:
            _reset(writer)
            return
        pumps = asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        passage = _Passage((writer, far_writer), pumps)
        self._passages.append(passage)
        self.connections += 1
        with suppress(OSError, asyncio.CancelledError):
            await pumps
        if passage in self._passages:  # one end has closed it
            self._passages.remove(passage)
            _reset_both(passage)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hand on what one end sends until it closes."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(MOST_CHUNKS)
        sending = asyncio.ensure_future(self._send(under_way, writer))
        try:
            while data := await reader.read(CHUNK_BYTES):
                await under_way.put((time.monotonic() + self.delay_s, data))
            await under_way.put((0.0, b""))
            await sending
            raise ConnectionResetError
        finally:
            sending.cancel()

    async def _send(
        self, under_way: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter
    ) -> None:
        while True:
            due_s, data = await under_way.get()
            if not data:
                return
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            if self.bytes_per_s is not None:
                await asyncio.sleep(len(data) / self.bytes_per_s)
            await self._flows.wait()
            writer.write(data)
            self.handed_on_bytes += len(data)
            await writer.drain()

    async def _forget(self) -> None:
        self._forgotten += self._passages
        passages, self._passages = self._passages, []
        for passage in passages:
            passage.pumps.cancel()

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for passage in (*self._passages, *self._forgotten):
            passage.pumps.cancel()
            _reset_both(passage)
        self._passages, self._forgotten = [], []

    async def _end(self) -> None:
        await self._cut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


def _reset_both(passage: _Passage) -> None:
    for writer in passage.ends:
        _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
