"""Which architectures of transformers and timm `vramscope estimate --factory` estimates unchanged.

python -m benchmarks.architectures [NAME...] [--resume] [--minutes N] [--write]

Run it with the interpreter of an environment that has both packages (`make compat` makes one). The models are
listed in `models.txt`: types of transformers, which are made small from their default configuration, and one
model of each family of timm, as it is. Two steps with AdamW are traced without storage, as the command does
it, and with storage on the simulated card, and their peaks of allocated bytes are compared. A model that
does not train on the host by itself is left out, with the reason. Nothing is downloaded.
"""

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import msgspec

from vramscope.analyzers.planning.steps import TraceResult
from vramscope.engine.errors import VramscopeError
from vramscope.estimates import StepRequest, Tracing, judge_traces, trace_steps

from ..measure.tables import replace_table
from .table import Outcome, format_tables, shorten
from .tracer import FACTORY, LIMIT_S

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "estimate-factory.md"
MODELS = Path(__file__).with_name("models.txt")
FOLDER = ROOT / "build" / "architectures"
PACKAGES = ("torch", "transformers", "timm")
MOST_COMPARED_BYTES = 1 << 30
"""Estimated peaks above it are not compared: their steps take long with real tensors."""
_REQUEST = StepRequest(factory=FACTORY)


class Worker:
    """A process that traces models in one way, each in a fork; see `tracer.py`."""

    def __init__(self, way: str, folder: Path) -> None:
        self._result = folder / f"{way}.json"
        environment = {**os.environ, "PYTHONWARNINGS": "ignore", "HF_HOME": str(folder)}
        with (FOLDER / f"{way}.log").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.architectures.tracer", way, str(self._result)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env=environment,
                text=True,
            )
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a worker needs pipes")
        self._process, self._asks, self._answers = process, process.stdin, process.stdout

    def ask(self, name: str, attempt: Sequence[str]) -> bytes | int:
        """Return what a fork wrote, or the code with which it ended."""
        self._asks.write(json.dumps([name, attempt]) + "\n")
        self._asks.flush()
        answer = self._answers.readline()
        if not answer:
            raise SystemExit(f"the worker ended; its last words are in {FOLDER}")
        code = int(answer)
        return self._result.read_bytes() if code == 0 else code

    def stop(self) -> None:
        self._asks.close()
        self._process.wait(LIMIT_S)


class Workers:
    """The three ways in which a model is run."""

    def __init__(self, folder: Path) -> None:
        self._workers = {way: Worker(way, folder) for way in ("plain", "fake", "real")}

    def trace(self, name: str, attempt: Sequence[str], *, is_fake: bool) -> TraceResult:
        """Return the trace of a model, as the child of the command leaves it."""
        answer = self._workers["fake" if is_fake else "real"].ask(name, attempt)
        if isinstance(answer, bytes):
            return msgspec.json.decode(answer, type=TraceResult)
        is_slow = -answer in {signal.SIGXCPU, signal.SIGALRM}
        ended = f"it took more than {LIMIT_S} s" if is_slow else f"Python ended with {answer}"
        return TraceResult(
            error=(f"{FACTORY} was not traced: {ended}",),
            doubt=ended if is_fake and answer < 0 else None,
        )

    def find_attempt(self, name: str) -> tuple[tuple[str, ...] | None, str]:
        """Return how a model is made so that it trains on the host, or None and why there is no way."""
        answer = self._workers["plain"].ask(name, ())
        if isinstance(answer, int):
            return None, "its step takes too long or too much memory here"
        found = json.loads(answer)
        if "attempt" in found:
            return tuple(found["attempt"]), ""
        return None, found["reasons"][0]

    def stop(self) -> None:
        for worker in self._workers.values():
            worker.stop()


def judge(
    name: str,
    kind: str,
    attempt: tuple[str, ...],
    trace: Callable[..., TraceResult],
    find_attempt: Callable[[str], tuple[tuple[str, ...] | None, str]],
) -> Outcome:
    """Return what comes of a model; another attempt is looked for if the first does not train as it is."""

    def run(_: StepRequest, *, is_fake: bool, has_largest_sizes: bool = False) -> TraceResult:
        if has_largest_sizes:
            return TraceResult(error=("the host has no memory for it",))
        return trace(name, attempt, is_fake=is_fake)

    outcome = _trace_once(name, kind, attempt, run)
    is_large = (outcome.peak_bytes or 0) > MOST_COMPARED_BYTES
    if outcome.stopped is None and (outcome.real_peak_bytes is not None or is_large):
        return outcome
    found, why = find_attempt(name)
    if found is None:
        return Outcome(name=name, kind=kind, left_out=why)
    if found == attempt:
        return outcome
    attempt = found
    return _trace_once(name, kind, attempt, run)


