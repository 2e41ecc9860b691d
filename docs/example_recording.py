"""Make the recording that `vramscope` offers on a node without a GPU: `python docs/example_recording.py`.

It is of the job of `vramscope demo`, on a simulated device, from its start beyond its out-of-memory error.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from vramscope.cli.live import EXAMPLE

WORKLOADS = Path(__file__).resolve().parents[1] / "engine" / "workloads"
STEPS = 240


def record(path: Path) -> None:
    """Run the job, from a folder and on a node whose names say nothing of this machine, and record it."""
    with tempfile.TemporaryDirectory(prefix="demo-", dir="/tmp") as name:
        folder = Path(name)
        shutil.copy(WORKLOADS / "leaking_gpt.py", folder / "train.py")
        shutil.copy(WORKLOADS / "small_gpt.py", folder)
        words = ["run", "--simulate", "1536MiB", "--job", "demo (simulated)", f"--record={path}", "--"]
        job = ["python", "train.py", "--pace", "0.5", "--evaluate", "1", "--steps", str(STEPS)]
        variables = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "VRAMSCOPE_RUNTIME_DIR": str(folder / "run"),
            "VRAMSCOPE_FLIGHT_DIR": str(folder),
            "VRAMSCOPE_NODE": "demo",
            "OMP_NUM_THREADS": "1",
        }
        subprocess.run(["vramscope", *words, *job], check=True, cwd=folder, env={**os.environ, **variables})


if __name__ == "__main__":
    EXAMPLE.unlink(missing_ok=True)
    record(EXAMPLE)
