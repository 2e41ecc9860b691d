"""What Kubernetes makes around the agent of `docs/deployment/daemonset.yaml`, made here by mounts."""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

import pytest

from ..components import require
from ..structure.tree import ROOT
from ..vramscope.cli.running import environment

MANIFEST = (ROOT / "docs/deployment/daemonset.yaml").read_text()
KEYS = Path("/run/config/vramscope/keys")
MOUNT = """
set -e
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p {keys} /run/vramscope
mount -t tmpfs -o mode=2777,gid={group} tmpfs /run/vramscope
mount -t tmpfs tmpfs {keys}
mkdir -m 755 {keys}/..2026
cp {key} {keys}/..2026/own.key
chown {owner} {keys}/..2026/own.key
chmod {mode} {keys}/..2026/own.key
ln -s ..2026 {keys}/..data
ln -s {target} {keys}/own.key
mount -o remount,{access} {keys}
mkdir /run/python /run/repository /run/packages
mount --bind {base} /run/python
mount --bind {repository} /run/repository
mount --bind {packages} /run/packages
mount -o remount,bind,ro /
cd /
exec {as_user} "$@"
"""
"""An emptyDir of the pod's group, a Secret behind its links, a Python where every user reaches it, and a root
file system that nobody writes to."""
PYTHON = f"/run/python/bin/python{sys.version_info.major}.{sys.version_info.minor}"


def read_field(name: str) -> str:
    """Return the value of a field that the manifest has once, as it is written."""
    (value,) = re.findall(rf"^ *(?:- )?{name}: *(\S.*)$", MANIFEST, re.MULTILINE)
    return str(value)


def read_variables() -> dict[str, str]:
    """Return the variables that the manifest gives; the name of the node is made up."""
    given = re.findall(r"- name: ([A-Z_]+)\n +value: (\S+)\n", MANIFEST)
    return {**dict(given), "VRAMSCOPE_NODE": "gpu-7"}


class Secret(NamedTuple):
    """How the key is mounted; by default as the manifest has it, where its group is added."""

    owner: str = f"0:{read_field('fsGroup')}"
    mode: str = "440"
    target: str = "..data/own.key"
    access: str = "ro"


AS_IN_THE_MANIFEST = Secret()


def start_in_pod(key: Path, *words: str, secret: Secret = AS_IN_THE_MANIFEST) -> "subprocess.Popen[str]":
    """Start `vramscope` as the container would; without a network. The caller ends it.

    Args:
        key: File that the Secret holds.
        words: Of the command line.
        secret: How it is mounted.
    """
    script = MOUNT.format(
        keys=KEYS,
        key=shlex.quote(str(key)),
        base=shlex.quote(sys.base_prefix),
        repository=shlex.quote(str(ROOT)),
        packages=shlex.quote(sysconfig.get_path("purelib")),
        group=read_field("fsGroup"),
        as_user=shlex.join(as_user()),
        **secret._asdict(),
    )
    namespaces = [require("unshare"), "--mount", "--net", "sh", "-c", script, "sh"]
    return _start([*namespaces, PYTHON, "-m", "vramscope", *words])


def start_beside(process: "subprocess.Popen[str]", *words: str) -> "subprocess.Popen[str]":
    """Start `vramscope` in the same container, as `kubectl exec` does. The caller ends it."""
    within = [require("nsenter"), f"--target={process.pid}", "--mount", "--net"]
    return _start([*within, *as_user(), PYTHON, "-m", "vramscope", *words])


def as_user() -> list[str]:
    """Return the words before a command that make it the pod's user, who may do nothing more."""
    user, group = read_field("runAsUser"), read_field("fsGroup")
    ids = ["--reuid", user, "--regid", read_field("runAsGroup"), "--groups", group]
    return [require("setpriv"), *ids, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]


def skip_without_mounts(key: Path) -> None:
    """Skip the test where nothing can be mounted, or this Python does not run elsewhere.

    Args:
        key: Any file.
    """
    if (
        os.geteuid()
        or subprocess.run([require("unshare"), "--mount", "--net", "true"], check=False).returncode
    ):
        pytest.skip("mounting needs root and mount namespaces")
    tried = start_in_pod(key, "--version")
    complained = tried.communicate(timeout=60)[1]
    if tried.returncode:
        pytest.skip(f"this Python does not run in a pod: {complained.strip()[-200:]}")


def _start(words: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        words,
        env=environment(**read_variables(), PYTHONPATH="/run/repository:/run/packages"),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