def _trace_once(name: str, kind: str, attempt: tuple[str, ...], run: Callable[..., TraceResult]) -> Outcome:
    try:
        tracing: Tracing = trace_steps(_REQUEST, run)
        judge_traces(tracing, _REQUEST, None)
    except VramscopeError as error:
        return Outcome(
            name=name, kind=kind, attempt=attempt, stopped=str(error).removeprefix(f"{FACTORY} raised ")
        )
    peak_bytes = tracing.result.traces[0].allocated_peak_bytes
    real = tracing.result
    if tracing.is_fake and peak_bytes <= MOST_COMPARED_BYTES:
        real = run(_REQUEST, is_fake=False)
    is_compared = real.error is None and (real is not tracing.result or not tracing.is_fake)
    return Outcome(
        name=name,
        kind=kind,
        attempt=attempt,
        peak_bytes=peak_bytes,
        real_peak_bytes=real.traces[0].allocated_peak_bytes if is_compared else None,
        fallback=None if tracing.fallback is None else tracing.fallback.removeprefix(f"{FACTORY} raised "),
        readings=len(tracing.result.readings),
    )


def main() -> int:
    """Judge every model, print the tables, and write them into the page if asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.architectures", description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help="only these: transformers/TYPE, timm/MODEL")
    parser.add_argument("--resume", action="store_true", help="keep the outcomes of an earlier command")
    parser.add_argument("--minutes", type=float, help="stop after so long; go on with --resume")
    parser.add_argument("--write", action="store_true", help=f"write the tables into {PAGE.name}")
    arguments = parser.parse_args()
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        print(f"benchmarks: {', '.join(missing)} not installed; make compat installs them", file=sys.stderr)
        return 2
    from .training import list_attempts

    kinds = read_models(MODELS.read_text(encoding="utf-8"))
    unknown = [name for name in arguments.names if name not in kinds]
    if unknown:
        print(f"benchmarks: {', '.join(unknown)}: expected names such as transformers/bert", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / "outcomes.jsonl"
    outcomes: dict[str, Outcome] = {}
    if arguments.resume and kept.exists():
        lines = kept.read_bytes().splitlines()
        outcomes = {it.name: it for line in lines for it in [msgspec.json.decode(line, type=Outcome)]}
    with tempfile.TemporaryDirectory() as folder, kept.open("ab" if arguments.resume else "wb") as file:
        workers = Workers(Path(folder))
        until_s = math.inf if arguments.minutes is None else time.monotonic() + 60 * arguments.minutes
        for name in arguments.names or kinds:
            if name not in outcomes and time.monotonic() < until_s:
                first = next(list_attempts(name))
                outcome = judge(name, kinds[name], first, workers.trace, workers.find_attempt)
                outcomes[name] = outcome
                file.write(msgspec.json.encode(outcome) + b"\n")
                file.flush()
                print(describe(outcome), flush=True)
        workers.stop()
    tables = format_tables(
        [outcomes[name] for name in kinds if name in outcomes],
        {name: version(name) for name in PACKAGES},
    )
    print(tables)
    if arguments.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(replace_table(page, "python -m benchmarks.architectures", tables), encoding="utf-8")
    return 0


def read_models(text: str) -> dict[str, str]:
    """Return the kinds of the models that a list names, by `package/name`."""
    kinds: dict[str, str] = {}
    kind = ""
    for line in text.splitlines():
        if line.startswith("["):
            kind = line.strip("[]")
        elif not line.startswith("#"):
            package = "timm" if kind == "timm" else "transformers"
            kinds |= {f"{package}/{name}": kind for name in line.split()}
    return kinds


def describe(outcome: Outcome) -> str:
    """Return an outcome in a line."""
    if outcome.left_out is not None:
        return f"{outcome.name}: left out: {shorten(outcome.left_out)}"
    if outcome.stopped is not None:
        return f"{outcome.name}: stopped: {shorten(outcome.stopped)}"
    how = f" with storage: {shorten(outcome.fallback)}" if outcome.fallback else ""
    return f"{outcome.name} ({', '.join(outcome.attempt)}): estimated{how}, {outcome.comparison}"


if __name__ == "__main__":
    sys.exit(main())
