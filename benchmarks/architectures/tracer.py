"""Traces the step of one model after the other, each in a fork of this process, which imports packages once.

`python -m benchmarks.architectures.tracer WAY RESULT` reads lines of JSON, each a name and an attempt, and
writes for each what came out to the file RESULT, and a line with the status of the fork to standard output.
WAY is `fake`, `real` (with storage), or `plain`: on the host, without a card. In the first two a fork does
what the child of `vramscope estimate --factory` does: the same program and request, on a card that is
simulated before the packages are imported.
"""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

FACTORY = "benchmarks.architectures.tracer:make_step"
LIMIT_S, WAIT_S = 30, 600
"""Seconds of CPU time, and seconds, after which a fork is ended."""
MODEL, ATTEMPT = "VRAMSCOPE_BENCH_MODEL", "VRAMSCOPE_BENCH_ATTEMPT"
"""Variables that say what the factory makes; the words of an attempt are separated by commas."""


def make_request(*, is_fake: bool) -> dict[str, Any]:
    """Return what `vramscope estimate --factory` asks of its child."""
    return {
        "factory": FACTORY,
        "arguments": {"batch_size": None, "seq_length": None},
        "inputs": [],
        "optimizer": "adamw",
        "ranks": None,
        "rank": 0,
        "is_fake": is_fake,
        "has_largest_sizes": False,
        "settings": "",
        "depths": [None],
    }


def make_step() -> object:
    """Return the step of the model that the environment names: the factory."""
    from .training import make_training

    # Models draw on the host what they mask.
    random.seed(0)
    import_module("numpy.random").seed(0)
    return make_training(os.environ[MODEL], tuple(os.environ[ATTEMPT].split(",")), "cuda")


def find_attempt(name: str) -> dict[str, Any]:
    """Return the first attempt at a model that makes two steps on the host by itself, or why none does."""
    from .training import CannotBeMadeError, list_attempts, make_training

    reasons: list[str] = []
    for attempt in list_attempts(name):
        try:
            step = make_training(name, attempt, "cpu")
            for _ in range(2):
                step()
        except CannotBeMadeError as error:
            reasons.append(str(error))
        except Exception as error:  # noqa: BLE001 - of any model, any
            lines = str(error).strip().splitlines() or [""]
            reasons.append(f"{type(error).__name__}: {lines[-1]}")
        else:
            return {"attempt": attempt}
    return {"reasons": reasons}


def main() -> None:
    way, result = sys.argv[1], Path(sys.argv[2])
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch

    # A fork lacks the threads that OpenMP had started before it.
    torch.set_num_threads(1)
    request = make_request(is_fake=way == "fake")
    trace: Any = None
    if way != "plain":
        os.environ["VRAMSCOPE_SIMULATE"] = "estimate"
        trace = import_module("vramscope.engine.workloads.step_trace")
        simulation = trace.simulate(request)
    import_packages()
    # What is there stays out of collections of garbage, which would copy every page of it into each fork.
    gc.freeze()
    for line in sys.stdin:
        name, attempt = json.loads(line)
        result.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
            signal.alarm(WAIT_S)
            os.environ |= {MODEL: name, ATTEMPT: ",".join(attempt)}
            made = find_attempt(name) if trace is None else trace.trace_all(request, simulation)
            result.write_text(json.dumps(made), encoding="utf-8")
            sys.stderr.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def import_packages() -> None:
    """Import what takes long, where it is installed."""
    for name in ("timm", "transformers.modeling_utils", "transformers.models.auto.modeling_auto"):
        try:
            import_module(name)
        except ImportError:
            continue
    transformers = sys.modules.get("transformers")
    if transformers is not None:
        transformers.logging.set_verbosity_error()


if __name__ == "__main__":
    main()
