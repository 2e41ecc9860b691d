"""The agent process: locks the runtime folder, then serves it with a hub until it is stopped."""

import gc
import os
import select
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..alerts.desk import AlertDesk, decisions_file
from ..child_processes import (
    EXPORTER_LOG_NAME,
    LEDGERS_NAME,
    LOG_NAMES,
    command_of,
    last_line,
    own_environment,
)
from ..clock import SystemClock
from ..errors import HubTakenError, UsageError
from ..paths import open_runtime_folder, state_folder
from ..ranks.messages import PROBE_SOCKET_NAME
from ..ranks.roster import Roster
from ..sampling.live import SampleProducer, node_name, open_node
from ..settings import AlertSettings
from ..text import make_printable
from ..wire.endpoints import LOCK_NAME, SOCKET_NAMES, HubLock
from .hub import Hub, stop_on_signals
from .supervisor import VIEWER_WITHIN_S, WorkerSupervisor

if TYPE_CHECKING:
    from ..cluster.gate import Listening


# How long an agent that ends goes on delivering alerts.
FINISH_ALERTS_WITHIN_S = 2.0


class AgentOptions(msgspec.Struct, frozen=True):
    version: str
    # This user's own by default.
    runtime_dir: Path | None = None
    interval_s: float = 1.0
    memory_interval_s: float = 0.1
    # Servers of models to read besides those that are found, as in the settings.
    serving: tuple[str, ...] = ()
    # A trace to play instead of sampling this node.
    replay: Path | None = None
    speed: float = 1.0
    # Seconds of the trace from one sample to the next.
    replay_interval_s: float = 0.1
    # Capacity of the recorded devices, if it is not in the trace.
    capacity_bytes: int | None = None
    # A viewer or a job started it, for itself and those that join: it ends with the last of them.
    leaves_with_viewers: bool = False
    # How long it waits for the first viewer or training process, if it leaves with them.
    first_within_s: float = VIEWER_WITHIN_S
    # How long it waits for the next, once the last has left.
    linger_s: float = 0.0
    # The folder was made for one viewer alone and is removed at the end.
    is_folder_private: bool = False
    has_worker: bool = True
    # Who is alerted of findings besides the viewers; None for nobody.
    alerts: AlertSettings | None = None
    # Flags of the process that serves or pushes metrics; None for none.
    exporter_arguments: tuple[str, ...] | None = None
    # Where it listens beyond its folder; None for nowhere.
    listening: "Listening | None" = None


def run_agent(options: AgentOptions) -> int:
    """Serve until stopped; return the exit code.

    Raises:
        RuntimeFolderError: The folder is not private, or its path is too long.
        UsageError: Prometheus cannot be served at its address, or the port of `listening` is taken.
    """
    folder = open_runtime_folder(options.runtime_dir)
    lock = HubLock(folder)
    try:
        lock.acquire()
    except HubTakenError:
        if options.leaves_with_viewers:
            return 0  # two viewers started an agent at once; they share the one that was first
        raise
    try:
        if options.leaves_with_viewers:
            _empty_log()
        _sweep_payloads(folder)
        roster = Roster(folder, node=node_name()) if options.replay is None else None
        producer = _open_producer(options, roster)
        desk = _open_desk(folder, producer.node, options)
        with _exporting(folder, options.exporter_arguments):
            _serve(folder, lock, producer, roster, desk, options)
    finally:
        # After an error the log stays for the viewer, which shows its last line.
        if lock.is_current():  # else the sockets there may be those of another agent
            _tidy(folder, is_private=options.is_folder_private and sys.exc_info()[0] is None)
        lock.release()
    left = desk.finish(FINISH_ALERTS_WITHIN_S)  # another agent may serve the folder meanwhile
    if left is not None:
        _print(left)
    if getattr(producer, "has_held_calls", False):
        sys.stderr.flush()
        os._exit(0)  # a thread hangs in the driver: the interpreter's own way out would wait for it
    return 0


def _open_desk(folder: Path, node: str, options: AgentOptions) -> AlertDesk:
    """Alerts of a recording, which only its viewers see."""
    if options.replay is not None:
        return AlertDesk()
    path = None if options.is_folder_private else decisions_file(state_folder(), node, folder)
    return AlertDesk(options.alerts, version=options.version, path=path)


def _serve(
    folder: Path,
    lock: HubLock,
    producer: SampleProducer,
    roster: Roster | None,
    desk: AlertDesk,
    options: AgentOptions,
) -> None:
    hub = Hub(
        folder,
        producer,
        version=options.version,
        supervisor=WorkerSupervisor(folder, SystemClock()) if options.has_worker else None,
        roster=roster,
        leaves_with_viewers=options.leaves_with_viewers,
        first_within_s=options.first_within_s,
        linger_s=options.linger_s,
        alerts=desk,
        listening=options.listening,
        lock=lock,
    )
    stop_on_signals(hub)
    if not options.leaves_with_viewers:
        _print(f"serving {folder} (process {os.getpid()}); Ctrl-C ends it")
    if options.listening is not None:
        from .supervisor import allow_many_descriptors

        allow_many_descriptors()
        _print(options.listening.words)
    gc.freeze()  # what was loaded stays; the collector need not walk it ten times a minute
    hub.run()


