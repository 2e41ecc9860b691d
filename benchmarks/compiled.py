"""Parts of benchmarks that are written in C, compiled where they run."""

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

from vramscope.engine.errors import UsageError


def load_compiled(source: str) -> ctypes.CDLL:
    """Compile and load a C file of this folder.

    Raises:
        UsageError: If there is no C compiler.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise UsageError(
            "no C compiler (cc, gcc or clang) on the PATH: install one, the futures are computed in C"
        )
    path = Path(__file__).with_name(source)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / f"{path.stem}.so"
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", target, path, "-lm"], check=True)
        return ctypes.CDLL(str(target))
