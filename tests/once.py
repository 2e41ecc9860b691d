"""What several tests need and only one of the workers of pytest makes."""

import fcntl
import json
import os
from collections.abc import Callable
from typing import Any

import pytest


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[], Any]) -> Any:
    """Return what `make` returns, as JSON keeps it; the first worker that asks makes it, the others wait.

    Args:
        factory: Of this worker; the folder above its own is the session's, and its own without workers.
        name: Names the result within the session.
        make: Returns what JSON can hold. Where it raises, the next worker tries.
    """
    own = factory.getbasetemp()
    path = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / f"{name}.json"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            text = json.dumps(make())
            path.write_text(text)
        return json.loads(path.read_text())
