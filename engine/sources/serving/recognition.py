"""Which processes serve models: known by their command lines, with the ports on which they listen."""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ...model import ProcessReading
from ...model.serving import ServerKind
from ..kernel_files import read_bytes

# A server's workers are children or grandchildren of what was started.
MOST_ANCESTORS = 6
MOST_RELATIVES = 64
MOST_PORTS = 8
_MOST_COMMAND = 8192
_MOST_TABLE = 1 << 20
_LISTEN = "0A"
_COMMANDS: tuple[tuple[ServerKind, re.Pattern[str]], ...] = (
    ("vLLM", re.compile(r"^VLLM::|\bvllm serve\b|\bvllm\.entrypoints\.|\bvllm\.v1\.engine\b")),
    ("SGLang", re.compile(r"^sglang::|\bsglang\.launch_server\b|\bsglang serve\b")),
    ("TensorRT-LLM", re.compile(r"(?:^|[/ ])trtllm-serve(?: |$)|(?:^|[/ ])tritonserver\b.*tensorrt")),
    ("llama.cpp", re.compile(r"(?:^|[/ ])llama-server(?:\.exe)?(?: |$)")),
    ("TGI", re.compile(r"(?:^|[/ ])text-generation-(?:launcher|server|router)\S*(?: |$)")),
    ("Ollama", re.compile(r"(?:^|[/ ])ollama(?:_llama_server| runner| serve)(?: |$)")),
)
# What servers listen on if nothing else is said.
USUAL_PORTS: dict[ServerKind, int] = {
    "vLLM": 8000,
    "SGLang": 30000,
    "TensorRT-LLM": 8000,
    "llama.cpp": 8080,
    "TGI": 3000,
    "Ollama": 11434,
}
_RANK = re.compile(r"^(?:VLLM::(?:Worker|EngineCore)|sglang::scheduler)_((?:[A-Z]{2}\d{1,4}_?)+)")
_EXPERTS = re.compile(r"_?EP\d+")


class Recognized(NamedTuple):
    """A process that uses a device for a server."""

    kind: ServerKind
    # What was started: the topmost ancestor of this kind.
    root_pid: int
    command: str
    """Command line of the root."""


class Settings(NamedTuple):
    """What a command line says of memory; None where it does not."""

    port: int | None = None
    utilization: float | None = None
    longest: int | None = None
    most_sequences: int | None = None


def recognize_command(command: str | None) -> ServerKind | None:
    """Return the server that a command line, or the title of its process, is of."""
    if not command:
        return None
    return next((kind for kind, pattern in _COMMANDS if pattern.search(command)), None)


def recognize_process(process: ProcessReading, proc: Path = Path("/proc")) -> Recognized | None:
    """Return the server of a process that uses a device; its ancestors decide where its own name does not.

    It reads two small files of each ancestor: call it once for a process.
    """
    kind = recognize_command(process.command)
    found = None if kind is None else Recognized(kind, process.pid, process.command or "")
    if process.location not in ("here", "container"):
        return found
    for pid in islice(climb(process.pid, proc), 1, None):
        command = read_command(pid, proc)
        of_parent = recognize_command(command)
        if of_parent is not None and (found is None or of_parent == found.kind):
            found = Recognized(of_parent, pid, command or "")
    return found


def find_rank(command: str | None) -> str | None:
    """Return the rank that a process carries as its title: `TP0`, `DP1_TP0`."""
    found = None if command is None else _RANK.match(command)
    return None if found is None else (_EXPERTS.sub("", found[1]).strip("_") or None)


def read_settings(command: str) -> Settings:
    """Read flags of a server's command line; both `--flag value` and `--flag=value`."""
    words = command.replace("=", " ").split()
    values = dict(zip(words, [*words[1:], ""], strict=False))

    def whole(*names: str) -> int | None:
        text = next((values[name] for name in names if name in values), "")
        return int(text) if text.isdecimal() and len(text) <= 12 else None

    def share(*names: str) -> float | None:
        text = next((values[name] for name in names if name in values), "")
        return float(text) if re.fullmatch(r"0?\.\d{1,6}|1(?:\.0+)?", text) else None

    return Settings(
        whole("--port", "-p"),
        share("--gpu-memory-utilization", "--mem-fraction-static"),
        whole("--max-model-len", "--context-length", "--max_seq_len", "--ctx-size", "-c"),
        whole("--max-num-seqs", "--max-running-requests", "--max_batch_size", "--parallel", "-np"),
    )


