"""Follows the servers of models on this node: finds them, reads each on a thread of its own.

The thread that takes samples calls `collect` and never waits: it looks at processes that came since the last
call, by their command line, and takes what the other threads have read. Without a server there is no thread.
"""

import socket
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from ...clock import Clock, SystemClock
from ...errors import InputFileError, ServerUnreachableError, UsageError
from ...model import DeviceSample, ProcessReading
from ...model.serving import RankStart, ServerDevice, ServerSample, ServerState
from ...text import make_printable
from ...unmeasured import sum_all
from .recognition import (
    Recognized,
    climb,
    find_listener,
    find_log,
    find_rank,
    is_in_another_network,
    list_ports,
    read_command,
    read_settings,
    recognize_process,
)

if TYPE_CHECKING:
    from .answers import Answer
    from .endpoint import ServerEndpoint

READ_INTERVAL_S = 1.5
# Between two tries of an address that did not answer.
RETRY_S = 5.0
# Between two looks for the address of a server that has not answered yet: it loads for minutes.
SEARCH_INTERVAL_S = 2.0
# Between two looks for the process behind an address that was named.
OWNER_INTERVAL_S = 10.0
# A server that has not answered for so long is silent.
SILENT_AFTER_S = 6.0
MOST_SERVERS = 16
MOST_PROCESSES = 4096
_MOST_LOG_BYTES = 16 << 20
# A log is read again until it has the plan, so often at most.
_MOST_LOG_TRIES = 4
_LOG_RETRY_S = 30.0

Key = tuple[int, float | None]


class _Holder(NamedTuple):
    """A process of a server on one device."""

    process: ProcessReading
    device: DeviceSample


class _Reading(NamedTuple):
    answer: "Answer"
    at_s: float


class ServerReader:
    """Reads one server until it is stopped; what it found is `newest`."""

    def __init__(self, endpoint: "ServerEndpoint", clock: Clock, interval_s: float) -> None:
        self.endpoint = endpoint
        self.newest: _Reading | None = None
        self.failure: str | None = None
        self._clock = clock
        self._interval_s = interval_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="serving-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end; a request that hangs is left behind, and ends by its own deadline."""
        self._stopped.set()

    def read(self) -> bool:
        """Ask the server once; return whether it answered."""
        try:
            answer = self.endpoint.read()
        except ServerUnreachableError as error:
            self.failure = str(error)
            return False
        except Exception as error:  # noqa: BLE001 - whatever a hostile answer may cause ends no thread
            self.failure = f"{self.endpoint.url} cannot be read: {type(error).__name__}"
            return False
        self.failure = None
        self.newest = _Reading(answer, self._clock.monotonic_s())
        return True

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._stopped.wait(self._interval_s if self.read() else max(RETRY_S, self._interval_s))


class _Server:
    """One server: what is known of its processes, its address and its plan."""

    def __init__(self, recognized: Recognized | None, url: str | None = None) -> None:
        self.recognized = recognized
        self.is_named = url is not None
        self.settings = read_settings("" if recognized is None else recognized.command)
        self.url = url
        self.reader: ServerReader | None = None
        # Why there is no reader yet, in one sentence.
        self.obstacle: str | None = None
        self.plan: tuple[RankStart, ...] = ()
        self.longest: int | None = None
        self.log_path: Path | None = None
        self.log_tries = 0
        self.log_due_s = 0.0
        self.search_due_s = 0.0
        self.owner_due_s = 0.0
        # All of its processes have ended; nothing is to be read any more.
        self.is_gone = False


