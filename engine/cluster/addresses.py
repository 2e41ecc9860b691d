"""Where nodes are: addresses as they are typed, hosts of ssh, nodes of Slurm, names that are looked up."""

import ipaddress
import queue
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, NamedTuple, TypeVar

from ..errors import HubUnreachableError, InputFileError, UsageError
from ..files.base.input_file import read_text_file, show_path, show_text
from ..text import make_printable_lines

_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - what others may listen on


def describe_holder(host: str, port: int) -> str:
    """Return who listens on a port of `host`, an address of this machine, as far as we may see it."""
    import psutil

    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return "another process"
    held = {
        it.laddr.ip: it.pid
        for it in connections
        if it.status == psutil.CONN_LISTEN and it.laddr and it.laddr.port == port
    }
    if not held:
        return "another process"
    nearest = next((it for it in (host, *_EVERYWHERE) if it in held), next(iter(held)))
    pid = held[nearest]
    if pid is None:
        return "a process of another user"
    try:
        return f"process {pid} ({psutil.Process(pid).name()})"
    except psutil.Error:
        return f"process {pid}"


DEFAULT_PORT = 5757
LOOPBACK = "127.0.0.1"
_HOST = re.compile(r"[A-Za-z0-9_](?:[\w.-]{0,251}[\w.])?", re.ASCII)


