"""`make compat`: run every job in every way, compare with the committed table, and write the new one.

python -m benchmarks.compat PYTHON EXAMPLES [JOB...] [--write] [--resume]
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from vramscope.engine.wire.endpoints import is_hub_alive

from .catalogue import JOBS
from .running import Job, Outcome, Suite, Way
from .table import describe, is_worse, read_cells, write_page

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
FOLDER = ROOT / "build" / "compat"
AGENT_WITHIN_S = 60


def main() -> int:
    """Return 1 if a job got worse than the committed table."""
    parser = argparse.ArgumentParser(prog="make compat", description=__doc__)
    parser.add_argument("python", type=Path, help="interpreter of the environment with the packages")
    parser.add_argument("examples", type=Path, help="folder of PyTorch's examples")
    parser.add_argument(
        "names", metavar="JOB", nargs="*", help="only these jobs; with --write their rows alone are new"
    )
    parser.add_argument("--ways", default=",".join(Way), help="only these ways, separated by commas")
    parser.add_argument("--write", action="store_true", help="write the page even if a job got worse")
    parser.add_argument("--resume", action="store_true", help="keep the outcomes of an earlier command")
    parser.add_argument("--parallel", type=int, default=2, help="runs at a time")
    arguments = parser.parse_intermixed_args()
    jobs = [job for job in JOBS if not arguments.names or job.name in arguments.names]
    ways = [Way(word) for word in arguments.ways.split(",")]
    is_whole = not arguments.names and ways == list(Way)
    FOLDER.mkdir(parents=True, exist_ok=True)
    begun_s = time.monotonic()
    # Not below the folder of the logs: the path of a socket is short.
    with tempfile.TemporaryDirectory() as runtime_dir:
        agent = _start_agent(Path(runtime_dir))
        try:
            suite = Suite(
                arguments.python.absolute(), FOLDER, Path(runtime_dir), arguments.examples.absolute()
            )
            outcomes = _run_all(suite, jobs, ways, arguments)
        finally:
            agent.terminate()
            agent.wait(30)
    before = read_cells(PAGE.read_text(encoding="utf-8"))
    worse = []
    for (name, way), _ in outcomes.items():
        cell = describe(next(job for job in jobs if job.name == name), way, outcomes)
        if is_worse(cell, before.get((name, way), "")):
            worse.append(f"{name} {way}: {cell}, was {before[name, way]}")
    minutes = (time.monotonic() - begun_s) / 60
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_minutes = (used.ru_utime + used.ru_stime) / 60
    print(
        f"{len(outcomes)} runs of {len(jobs)} jobs in {minutes:.1f} min ({cpu_minutes:.1f} min of CPU); "
        f"logs in {FOLDER.relative_to(ROOT)}"
    )
    for line in worse:
        print(f"worse: {line}", file=sys.stderr)
    if arguments.write or (is_whole and not worse):
        packages = list(dict.fromkeys(["torch", *(name for job in JOBS for name in job.packages)]))
        page = write_page(PAGE.read_text(encoding="utf-8"), JOBS, outcomes, suite.list_versions(packages))
        PAGE.write_text(page, encoding="utf-8")
    return 1 if worse else 0


def _start_agent(runtime_dir: Path) -> "subprocess.Popen[bytes]":
    """Start the agent of all runs; once it serves, no run starts one that ends before the next run."""
    command = [sys.executable, "-P", "-m", "vramscope", "agent", "--runtime-dir", str(runtime_dir)]
    agent = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline_s = time.monotonic() + AGENT_WITHIN_S
    while not is_hub_alive(runtime_dir):
        if agent.poll() is not None or time.monotonic() > deadline_s:
            agent.kill()
            raise SystemExit(f"no agent serves {runtime_dir} within {AGENT_WITHIN_S} s")
        time.sleep(0.05)
    return agent


def _run_all(
    suite: Suite, jobs: list[Job], ways: list[Way], arguments: argparse.Namespace
) -> dict[tuple[str, Way], Outcome]:
    todo = [(job, way) for job in jobs for way in ways if way is not Way.FACTORY or job.has_factory]
    outcomes: dict[tuple[str, Way], Outcome] = {}

    def run(task: tuple[Job, Way]) -> Outcome:
        kept = FOLDER / f"{task[0].name}.{task[1].strip('-')}.json"
        if arguments.resume and kept.exists():
            return msgspec.json.decode(kept.read_bytes(), type=Outcome)
        outcome = suite.run(*task)
        kept.write_bytes(msgspec.json.encode(outcome))
        return outcome

    with ThreadPoolExecutor(arguments.parallel) as pool:
        runs = pool.map(run, todo)
        for (job, way), outcome in zip(todo, runs, strict=True):
            outcomes[job.name, way] = outcome
            cell = describe(job, way, outcomes)
            why = f": {outcome.failure}" if outcome.failure else ""
            print(f"{outcome.seconds:6.1f} s  {job.name} {way}  {cell}{why}", flush=True)
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
