"""A second environment, in which torch is installed and vramscope is not."""

import re
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from tests.components import require_package


def make_environment_with_torch_alone(folder: Path) -> Path:
    """Return the interpreter of a virtual environment that sees torch, what torch requires, and no more.

    The files are those of this environment, by links: downloading them again would prove nothing more.
    """
    require_package("torch")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    (packages,) = folder.glob("lib/python*/site-packages")
    for found in _list_required("torch", _list_required("numpy", {})).values():  # torch complains without it
        for name in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            place = Path(str(found.locate_file(name)))
            if place.exists() and not (packages / name).exists():
                (packages / name).symlink_to(place)
    return folder / "bin/python"


def _list_required(name: str, known: dict[str, Distribution]) -> dict[str, Distribution]:
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return known
    known[name] = found
    for requirement in found.requires or ():
        needed = re.split(r"[^A-Za-z0-9._-]", requirement)[0]
        if "extra ==" not in requirement and needed not in known:
            _list_required(needed, known)
    return known
