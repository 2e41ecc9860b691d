"""What faults are tried on: an agent in a network namespace of its own, keys, and viewers on the other side.

Where namespaces cannot be made, all of it is on loopback and the network itself cannot be cut.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.engine.cluster.remote import free_port
from vramscope.engine.cluster.addresses import LOOPBACK, TcpAddress
from vramscope.engine.cluster.keys import (
    AllowedKey,
    AllowList,
    KeyPair,
    Role,
    make_key_pair,
    save_allow_list,
    save_key_pair,
)

from ..machine import Machine
from ..programs import ENVIRONMENT
from .viewers import Viewer

INSIDE = "VRAMSCOPE_FAULTS_INSIDE"
"""Set where this process is in a namespace of its own."""
HERE, THERE = "10.77.0.1", "10.77.0.2"
_SKEWED = """
import sys, time
real, path = time.time, sys.argv[1]
time.time = lambda: real() + float(open(path).read())
sys.argv = sys.argv[1:]
from vramscope.__main__ import main
sys.exit(main())
"""
"""An agent whose wall clock is off by the seconds that stand in a file."""


class Site:
    """One agent on pretend devices, and the way to it; made by `open_site`."""

    def __init__(self, machine: Machine, folder: Path, inside: tuple[str, ...]) -> None:
        self.has_namespaces, self.here = bool(inside), HERE if inside else LOOPBACK
        self.key, self.viewer, self.witness = make_key_pair(), make_key_pair(), make_key_pair()
        host = THERE if inside else LOOPBACK
        self.address = TcpAddress(host, free_port())
        self._machine, self._folder, self._inside = machine, folder, inside
        self.relay_address = TcpAddress(self.here, free_port())
        self._agent: subprocess.Popen[bytes] | None = None
        self._relay: subprocess.Popen[bytes] | None = None
        self._viewers = 0
        save_key_pair(self.key, self.keys_folder("agent"))
        for name, pair in (("viewer", self.viewer), ("witness", self.witness)):
            save_key_pair(pair, self.keys_folder(name))
            save_allow_list(AllowList([AllowedKey("node", self.key.public, "*")]), self.keys_folder(name))
        self.allow(self.viewer, self.witness)
        self.set_clock(0.0)

    def allow(self, *pairs: KeyPair) -> None:
        """Let these keys read, and no others."""
        role: Role = "viewer"
        keys = (AllowedKey(role, pair.public, f"key-{at}") for at, pair in enumerate(pairs))
        save_allow_list(AllowList(keys), self.keys_folder("agent"))

    def set_clock(self, offset_s: float) -> None:
        """Set the wall clock of the agent's process so many seconds ahead of ours."""
        path = self._folder / "offset"
        path.with_suffix(".new").write_text(f"{offset_s}\n", encoding="ascii")
        path.with_suffix(".new").replace(path)

    def start(self) -> None:
        """Start the agent and return at once."""
        command = (sys.executable, "-c", _SKEWED, str(self._folder / "offset"), "agent")
        self._agent = self._run(*self._inside, *command, "--listen", self.address.text)

    def start_relay(self) -> None:
        """Start a relay on our side that passes the agent on; return at once."""
        command = (str(ENVIRONMENT / "vramscope"), "agent", "--relay", "--connect", self.address.text)
        self._relay = self._run(*command, "--listen", self.relay_address.text)

    def kill(self) -> None:
        """Kill the agent; what it started ends with it."""
        _kill(self._agent)

    def kill_relay(self) -> None:
        """Kill the relay."""
        _kill(self._relay)

    def restart(self) -> None:
        """Kill the agent and start it again."""
        self.kill()
        self.start()

    def view(self, address: TcpAddress | None = None, *, keys: str = "viewer") -> Viewer:
        """Return a viewer of the agent, or of who listens at another address."""
        self._viewers += 1
        path = self._folder / f"viewer-{self._viewers}.jsonl"
        env = {**os.environ, "XDG_CONFIG_HOME": str(self._folder / keys)}
        return Viewer((address or self.address).text, env, path)

    def set_link(self, *, is_up: bool) -> None:
        """Cut the network between the agent and us without a word, or mend it."""
        subprocess.run([*self._inside, "ip", "link", "set", "there", "up" if is_up else "down"], check=True)

    def keys_folder(self, name: str) -> Path:
        """Return the folder of the keys of the agent, the viewer or the witness."""
        return self._folder / name / "vramscope" / "keys"

    def _run(self, *command: str) -> "subprocess.Popen[bytes]":
        env = {**self._machine.env, "XDG_CONFIG_HOME": str(self._folder / "agent")}
        nothing = subprocess.DEVNULL
        with (self._folder / "agent.log").open("ab") as log:
            return subprocess.Popen(command, env=env, stdin=nothing, stdout=nothing, stderr=log)


def _kill(process: "subprocess.Popen[bytes] | None") -> None:
    if process is not None:
        process.kill()
        process.wait()


@contextmanager
def open_site(devices: int) -> Iterator[Site]:
    """Make an agent that runs, and end it after the block."""
    with ExitStack() as stack:
        inside = stack.enter_context(_open_namespace()) if INSIDE in os.environ else ()
        machine = stack.enter_context(Machine(devices))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vs-faults-", dir="/tmp")))
        site = Site(machine, folder, inside)
        site.start()
        try:
            yield site
        finally:
            site.kill()
            site.kill_relay()
            time.sleep(1.0)  # its worker ends with it


@contextmanager
def _open_namespace() -> Iterator[tuple[str, ...]]:
    """Make a network for the agent next to ours and a link between; yields what starts a program there."""
    holder = subprocess.Popen(["unshare", "-n", "sleep", "86400"])
    inside = ("nsenter", "-t", str(holder.pid), "-n")
    try:
        while Path(f"/proc/{holder.pid}/ns/net").samefile("/proc/self/ns/net"):
            time.sleep(0.01)
        for command in (
            ["ip", "link", "set", "lo", "up"],
            ["ip", "link", "add", "name", "here", "type", "veth", "peer", "name", "there"],
            ["ip", "link", "set", "there", "netns", str(holder.pid)],
            ["ip", "address", "add", f"{HERE}/24", "dev", "here"],
            ["ip", "link", "set", "here", "up"],
            [*inside, "ip", "address", "add", f"{THERE}/24", "dev", "there"],
            [*inside, "ip", "link", "set", "lo", "up"],
            [*inside, "ip", "link", "set", "there", "up"],
        ):
            subprocess.run(command, check=True)
        yield inside
    finally:
        holder.kill()
        holder.wait()
