"""A real sshd on loopback, with keys and settings of its own, and an `ssh` that knows it."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests import REPOSITORY
from vramscope.engine.cluster.addresses import LOOPBACK
from vramscope.engine.paths import locate_runtime_folder

from ...components import require
from ...waiting import wait_until
from .remote import free_port

PRIVILEGE_FOLDER = Path("/run/sshd")
"""Sshd of root refuses to start without it; Debian makes it with the service."""


class LoopbackSshd:
    """Serves ssh to this user from entering a block to its end.

    Args:
        folder: For keys, settings and logs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.known_hosts = folder / "known_hosts"
        self.runtime_dir = locate_runtime_folder().parent / "there"
        """Of agents there."""
        self._sshd = require("sshd")
        self._ssh = require("ssh")

    @property
    def host(self) -> str:
        """As it is typed."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def command(self) -> str:
        """What starts vramscope there, as on a node with a runtime folder of its own."""
        variables = {"VRAMSCOPE_RUNTIME_DIR": str(self.runtime_dir), "PYTHONPATH": str(REPOSITORY)}
        kept = ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "LD_LIBRARY_PATH", "PRETEND_NVML_STATE")
        variables |= {name: os.environ[name] for name in kept if name in os.environ}
        words = [f"{name}={value}" for name, value in variables.items()]
        return shlex.join(["env", *words, sys.executable, "-m", "vramscope"])

    def trust(self) -> None:
        """Let ssh know the key of the host."""
        key = (self.folder / "host.pub").read_text()
        self.known_hosts.write_text(f"[{LOOPBACK}]:{self.port} {key}")

    def connections(self) -> list[int]:
        """Return the processes that serve a connection."""
        pid = self._process.pid
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def __enter__(self) -> "LoopbackSshd":
        for name in ("host", "user"):
            _run(require("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name))
        (self.folder / "authorized").write_bytes((self.folder / "user.pub").read_bytes())
        self.known_hosts.touch()
        self._write_settings()
        self._write_ssh()
        if os.geteuid() == 0:
            PRIVILEGE_FOLDER.mkdir(mode=0o755, exist_ok=True)
        words = [self._sshd, "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with (self.folder / "sshd.log").open("w") as log:
            self._process = subprocess.Popen(words, stderr=log, stdin=subprocess.DEVNULL)
        wait_until(lambda: "listening" in (self.folder / "sshd.log").read_text(), what="sshd")
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.connections():
            os.kill(pid, signal.SIGKILL)
        self._process.terminate()
        self._process.wait(timeout=30)

    def _write_settings(self) -> None:
        _write(
            self.folder / "sshd_config",
            [
                f"ListenAddress {self.host}",
                f"HostKey {self.folder}/host",
                f"AuthorizedKeysFile {self.folder}/authorized",
                "AuthenticationMethods publickey",
                "AllowTcpForwarding no",
                "AllowStreamLocalForwarding no",
                "PermitRootLogin yes",
                "PidFile none",
                "StrictModes no",
                "UsePAM no",
            ],
        )

    def _write_ssh(self) -> None:
        """Put an `ssh` first in the path that has settings of its own, and else those that it is given."""
        _write(
            self.folder / "ssh_config",
            [f"UserKnownHostsFile {self.known_hosts}", "GlobalKnownHostsFile none", "IdentitiesOnly yes"],
        )
        program = self.folder / "bin" / "ssh"
        program.parent.mkdir()
        given: Sequence[str] = ("-F", str(self.folder / "ssh_config"), "-i", str(self.folder / "user"))
        _write(program, ["#!/bin/sh", f'exec {shlex.join([self._ssh, *given])} "$@"'])
        program.chmod(0o755)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)


def _write(path: Path, lines: Sequence[str]) -> None:
    path.write_text("\n".join(lines) + "\n")