@contextmanager
def _exporting(folder: Path, arguments: tuple[str, ...] | None) -> Iterator[None]:
    """Serve or push metrics within the block, if that was asked for."""
    if arguments is None:
        yield
        return
    exporter = ExporterProcess(folder, arguments, warn=_print)
    try:
        places = exporter.start()
        _print(_describe_places(places))
        yield
    finally:
        exporter.stop()


def _print(sentence: str) -> None:
    sys.stderr.write(f"vramscope agent: {make_printable(sentence)}\n")
    sys.stderr.flush()


def _sweep_payloads(folder: Path) -> None:
    """Remove payloads of attaching for processes that have ended since."""
    from ..jobs.handover import remove_left_payloads

    with suppress(OSError):
        remove_left_payloads(folder)


def _empty_log() -> None:
    """Empty the log, if stderr goes there, of the output of an earlier agent."""
    with suppress(OSError):
        if stat.S_ISREG(os.fstat(2).st_mode):
            os.ftruncate(2, 0)


def _tidy(folder: Path, *, is_private: bool) -> None:
    """Remove the sockets, while the lock keeps another agent from binding its own under these names.

    `hub.lock` stays: were it removed, one process could lock the file that is gone and another a new one of
    the same name, and both would believe that they serve the folder. A private folder has no other.
    """
    names = (*SOCKET_NAMES, PROBE_SOCKET_NAME, *((*LOG_NAMES, LOCK_NAME) if is_private else ()))
    with suppress(OSError):
        for name in names:
            (folder / name).unlink(missing_ok=True)
        if is_private:
            import shutil

            shutil.rmtree(folder / LEDGERS_NAME, ignore_errors=True)
            folder.rmdir()


def _open_producer(options: AgentOptions, roster: Roster | None) -> SampleProducer:
    if options.replay is not None:
        from ..sampling.trace_player import TracePlayer

        return TracePlayer(
            options.replay,
            speed=options.speed,
            interval_s=options.replay_interval_s,
            capacity_bytes=options.capacity_bytes,
        )
    return open_node(
        interval_s=options.interval_s,
        memory_interval_s=options.memory_interval_s,
        roster=roster,
        serving=options.serving,
    )


STARTS_WITHIN_S = 20.0
ENDS_WITHIN_S = 1.0
# Wait before the next start, by the number of crashes so far.
BACKOFF_S = (0.5, 2.0, 10.0, 60.0)
MOST_ADDRESS_BYTES = 4096


class ExporterProcess:
    """Keeps `vramscope exporter` running; a thread waits for its end, so it costs the agent nothing.

    Args:
        warn: Called with a sentence when it crashed.
    """

    def __init__(self, runtime_dir: Path, arguments: Sequence[str], *, warn: Callable[[str], None]) -> None:
        self._command = command_of("exporter", *arguments, "--runtime-dir", str(runtime_dir))
        self._log = runtime_dir / EXPORTER_LOG_NAME
        self._warn = warn
        self._stop = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._restart_after_crashes, name="exporter", daemon=True)

    def start(self) -> str:
        """Start it and return the address of the metrics once it serves them.

        Raises:
            UsageError: It cannot serve; the text says why.
        """
        self._process = self._spawn()
        address = _read_address(self._process)
        if address is None:
            code = self._end(self._process)
            reason = last_line(self._log) or f"the exporter ended with status {code}"
            raise UsageError(reason.removeprefix("vramscope: "))
        self._thread.start()
        return address

    def stop(self) -> None:
        """End it; it ends by itself when its standard input closes."""
        self._stop.set()
        if self._process is not None:
            self._end(self._process)
        if self._thread.is_alive():
            self._thread.join(timeout=ENDS_WITHIN_S)

    def _spawn(self) -> "subprocess.Popen[bytes]":
        with self._log.open("wb") as log:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env=own_environment(),
            )

    def _restart_after_crashes(self) -> None:
        """Wait for its end, and start it again unless that was asked for."""
        for crashes in range(1 << 30):
            if self._process is None:
                return
            code = self._process.wait()
            if self._stop.is_set():
                return
            wait_s = BACKOFF_S[min(crashes, len(BACKOFF_S) - 1)]
            reason = last_line(self._log) or f"status {code}"
            self._warn(f"the metrics exporter ended ({reason}); restarting it in {wait_s:g} s")
            if self._stop.wait(wait_s):
                return
            _close_pipes(self._process)
            self._process = self._spawn()
            address = _read_address(self._process)
            if address is not None:
                self._warn(_describe_places(address, " again"))

    def _end(self, process: "subprocess.Popen[bytes]") -> int:
        _close_pipes(process)
        try:
            return process.wait(timeout=ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _describe_places(places: str, again: str = "") -> str:
    """Return in words what an exporter printed: addresses that it serves, then one that it pushes to."""
    is_served = not places.startswith("pushed")
    return f"metrics are available{again} at {places}" if is_served else f"metrics are{again} {places}"


def _read_address(process: "subprocess.Popen[bytes]") -> str | None:
    """Return the line that it prints when it serves; None if it ended, or prints none in time."""
    if process.stdout is None or not select.select([process.stdout], [], [], STARTS_WITHIN_S)[0]:
        return None
    return os.read(process.stdout.fileno(), MOST_ADDRESS_BYTES).decode(errors="replace").strip() or None


def _close_pipes(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
