"""A folder whose files have the names of all that Python programs import, and leave a mark when they run."""

import os
import subprocess
import sys
from pathlib import Path

from .running import Outcome

PROGRAM = str(Path(sys.executable).with_name("vramscope"))
"""The console script: what a person types."""
THIRD_PARTY = (
    *(
        "evil",
        "matplotlib",
        "msgspec",
        "networkx",
        "numpy",
        "opacus",
        "pandas",
        "psutil",
        "pyarrow",
        "pynvml",
    ),
    *("rich", "shtab", "sitecustomize", "sympy", "textual", "tomlkit", "torch", "usercustomize", "zmq"),
)
ENTRIES = "".join(
    f"[{group}]\nevil = evil:Evil\n"
    for group in ("vramscope.sources", "vramscope.analyzers", "vramscope.inquirers", "networkx.backends")
)
TRAIN = """\
import beside
try:
    import msvcrt  # as packages do to find out the system: never that of the folder
except ImportError:
    pass
import torch
from torch import nn

def make_model(**given):
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))

def make_phases():
    return make_model(), lambda batch_size, seq_length: (torch.zeros(2, 8), torch.zeros(2, dtype=torch.long))
"""


class HostileFolder:
    """Such a folder.

    Args:
        place: Where it is made.
    """

    def __init__(self, place: Path) -> None:
        self.path, self._marks = place / "hostile", place / "marks"
        self.path.mkdir()
        self._marks.mkdir()
        for name in {*sys.stdlib_module_names, *THIRD_PARTY} - {"__main__", "this", "antigravity"}:
            self._write_module(name)
        for name in ("evil-9.dist-info", "evil.egg-info"):
            (self.path / name).mkdir()
            (self.path / name / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 9\n")
            (self.path / name / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 9\n")
            (self.path / name / "entry_points.txt").write_text(ENTRIES)
        (self.path / "evil.pth").write_text("import evil\n")
        (self.path / "matplotlibrc").write_text("backend: module://evil\n")
        (self.path / "train.py").write_text(TRAIN)
        (self.path / "beside.py").write_text("")

    def _write_module(self, name: str) -> None:
        (self.path / f"{name}.py").write_text(
            "import os, sys\n"
            f"with open(os.path.join({str(self._marks)!r}, {name!r}), 'a') as mark:\n"
            "    mark.write(' '.join(sys.orig_argv) + '\\n')\n"
            f"raise ImportError('the hostile {name} was imported')\n"
        )

    def list_executed(self) -> dict[str, str]:
        """Return the modules of this folder that were run, with the command lines that did."""
        return {mark.name: mark.read_text() for mark in self._marks.iterdir()}

    def run(self, *words: str, program: tuple[str, ...] = (PROGRAM,), **variables: str) -> Outcome:
        """Run `vramscope` in this folder to its end."""
        done = subprocess.run(
            [*program, *words],
            cwd=self.path,
            env=clean_environment(**variables),
            capture_output=True,
            encoding="utf-8",
            stdin=subprocess.DEVNULL,
            timeout=120,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)


def clean_environment(**variables: str) -> dict[str, str]:
    """Return this environment without a search path of its own, and more variables."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