class ServingWatch:
    """The servers of one node.

    Args:
        named: Addresses given by the user, each with the path of a start-up log or None.
        root: Stands for `/`: the folder in which /proc is.
    """

    def __init__(
        self,
        named: Sequence[tuple[str, Path | None]] = (),
        *,
        root: Path = Path("/"),
        clock: Clock | None = None,
        read_interval_s: float = READ_INTERVAL_S,
    ) -> None:
        self._proc = root / "proc"
        self._clock = clock or SystemClock()
        self._read_interval_s = read_interval_s
        self._lock = threading.Lock()
        self._named: list[_Server] = []
        for url, log in named[:MOST_SERVERS]:
            server = _Server(None, url)
            server.log_path = log
            self._named.append(server)
        self._found: dict[int, _Server] = {}
        self._known: dict[Key, Recognized | None] = {}
        self._lists: list[tuple[ProcessReading, ...] | None] = []
        # The scout has found whose a named server is.
        self._must_look_again = False
        self._holders: dict[int, list[_Holder]] = {}
        self._left_out = 0
        self._scout: threading.Thread | None = None
        self._news = threading.Event()
        self._stopped = threading.Event()

    def collect(self, devices: Sequence[DeviceSample]) -> tuple[tuple[ServerSample, ...], tuple[str, ...]]:
        """Return the servers of a tick, and notes about those that cannot be read; never blocks."""
        lists = [device.processes for device in devices]
        is_same = len(lists) == len(self._lists) and all(
            new is old for new, old in zip(lists, self._lists, strict=True)
        )
        with self._lock:
            must_look_again = self._must_look_again
            self._must_look_again = False
        if must_look_again:
            self._known = {key: found for key, found in self._known.items() if found is not None}
        if must_look_again or not is_same:
            self._lists = lists
            self._note_processes(devices)
        if not self._found and not self._named:
            return (), ()
        self._start_scout()
        now_s = self._clock.monotonic_s()
        by_uuid = {device.uuid: device for device in devices}
        with self._lock:
            servers = [*self._named, *self._found.values()]
        samples = tuple(self._describe(server, by_uuid, now_s) for server in servers)
        return samples, tuple(self._make_notes(servers, samples))

    def close(self) -> None:
        """End all threads; requests that hang are left behind."""
        self._stopped.set()
        self._news.set()
        with self._lock:
            for server in (*self._named, *self._found.values()):
                if server.reader is not None:
                    server.reader.stop()

    def search_once(self) -> None:
        """Look for the addresses and logs that are due; the scout calls this, and tests do."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            servers = [*self._named, *self._found.values()]
        for server in servers:
            if server.reader is None and now_s >= server.search_due_s:
                self._search(server)
                server.search_due_s = self._clock.monotonic_s() + SEARCH_INTERVAL_S
            elif server.reader is not None and server.reader.newest is not None:
                if server.is_named and now_s >= server.owner_due_s:
                    server.owner_due_s = now_s + OWNER_INTERVAL_S
                    self._find_owner(server)
                self._read_log(server, now_s)

    def _note_processes(self, devices: Sequence[DeviceSample]) -> None:
        """Look at the processes that came; forget servers whose processes have all gone."""
        holders: dict[int, list[_Holder]] = {}
        present: set[Key] = set()
        for device in devices:
            for process in device.processes or ():
                key = (process.pid, process.started_s)
                present.add(key)
                if key not in self._known:
                    if len(self._known) >= MOST_PROCESSES:
                        self._known.clear()
                    self._known[key] = recognize_process(process, self._proc) or self._find_named_root(
                        process
                    )
                found = self._known[key]
                if found is not None and process.location != "gone":
                    holders.setdefault(found.root_pid, []).append(_Holder(process, device))
        self._known = {key: found for key, found in self._known.items() if key in present}
        roots = {found.root_pid: found for found in self._known.values() if found is not None}
        with self._lock:
            named = {it.recognized.root_pid for it in self._named if it.recognized is not None}
            for pid in [pid for pid in self._found if pid not in holders]:
                server = self._found.pop(pid)
                server.is_gone = True
                if server.reader is not None:
                    server.reader.stop()
            self._left_out = 0
            for pid in holders:
                if pid in named:
                    continue
                if pid not in self._found and len(self._found) + len(self._named) >= MOST_SERVERS:
                    self._left_out += 1
                    continue
                self._found.setdefault(pid, _Server(roots[pid]))
            self._holders = holders
        self._news.set()

    def _find_named_root(self, process: ProcessReading) -> Recognized | None:
        """Return the server that was named by its address, if a process is one of its own.

        Its command line says nothing, as that of a script that starts a server does.
        """
        roots = {it.recognized.root_pid: it.recognized for it in self._named if it.recognized is not None}
        if not roots or process.location not in ("here", "container"):
            return None
        return next((roots[pid] for pid in climb(process.pid, self._proc) if pid in roots), None)

    def _find_owner(self, server: _Server) -> None:
        """Find the process behind an address of this machine, among those that use a device."""
        port = _find_local_port(server.url)
        with self._lock:
            if port is None or (
                server.recognized is not None and self._holders.get(server.recognized.root_pid)
            ):
                return
            pids = [
                process.pid
                for processes in self._lists
                for process in processes or ()
                if process.location in ("here", "container")
            ]
        pid = find_listener(pids, port, self._proc)
        kind = None if server.reader is None else server.reader.endpoint.kind
        if pid is None or kind is None:
            return
        process = ProcessReading(pid, command=read_command(pid, self._proc), location="here")
        recognized = recognize_process(process, self._proc)
        if recognized is None:
            recognized = Recognized(kind, pid, process.command or "")
        with self._lock:
            server.recognized = recognized
            server.settings = read_settings(recognized.command)
            found = self._found.pop(recognized.root_pid, None)
            if found is not None:
                found.is_gone = True
                if found.reader is not None:
                    found.reader.stop()
            # What is known of the processes of devices is asked again, now that this one is a server's, by
            # the thread of `collect`, which alone touches it.
            self._must_look_again = True

    def _start_scout(self) -> None:
        if self._scout is None:
            self._scout = threading.Thread(target=self._run, name="serving-scout", daemon=True)
            self._scout.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.search_once()
            self._news.wait(SEARCH_INTERVAL_S)
            self._news.clear()

    def _search(self, server: _Server) -> None:
        """Find the address of a server and begin to read it."""
        # Loaded here, since a node without servers does without: it takes several MiB.
        from .endpoint import ServerEndpoint

        recognized = server.recognized
        if recognized is None:
            if server.url is not None:
                self._begin(server, ServerEndpoint(server.url))
            return
        if is_in_another_network(recognized.root_pid, self._proc):
            server.obstacle = (
                f"process {recognized.root_pid} ({recognized.kind}) is in a network of its own, as in a "
                "container: name its address with --serving URL"
            )
            return
        for port in list_ports(recognized, self._proc):
            url = f"http://127.0.0.1:{port}"
            named = self._find_named(port)
            if named is not None:
                self._adopt(named, server)
                return
            endpoint = ServerEndpoint(url, recognized.kind)
            reader = ServerReader(endpoint, self._clock, self._read_interval_s)
            if reader.read():
                self._begin(server, endpoint, reader)
                return
            server.obstacle = reader.failure

    def _begin(self, server: _Server, endpoint: "ServerEndpoint", reader: ServerReader | None = None) -> None:
        server.url = endpoint.url
        server.reader = reader or ServerReader(endpoint, self._clock, self._read_interval_s)
        server.obstacle = None
        with self._lock:
            if not (self._stopped.is_set() or server.is_gone):
                server.reader.start()

    def _find_named(self, port: int) -> _Server | None:
        """Return the server that the user named, if it is on this port of this machine."""
        for server in self._named:
            if _find_local_port(server.url) == port:
                return server
        return None

    def _adopt(self, named: _Server, found: _Server) -> None:
        """One server that was named and found is one; it stays listed when its processes end."""
        with self._lock:
            if found.recognized is not None and found.recognized.root_pid in self._found:
                named.recognized = found.recognized
                named.settings = found.settings
                del self._found[found.recognized.root_pid]

    def _read_log(self, server: _Server, now_s: float) -> None:
        """Read the plan from the start-up log, if there is one and it was not read yet."""
        if server.plan or server.log_tries >= _MOST_LOG_TRIES or now_s < server.log_due_s:
            return
        server.log_tries += 1
        server.log_due_s = now_s + _LOG_RETRY_S
        path = server.log_path
        if path is None and server.recognized is not None:
            path = find_log(server.recognized.root_pid, self._proc)
        if path is None:
            return
        from ...files.serving_log import read_serving_log

        try:
            log = read_serving_log(path, most_bytes=_MOST_LOG_BYTES)
        except InputFileError:
            return
        server.plan = log.ranks
        server.longest = log.sequence

    def _describe(self, server: _Server, devices: dict[str, DeviceSample], now_s: float) -> ServerSample:
        recognized = server.recognized
        reading = None if server.reader is None else server.reader.newest
        answer = None if reading is None else reading.answer
        age_s = None if reading is None else max(0.0, now_s - reading.at_s)
        state, reason = _judge(server, answer, age_s)
        settings = server.settings
        holders = [] if recognized is None else self._holders.get(recognized.root_pid, [])
        first = next((it.process for it in holders), None)
        kind = None if recognized is None else recognized.kind
        if kind is None and server.reader is not None:
            kind = server.reader.endpoint.kind
        plan = server.plan
        source: Literal["log", "metrics"] | None = None
        if plan or (answer is not None and answer.ranks):
            source = "log" if plan else "metrics"
        used = _list_devices(holders, devices)
        return ServerSample(
            kind=kind,
            name=server.url or f"process {'?' if recognized is None else recognized.root_pid}",
            url=server.url,
            state=state,
            reason=reason,
            age_s=age_s,
            pid=None if recognized is None else recognized.root_pid,
            started_s=None if first is None else first.started_s,
            model=None if answer is None else answer.model,
            is_simulated=any(devices[it.uuid].is_simulated for it in used),
            engines=() if answer is None else answer.engines,
            devices=used,
            plan=plan or (() if answer is None else answer.ranks),
            plan_source=source,
            resident_bytes=None if answer is None else answer.resident_bytes,
            utilization=(None if answer is None else answer.utilization) or settings.utilization,
            longest=settings.longest or server.longest,
            most_sequences=settings.most_sequences,
            unmeasured=_explain_unmeasured(server, used),
        )

    def _make_notes(self, servers: Sequence[_Server], samples: Sequence[ServerSample]) -> Iterable[str]:
        for server, sample in zip(servers, samples, strict=True):
            failure = server.obstacle if server.reader is None else server.reader.failure
            if sample.state == "ok" and sample.unmeasured == _ELSEWHERE:
                yield f"{sample.name} is on another host: what it holds is unmeasured; run an agent there"
            if failure is None or sample.state == "ok":
                continue
            # A server that still loads refuses connections, which is no failure.
            if (
                sample.state == "starting"
                and server.recognized is not None
                and "cannot be reached" in failure
            ):
                continue
            yield make_printable(f"A server of models cannot be read: {failure}")
        if self._left_out:
            yield f"{self._left_out} more servers of models are not read: at most {MOST_SERVERS} are"


def _judge(server: _Server, answer: "Answer | None", age_s: float | None) -> tuple[ServerState, str | None]:
    failure = server.obstacle if server.reader is None else server.reader.failure
    if answer is None or age_s is None:
        return "starting", failure or "it has not answered yet"
    if age_s > SILENT_AFTER_S:
        return "silent", failure or "it has not answered lately"
    if answer.engines and all(engine.is_asleep for engine in answer.engines):
        return "asleep", None
    return "ok", None


_ELSEWHERE = "on another host"


def _find_local_port(url: str | None) -> int | None:
    """Return the port of an address of this machine; None for another host."""
    from ...http_opener import LOOPBACK_NAMES  # heavy, and most nodes have no server

    parts = urlsplit(url or "")
    any_address = "0.0.0.0"  # noqa: S104 - an address that users name, none to bind
    if parts.hostname not in (*LOOPBACK_NAMES, any_address, socket.gethostname().lower()):
        return None
    return parts.port or (443 if parts.scheme == "https" else 80)


def _explain_unmeasured(server: _Server, used: Sequence[ServerDevice]) -> str | None:
    """Say why it is not known what a server holds of a device."""
    if used and any(it.used_bytes is not None for it in used):
        return None
    if used:
        return "the driver does not say"
    if server.is_named and _find_local_port(server.url) is None:
        return _ELSEWHERE
    return "no process of a device here listens on its port"


def _list_devices(holders: Sequence[_Holder], devices: dict[str, DeviceSample]) -> tuple[ServerDevice, ...]:
    """Return the devices of a server's processes, with what these use of each as of the newest sample."""
    by_device: dict[str, list[ProcessReading]] = {}
    pids = {holder.process.pid for holder in holders}
    for uuid in dict.fromkeys(holder.device.uuid for holder in holders):
        device = devices.get(uuid)
        if device is not None:
            by_device[uuid] = [it for it in device.processes or () if it.pid in pids]
    found = []
    for uuid, processes in by_device.items():
        ranks = {rank for it in processes if (rank := find_rank(it.command)) is not None}
        found.append(
            ServerDevice(
                uuid,
                tuple(it.pid for it in processes),
                ranks.pop() if len(ranks) == 1 else None,
                sum_all(it.used_bytes for it in processes) if processes else None,
            )
        )
    return tuple(found)