def read_command(pid: int, proc: Path = Path("/proc")) -> str | None:
    data = read_bytes(f"{proc}/{pid}/cmdline", _MOST_COMMAND)
    return None if data is None else data.replace(b"\0", b" ").decode("utf-8", "replace").strip()


def list_ports(recognized: Recognized, proc: Path = Path("/proc")) -> list[int]:
    """Return the ports on which a server may answer, the likeliest first.

    They are those that its processes listen on. Of a process of another user they cannot be known: then its
    command line, or what the server listens on usually.
    """
    given = read_settings(recognized.command).port
    likely = [port for port in (given, USUAL_PORTS[recognized.kind]) if port is not None]
    found = [port for pid in _list_family(recognized.root_pid, proc) for port in _list_listening(pid, proc)]
    known = list(dict.fromkeys(found))
    if not known:
        return likely[:1]
    return [*(port for port in likely if port in known), *(port for port in known if port not in likely)][
        :MOST_PORTS
    ]


def is_in_another_network(pid: int, proc: Path = Path("/proc")) -> bool:
    """Return whether a process is in a network namespace of its own, as in a container."""
    ours, theirs = (_read_link(f"{proc}/{of}/ns/net") for of in ("self", pid))
    return ours is not None and theirs is not None and ours != theirs


def find_log(pid: int, proc: Path = Path("/proc")) -> Path | None:
    """Return the file to which a process writes its output; None for a terminal or a pipe."""
    for number in (1, 2):
        path = proc / str(pid) / "fd" / str(number)
        try:
            if stat.S_ISREG(path.stat().st_mode):
                return path
        except OSError:
            continue
    return None


def find_listener(pids: Iterable[int], port: int, proc: Path = Path("/proc")) -> int | None:
    """Return which of some processes, or of their ancestors, listens on a TCP port of this machine.

    The kernel's table has the inode of the socket; a process of another user does not show its own.
    """
    inodes = _list_listening_inodes(proc, port)
    if not inodes:
        return None
    seen: set[int] = set()
    for first in pids:
        for pid in climb(first, proc):
            if pid in seen:
                break
            seen.add(pid)
            if inodes & _list_sockets(pid, proc):
                return pid
    return None


def climb(pid: int, proc: Path = Path("/proc")) -> Iterator[int]:
    """Yield a process and its ancestors, the nearest first, without the first process of the system."""
    above: int | None = pid
    for _ in range(1 + MOST_ANCESTORS):
        if above is None or above <= 1:
            return
        yield above
        above = _read_parent(proc, above)


def _list_family(root: int, proc: Path) -> Iterator[int]:
    waiting = [root]
    for _ in range(MOST_RELATIVES):
        if not waiting:
            return
        pid = waiting.pop(0)
        yield pid
        children = read_bytes(f"{proc}/{pid}/task/{pid}/children", _MOST_COMMAND) or b""
        waiting += [int(word) for word in children.split() if word.isdigit()]


def _list_listening(pid: int, proc: Path) -> list[int]:
    """Return the TCP ports on which a process listens."""
    inodes = _list_sockets(pid, proc)
    return [port for port, inode in _read_listening(proc, str(pid)) if inode in inodes]


def _list_listening_inodes(proc: Path, port: int) -> set[str]:
    return {inode for listening, inode in _read_listening(proc, "self") if listening == port}


def _list_sockets(pid: int, proc: Path) -> set[str]:
    """Return the inodes of a process's sockets; empty where it does not show them to us."""
    folder = f"{proc}/{pid}/fd"
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names are all that is needed
    except OSError:
        return set()
    links = (_read_link(f"{folder}/{name}") for name in names[:4096])
    return {link[8:-1] for link in links if link is not None and link.startswith("socket:[")}


def _read_listening(proc: Path, of: str) -> Iterator[tuple[int, str]]:
    """Yield port and inode of each TCP socket that listens in the network of a process."""
    for table in ("tcp", "tcp6"):
        text = (read_bytes(f"{proc}/{of}/net/{table}", _MOST_TABLE) or b"").decode("ascii", "replace")
        for line in text.splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTEN:
                yield int(fields[1].rpartition(":")[2], 16), fields[9]


def _read_parent(proc: Path, pid: int) -> int | None:
    text = read_bytes(f"{proc}/{pid}/stat")
    fields = (text or b"").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else None


def _read_link(path: str) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115 - a name, no path
    except OSError:
        return None
