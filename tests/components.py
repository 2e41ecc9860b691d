"""Programs that some tests need and a machine may lack."""

import os
import shutil
from importlib.util import find_spec
from typing import NoReturn

import pytest

DEBIAN_PACKAGES = {
    "bash": "bash",
    "cc": "gcc libc6-dev",
    "fish": "fish",
    "gcc": "gcc libc6-dev",
    "gdb": "gdb",
    "mandoc": "mandoc",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "screen": "screen",
    "script": "bsdutils",
    "setpriv": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
    "tmux": "tmux",
    "zsh": "zsh",
}
"""Where each program comes from on Debian."""
SYSTEM_PATH = "/usr/sbin:/sbin"
"""Of services such as sshd; not in the path of every user."""


def require(program: str) -> str:
    """Return the path of a program, or skip the test; where CI is set a missing program fails it.

    Args:
        program: Name of the program, as it is called.
    """
    path = shutil.which(program) or shutil.which(program, path=SYSTEM_PATH)
    if path is None:
        package = DEBIAN_PACKAGES.get(program, program)
        missing(f"{program} is not installed (Debian: apt-get install {package})")
    return path


def require_package(name: str) -> None:
    """Skip the test, or the file, where a Python package is not installed; where CI is set fail.

    It is not imported: torch would cost each worker two seconds for tests that train in other processes.
    """
    if find_spec(name) is None:
        missing(f"{name} is not installed (make test installs it)")


def missing(reason: str) -> NoReturn:
    """Skip the test for want of a component; where CI is set fail it instead.

    Args:
        reason: What is missing and where it comes from, in one sentence.
    """
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason, allow_module_level=True)
