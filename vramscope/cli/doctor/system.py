"""The rest of the surroundings: versions, limits, container, settings, plug-ins."""

import os
import platform
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from vramscope import __version__
from vramscope.engine.errors import VramscopeError
from vramscope.engine.plugins import find_entry_points, make_plugins
from vramscope.engine.settings.layers import list_unknown_variables
from vramscope.engine.sources.host import HostReader
from vramscope.engine.sources.processes import has_own_pids
from vramscope.engine.units import format_bytes

from ..frame.configuration import load_configuration
from .check import Check

DISTRIBUTIONS = ("textual", "rich", "msgspec", "pyzmq", "psutil", "nvidia-ml-py", "shtab", "tomlkit")
_CONTAINER_MARKS = {"/.dockerenv": "Docker", "/run/.containerenv": "Podman"}


def examine_versions() -> Iterator[Check]:
    """Look at the versions of what vramscope is made of."""
    from importlib.metadata import PackageNotFoundError, version

    yield Check(
        "vramscope",
        "ok",
        f"{__version__}, Python {platform.python_version()} ({sys.executable}), "
        f"Linux {platform.release()}, {platform.machine()}",
    )
    versions = []
    missing = []
    for name in DISTRIBUTIONS:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    yield Check("packages", "ok", ", ".join(versions))
    if missing:
        yield Check(
            "packages", "warning", f"not installed: {', '.join(missing)}", f"pip install {' '.join(missing)}"
        )


def examine_host(proc: Path = Path("/proc")) -> Iterator[Check]:
    """Look at the memory this process may use, and whether it runs in a container."""
    host = HostReader().read()
    limit = "the cgroup's limit" if host.limit == "cgroup" else "the host's"
    yield Check("host memory", "ok", f"{format_bytes(host.total_bytes)} ({limit})")
    kind = _name_container()
    if has_own_pids(proc):
        where = kind or "a pid namespace of its own"
        yield Check(
            "container",
            "note",
            f"running inside {where}: processes outside it are shown by pid only",
            "start the container with --pid=host to see their users and commands",
        )
    elif kind is not None:
        yield Check("container", "ok", f"running inside {kind}, which sees the host's processes")


def examine_settings(arguments: Namespace) -> Iterator[Check]:
    """Look at which settings are in use and where they come from."""
    try:
        loaded = load_configuration(arguments)
    except VramscopeError as error:
        yield Check("settings", "problem", str(error), "correct or remove it", error.exit_code)
        return
    files = ", ".join(map(str, loaded.files)) or "no settings file"
    origins = ", ".join(f"{key} from {origin}" for key, origin in sorted(loaded.origins.items()))
    yield Check("settings", "ok", f"{files}; {origins or 'all settings are the defaults'}")
    unknown = list_unknown_variables(os.environ)
    if unknown:
        yield Check("settings", "warning", f"variables that mean nothing here: {', '.join(unknown)}")


def examine_plugins() -> Iterator[Check]:
    """Look at the sources and analyzers that are offered, and whether each can be made."""
    for group in ("vramscope.sources", "vramscope.analyzers", "vramscope.inquirers"):
        kind = group.removeprefix("vramscope.")
        names = [entry_point.name for entry_point in find_entry_points(group)]
        yield Check(kind, "ok", f"{', '.join(names) or 'none'} by entry point {group}")
        for note in make_plugins(group).notes:
            yield Check(kind, "warning", note, "update or uninstall that distribution")


def _name_container(root: Path = Path("/")) -> str | None:
    for mark, name in _CONTAINER_MARKS.items():
        if (root / mark.lstrip("/")).exists():
            return name
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "Kubernetes"
    if os.environ.get("APPTAINER_CONTAINER") or os.environ.get("SINGULARITY_CONTAINER"):
        return "Apptainer"
    return os.environ.get("container")  # noqa: SIM112 - as systemd and Podman spell it
