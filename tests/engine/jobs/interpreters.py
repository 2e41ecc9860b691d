"""Other Pythons of this machine, into which the shim and the probe are loaded."""

import os
import pwd
import shutil
from functools import cache
from pathlib import Path

OLD = ("2.7", "3.6", "3.7", "3.8")
"""Too old for the probe; the shim must leave them alone."""
_NAMED = {name: path for name, path in os.environ.items() if name.startswith("VRAMSCOPE_TEST_PYTHON")}
"""Taken when this file is loaded: no test sees a variable of ours that whoever runs it has set."""
SUPPORTED = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


@cache
def find_python(version: str) -> Path | None:
    """Return an interpreter of a minor version, or None where this machine has none.

    Args:
        version: Major and minor version, such as `3.12`.
    """
    named = _NAMED.get(f"VRAMSCOPE_TEST_PYTHON{version.replace('.', '')}")
    if named:
        return Path(named)
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    roots = (Path(os.environ.get("PYENV_ROOT", home / ".pyenv")), home / ".pyenv")
    for root in roots:
        for path in sorted(root.glob(f"versions/{version}.*/bin/python{version}")):
            return path
    found = shutil.which(f"python{version}")
    is_shim = found is not None and Path(found).parent.name == "shims"  # pyenv's, which may name none
    return None if found is None or is_shim else Path(found)


def list_pythons(*versions: str) -> dict[str, Path]:
    """Return the interpreters of some versions that this machine has."""
    found = {version: find_python(version) for version in versions}
    return {version: path for version, path in found.items() if path is not None}
