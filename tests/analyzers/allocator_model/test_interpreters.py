"""The package inside other interpreters: loaded by its path, with nothing but the standard library."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.jobs.interpreters import SUPPORTED, find_python
from vramscope.analyzers import allocator_model

FOLDER = Path(allocator_model.__file__).parent
PROGRAM = """
import importlib.util, json, sys
folder = sys.argv[1]
spec = importlib.util.spec_from_file_location(
    "model_by_path", folder + "/__init__.py", submodule_search_locations=[folder]
)
model = importlib.util.module_from_spec(spec)
sys.modules["model_by_path"] = model
spec.loader.exec_module(model)
MIB = 1 << 20
results = []
for text in ("", "expandable_segments:True", "max_split_size_mb:20,roundup_power2_divisions:4"):
    allocator = model.CachingAllocator(
        model.PrivateDeviceMemory(400 * MIB), model.AllocatorSettings.parse(text), clock_us=lambda: 0
    )
    allocator.record_history(50, lambda: [{"filename": "a.py", "line": 1, "name": "f"}])
    live = []
    for step in range(300):
        live.append(allocator.malloc((step * 7919 % 23 + 1) * 300_000, stream=step % 2))
        if step % 7 == 0:
            allocator.record_stream(live[0], 5)
        if step % 3 and step > 30:
            allocator.free(live.pop(step % len(live)))
        if len(live) > 60:
            allocator.synchronize()
            for _ in range(30):
                allocator.free(live.pop())
    try:
        allocator.malloc(500 * MIB)
    except model.AllocatorOutOfMemoryError as error:
        results.append([str(error), error.reserved_bytes])
    results.append([allocator.memory_stats(), allocator.snapshot()])
results.append(model.find_least_capacity([(1, 30 * MIB), (2, 5 * MIB), (1, 0), (3, 31 * MIB)]))
print(json.dumps([results, [name for name in sys.modules if name.startswith("vramscope")]]))
"""


def run(python: Path) -> object:
    """Return what a run in an interpreter comes to; isolated, so that it sees no package but its own."""
    command = [str(python), "-I", "-W", "error", "-c", PROGRAM, str(FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    results, ours = json.loads(done.stdout)
    assert ours == []
    return results


@pytest.mark.parametrize("version", SUPPORTED)
def test_every_python_comes_to_the_same(version: str) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here (put one on PATH, or install it with pyenv)")
    assert run(python) == run(Path(sys.executable))
