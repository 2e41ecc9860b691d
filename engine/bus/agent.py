"""The agent process: takes the runtime folder, then serves it with a hub until told to end."""

import os
import sys
from pathlib import Path

import msgspec

from ..clock import SystemClock
from ..paths import open_runtime_folder
from ..sampling.producer import SampleProducer
from .hub import Hub, stop_on_signals
from .lock import HubLock
from .supervisor import WorkerSupervisor


class AgentOptions(msgspec.Struct, frozen=True):
    """What an agent is started with."""

    version: str
    runtime_dir: Path | None = None
    """Folder to serve; this user's own by default."""
    interval_s: float = 1.0
    memory_interval_s: float = 0.1
    replay: Path | None = None
    """A trace to play instead of sampling this node."""
    speed: float = 1.0
    replay_interval_s: float = 0.1
    """Seconds of the trace from one sample to the next."""
    capacity_bytes: int | None = None
    """Capacity of the recorded devices, where the trace does not say it."""
    leaves_with_viewers: bool = False
    has_worker: bool = True


def run_agent(options: AgentOptions) -> int:
    """Serve until told to end; return the exit code.

    Raises:
        HubTakenError: Another agent serves the folder.
        RuntimeFolderError: The folder is not private, or its path is too long.
        InputFileError: The trace cannot be played.
    """
    folder = open_runtime_folder(options.runtime_dir)
    lock = HubLock(folder)
    lock.acquire()
    try:
        producer = _open_producer(options)
        supervisor = WorkerSupervisor(folder, SystemClock()) if options.has_worker else None
        hub = Hub(
            folder,
            producer,
            version=options.version,
            supervisor=supervisor,
            leaves_with_viewers=options.leaves_with_viewers,
        )
        stop_on_signals(hub)
        if not options.leaves_with_viewers:
            sys.stderr.write(f"vramscope agent: serving {folder} (process {os.getpid()}); Ctrl-C ends it\n")
            sys.stderr.flush()
        hub.run()
    finally:
        lock.release()
    if getattr(producer, "has_held_calls", False):
        sys.stderr.flush()
        os._exit(0)  # a thread hangs in the driver: the interpreter's own way out would wait for it
    return 0


def _open_producer(options: AgentOptions) -> SampleProducer:
    if options.replay is not None:
        from ..sampling.trace_player import TracePlayer

        return TracePlayer(
            options.replay,
            speed=options.speed,
            interval_s=options.replay_interval_s,
            capacity_bytes=options.capacity_bytes,
        )
    from ..sampling.node import open_node

    return open_node(interval_s=options.interval_s, memory_interval_s=options.memory_interval_s)