class TcpAddress(NamedTuple):
    """A host, by name or number, and a port."""

    host: str
    port: int

    @property
    def text(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def label(self) -> str:
        """The shortest words that mean this address: without the port where it is the usual one."""
        return self.host if self.port == DEFAULT_PORT else self.text

    @property
    def endpoint(self) -> str:
        """The address as ZeroMQ takes it."""
        return f"tcp://{self.text}"

    @property
    def is_loopback(self) -> bool:
        """Whether a numeric host is this machine itself."""
        return ipaddress.ip_address(self.host).is_loopback


def parse_address(text: str) -> TcpAddress:
    """Return the host and the port that a person typed.

    Raises:
        UsageError: It is no host, or no port; the text says what was expected.
    """
    bracketed = re.fullmatch(r"\[([^\[\]]*)\](?::(.*))?", text)
    if bracketed:
        host = bracketed[1]
        port = bracketed[2]
    elif text.count(":") > 1:
        host, port = text, None  # an address of IPv6 alone
    else:
        host, found, port = text.partition(":")
        port = port if found else None
    is_numeric = ":" in host and _is_ipv6(host)
    if not is_numeric and (bracketed or not _HOST.fullmatch(host)):
        raise UsageError(
            f"{text!r}: expected a host, host:port or [IPv6]:port, for example n2:{DEFAULT_PORT}"
        )
    return TcpAddress(host, DEFAULT_PORT if port is None else parse_port(port))


def parse_listen_address(text: str) -> TcpAddress:
    """Return where an agent is to listen: nothing and a port alone mean loopback, `*` means everywhere.

    Raises:
        UsageError: It is no address, or no port.
    """
    if not text:
        return TcpAddress(LOOPBACK, DEFAULT_PORT)
    if text.isdecimal():
        return TcpAddress(LOOPBACK, parse_port(text))
    anywhere = re.fullmatch(r"\*(?::(.*))?", text)
    if anywhere:
        return TcpAddress("0.0.0.0", DEFAULT_PORT if anywhere[1] is None else parse_port(anywhere[1]))  # noqa: S104 - it was typed
    return parse_address(text)


def parse_port(text: str) -> int:
    """Return a port.

    Raises:
        UsageError: It is no number from 1 to 65535.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and 1 <= int(text) <= 65535):
        raise UsageError(f"port {text!r}: expected 1 to 65535")
    return int(text)


def resolve(address: TcpAddress) -> TcpAddress:
    """Return the numeric address that a host stands for; asks name servers, and may take long.

    Raises:
        UsageError: Nobody knows the name.
    """
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"the name {address.host} cannot be resolved: {reason}") from error
    except UnicodeError as error:
        raise UsageError(f"{address.host}: expected the name of a host") from error
    numeric = found[0][4][0]
    return TcpAddress(str(numeric), address.port)


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


DEFAULT_COMMAND = "vramscope"
MOST_SSH_HOSTS = 128
"""Each takes a process of ssh here."""

_TYPED = re.compile(
    r"(?P<user>[A-Za-z0-9_][\w.+@-]*@)?(?:\[(?P<bracketed>[0-9A-Fa-f:.]+(?:%\w+)?)\]|"
    r"(?P<host>[A-Za-z0-9_](?:[\w.-]{0,251}[\w])?))(?::(?P<port>.*))?",
    re.ASCII,
)
_OPTIONS = {
    "BatchMode": "yes",  # nobody could answer a question
    "ClearAllForwardings": "yes",
    "ConnectTimeout": "10",
    "ControlMaster": "no",  # one that is there is used
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "LogLevel": "ERROR",
    "RemoteCommand": "none",
    "ServerAliveCountMax": "3",
    "ServerAliveInterval": "5",
    "UpdateHostKeys": "no",  # nothing is stored
}


class SshHost(NamedTuple):
    """A host for ssh, and what starts vramscope there."""

    label: str
    """As it was typed."""
    destination: str
    """`[USER@]HOST`, as ssh takes it."""
    port: int | None
    """None for the one that ssh chooses."""
    command: str = DEFAULT_COMMAND
    """Read by the shell of the user there."""

    @property
    def typed_words(self) -> str:
        """What a person types after `ssh`."""
        return self.destination if self.port is None else f"-p {self.port} {self.destination}"

    @property
    def bridge_command(self) -> str:
        """What is executed there."""
        return f"{self.command} agent --stdio"

    @property
    def words(self) -> list[str]:
        """The command line of ssh. Of host keys and passwords it says nothing: ssh goes by its settings."""
        options = [word for name, value in _OPTIONS.items() for word in ("-o", f"{name}={value}")]
        port = [] if self.port is None else ["-p", str(self.port)]
        return ["ssh", "-T", *options, *port, "--", self.destination, self.bridge_command]


def parse_ssh_hosts(text: str, command: str = DEFAULT_COMMAND) -> list[SshHost]:
    """Return the hosts of a list with commas.

    Raises:
        UsageError: One is none, or there are too many.
    """
    hosts = [_parse(word.strip(), command) for word in text.split(",")]
    if len(hosts) > MOST_SSH_HOSTS:
        raise UsageError(
            f"{len(hosts)} hosts: expected at most {MOST_SSH_HOSTS} through ssh, each takes a process; "
            "for more, run `vramscope agent --listen` on them and use --connect"
        )
    return hosts


def _parse(word: str, command: str) -> SshHost:
    typed = _TYPED.fullmatch(word)
    if typed is None:
        raise UsageError(f"{word!r}: expected a host, user@host or host:port, for example alice@n2")
    port = None if typed["port"] is None else parse_port(typed["port"])
    host = typed["bracketed"] or typed["host"]
    return SshHost(word, f"{typed['user'] or ''}{host}", port, command)


NodeAddress = TcpAddress | SshHost
"""Where a node is, by tcp or through ssh."""
Host = TypeVar("Host", bound=NodeAddress)
MOST_NODES = 1024
_LONGEST_HOST = 300
"""A name of DNS has at most 255 characters."""


def parse_hosts(text: str) -> list[TcpAddress]:
    """Return the hosts of a list with commas.

    Raises:
        UsageError: One is none, or there is none.
    """
    return [parse_address(word.strip()) for word in text.split(",")]


def read_hosts_file(path: Path) -> list[TcpAddress]:
    """Return the hosts of a file: one a line, with comments after `#`.

    Raises:
        InputFileError: It cannot be read, a line is no host, or there is none; the text names file and line.
    """
    text = read_text_file(path, "a file with one host a line")
    hosts: list[TcpAddress] = []
    for number, line in enumerate(text.split("\n"), 1):
        word = line.partition("#")[0].strip()
        if word:
            try:
                hosts.append(parse_address(show_text(word, _LONGEST_HOST)))
            except UsageError as error:
                raise InputFileError(f"{show_path(path)}:{number}: {error}") from error
    if not hosts:
        raise InputFileError(f"{show_path(path)}: names no host; expected one a line, for example n2:5757")
    return hosts


def list_nodes(hosts: Iterable[Host]) -> tuple[list[Host], list[str]]:
    """Return every host once, and a sentence for each that was named again.

    Raises:
        UsageError: There are too many.
    """
    once: dict[str, Host] = {}
    again: list[str] = []
    for host in hosts:
        if host.label in once:
            again.append(f"{host.label} is named more than once; it is followed once")
        once.setdefault(host.label, host)
    if len(once) > MOST_NODES:
        raise UsageError(f"{len(once)} nodes: expected at most {MOST_NODES}")
    return list(once.values()), list(dict.fromkeys(again))


ANSWERS_WITHIN_S = 10.0
"""Longer than a busy controller takes; a command that has not answered by then is ended."""
MOST_ANSWER_BYTES = 1024**2
WITH_NODES = {
    "RUNNING",
    "CONFIGURING",
    "COMPLETING",
    "RESIZING",
    "SIGNALING",
    "STAGE_OUT",
    "STOPPED",
    "SUSPENDED",
}
"""States in which nodes are the job's."""
WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
"""States from which a job may get nodes."""
_JOB = re.compile(r"([1-9]\d{0,8})(?:[_+]\d{1,8})?", re.ASCII)
"""Slurm counts jobs up to 67,043,328 and takes larger numbers than 32 bits for others."""
_FIELDS = "%i|%T|%N|%r"
"""Job, state, nodes and why it waits."""


class Answer(NamedTuple):
    code: int
    output: str
    complaint: str


class JobPart(NamedTuple):
    """A job, a task of an array or a component of a heterogeneous job."""

    name: str
    state: str
    nodes: str
    """As Slurm writes lists of them: `n[1-3,7]`; empty where it has none."""
    reason: str
    """Why it waits."""


Runner = Callable[[Sequence[str]], Answer]
"""Runs a command to its end; raises UsageError without such a command, HubUnreachableError if it hangs."""


def run_command(words: Sequence[str]) -> Answer:
    """Run a command of Slurm and return its output, up to a maximum length.

    Raises:
        UsageError: There is no such command here.
        HubUnreachableError: It did not answer in time.
    """
    from tempfile import TemporaryFile

    with TemporaryFile() as output, TemporaryFile() as complaint:
        try:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=complaint,
                timeout=ANSWERS_WITHIN_S,
                check=False,
            )
        except OSError as error:
            raise UsageError(
                f"{words[0]}: {error.strerror or error}; --slurm needs it to list the nodes of a job: "
                "run this on a machine of the cluster, or name the nodes with --connect or --ssh"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise HubUnreachableError(
                f"{words[0]} did not answer within {ANSWERS_WITHIN_S:g} s; check the Slurm controller "
                "with `scontrol ping`"
            ) from error
        return Answer(done.returncode, _read(output), _read(complaint))


def find_job_nodes(job: str, run: Runner = run_command) -> list[str]:
    """Return the names of the nodes that a job has, in the order in which Slurm lists them.

    Args:
        job: As it was typed: `1234`, `1234_5` of an array, `1234+1` of a heterogeneous job.

    Raises:
        UsageError: It is no job, Slurm knows no job of that number, or there is no Slurm here.
        HubUnreachableError: The job has no nodes yet, or no longer; or Slurm does not answer.
    """
    parts = _list_parts(job, run)
    lists = [part.nodes for part in parts if part.state in WITH_NODES and part.nodes]
    if not lists:
        raise HubUnreachableError(_explain_absence(job, parts))
    answer = run(["scontrol", "show", "hostnames", ",".join(lists)])
    names = list(dict.fromkeys(answer.output.split()))
    if answer.code or not names:
        raise HubUnreachableError(f"scontrol show hostnames failed: {_last_line(answer)}")
    return names


def _list_parts(job: str, run: Runner) -> list[JobPart]:
    typed = _JOB.fullmatch(job)
    if typed is None:
        raise UsageError(
            f"--slurm {job}: expected a job as squeue shows it: 1234, 1234_5 of an array, 1234+1 of a "
            "heterogeneous job"
        )
    # By itself squeue leaves out jobs that have ended. It takes no component of a heterogeneous job.
    asked = typed[1] if "+" in job else job
    answer = run(["squeue", "--noheader", "--states=all", f"--jobs={asked}", f"--format={_FIELDS}"])
    parts = [
        JobPart(*(word.strip() for word in line.split("|", 3)))
        for line in answer.output.splitlines()
        if line.count("|") >= _FIELDS.count("|")
    ]
    if answer.code and "invalid job id" not in answer.complaint.lower():
        raise HubUnreachableError(f"squeue failed: {_last_line(answer)}")
    parts = [part for part in parts if "+" not in job or part.name == job]
    if not parts:
        raise UsageError(f"--slurm {job}: Slurm has no such job, or no longer; `squeue --me` lists yours")
    return parts


def _explain_absence(job: str, parts: Sequence[JobPart]) -> str:
    waiting = next((part for part in parts if part.state in WAITING), None)
    if waiting is not None:
        reason = "" if waiting.reason == "None" else f", {waiting.reason}"
        return f"job {job} has no nodes yet: {waiting.state}{reason}"
    return f"job {job} no longer has nodes: {parts[-1].state}"


def _last_line(answer: Answer) -> str:
    lines = f"{answer.output}\n{answer.complaint}".strip().splitlines()
    return lines[-1].strip() if lines else f"exit code {answer.code}, no message"


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return make_printable_lines(file.read(MOST_ANSWER_BYTES).decode(errors="replace"))


MOST_THREADS = 4


class FoundAddress(NamedTuple):
    asked: TcpAddress
    numeric: TcpAddress | None
    reason: str | None = None
    """Why there is none, in one sentence."""


class NameLookup:
    """Answers from threads that are not waited for.

    Args:
        on_found: Called on such a thread when there is an answer to take.
    """

    def __init__(self, on_found: Callable[[], None]) -> None:
        self._on_found = on_found
        self._asked: queue.SimpleQueue[TcpAddress | None] = queue.SimpleQueue()
        self._found: queue.SimpleQueue[FoundAddress] = queue.SimpleQueue()
        self._threads = 0

    def ask(self, address: TcpAddress) -> None:
        """Ask for the numeric address of a host; returns at once."""
        self._asked.put(address)
        if self._threads < MOST_THREADS:
            self._threads += 1
            threading.Thread(target=self._look_up, name="name-lookup", daemon=True).start()

    def take(self) -> list[FoundAddress]:
        found: list[FoundAddress] = []
        while True:
            try:
                found.append(self._found.get_nowait())
            except queue.Empty:
                return found

    def stop(self) -> None:
        """Let the threads end, each after what it does now."""
        for _ in range(self._threads):
            self._asked.put(None)

    def _look_up(self) -> None:
        while (address := self._asked.get()) is not None:
            try:
                self._found.put(FoundAddress(address, resolve(address)))
            except UsageError as error:
                self._found.put(FoundAddress(address, None, str(error)))
            self._on_found()