NO_SERVER = "none"
_MOST_ADDRESS = 1000


def open_watch(names: Sequence[str], root: Path = Path("/")) -> ServingWatch | None:
    """Return the watch of a node, of servers as in the settings; None if none is to be looked for.

    Raises:
        UsageError: A name is no address.
    """
    if NO_SERVER in names:
        return None
    return ServingWatch([parse_server(name) for name in names], root=root)


def parse_server(text: str) -> tuple[str, Path | None]:
    """Parse `URL` or `URL=LOG`.

    Raises:
        UsageError: It is no address of a server.
    """
    address, _, log = text.partition("=")
    try:
        return parse_url(address.strip()), Path(log).expanduser() if log else None
    except UsageError as error:
        raise UsageError(f"--serving {make_printable(text, 200)}: {error}") from error


def parse_url(text: str) -> str:
    """Return the address of a server, without path and slash at its end.

    Raises:
        UsageError: It is no such address.
    """
    expected = "expected the address of a server such as http://127.0.0.1:8000"
    try:
        parts = urlsplit(text)
        is_sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_sound = False
    if not is_sound or "@" in parts.netloc or not text.isprintable() or len(text) > _MOST_ADDRESS:
        raise UsageError(expected)
    path = parts.path.rstrip("/").removesuffix("/metrics")
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))
