"""Score our verdicts and the rules of others: `make bench-verdicts`, or -m benchmarks.verdicts --help."""

import argparse
import datetime
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from .__main__ import RESULTS, describe_machine
from .driver_verdicts import (
    WatchedTrend,
    as_trend_results,
    format_trends,
    judge_trends,
    list_driver_tasks,
    list_trend_errors,
    name_driver_family,
    watch_driver_one,
)
from .serving_scenes import Split, list_serving_tasks, name_serving_family
from .serving_verdicts import Watched as WatchedServer
from .serving_verdicts import (
    as_serving_results,
    format_serving,
    judge_serving,
    list_serving_errors,
    watch_serving_one,
)
from .verdict_detectors import OURS
from .verdict_report import (
    as_results,
    format_errors,
    format_families,
    format_misses,
    format_reliability,
    format_scores,
    format_shapes,
    format_targets,
    replace_misses,
)
from .verdict_runs import Family, make_run
from .verdict_runs.measured import TRACES, find_measured_runs
from .verdict_runs.recorded import find_recordings
from .verdict_runs.scored import SCORED
from .verdict_runs.tuning import TUNING
from .verdict_scores import score
from .verdict_speed import Speed, measure_speed
from .verdict_targets import judge_verdicts
from .verdict_watch import Labelled, Watched, watch

PAGE = Path(__file__).parent.parent / "docs" / "verdict-benchmark.md"
SPLITS: dict[str, tuple[Family, ...]] = {"scored": SCORED, "tuning": TUNING}
QUICK = 13
"""A quick look takes each so-manieth run."""
RUNS_SHARE = 0.75
"""Of the time of `--within`: what all runs may take; the rest is for those that the driver alone sees."""
SERVING_SPLITS: tuple[tuple[Split, ...], tuple[Split, ...]] = (("sealed",), ("tuning", "scored", "fresh"))
"""Of servers: what is scored, and what is tuned on."""
Task = tuple[str, int, int]
"""Split, number of the family, seed."""
OneTask = TypeVar("OneTask")
OneRun = TypeVar("OneRun")


def main() -> int:
    """Run the benchmark and return 0; 1 where an analyzer failed under way."""
    options = parse_options()
    started_s = time.monotonic()
    print(f"{describe_machine()}\n", flush=True)
    families = SPLITS[options.split]
    tasks = [(options.split, at, seed) for at, family in enumerate(families) for seed in range(family.seeds)]
    if options.family:
        tasks = [task for task in tasks if families[task[1]].name in options.family]
    of_driver = list_driver_tasks(options.split)
    if options.family:
        of_driver = [task for task in of_driver if name_driver_family(task) in options.family]
    of_servers = list_serving_tasks(*SERVING_SPLITS[options.split == "tuning"])
    if options.family:
        of_servers = [task for task in of_servers if name_serving_family(task) in options.family]
    of_servers = choose_tasks([] if options.driver_only else of_servers, options)
    tasks = choose_tasks([] if options.driver_only else tasks, options)
    of_driver = choose_tasks(of_driver, options)
    watch_run = partial(watch_one, with_others=not options.ours)
    watched = list(watch_all(watch_run, tasks, options.jobs, RUNS_SHARE * options.within))
    within_s = options.within - (time.monotonic() - started_s)
    trends = list(watch_all(watch_driver_one, of_driver, options.jobs, within_s))
    within_s = options.within - (time.monotonic() - started_s)
    servers = list(watch_all(watch_serving_one, of_servers, options.jobs, within_s))
    print(
        f"{len(watched)} of {len(tasks)} runs, {len(trends)} of {len(of_driver)} driver-only runs, "
        f"{len(servers)} of {len(of_servers)} servers\n"
    )
    if trends:
        report_trends(trends, options)
    if servers:
        report_servers(servers, options)
    if not watched:
        return 0
    outside = []
    if not options.family:
        outside = watch_outside(is_scored=options.split == "scored", with_others=not options.ours)
    speed = None if options.family else measure_speed()
    report(watched, outside, trends, servers, speed, options, time.monotonic() - started_s)
    failures = sorted({run.failure for run in (*watched, *outside) if run.failure})
    for failure in failures:
        print(f"verdicts: {failure}", file=sys.stderr)
    return 1 if failures else 0


def parse_options() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdicts", description=__doc__)
    parser.add_argument("--split", choices=SPLITS, default="scored", help="which families (scored)")
    parser.add_argument("--quick", action="store_true", help=f"each {QUICK}th run: about a minute")
    parser.add_argument("--jobs", type=int, default=2, help="processes that watch runs (2)")
    parser.add_argument("--within", type=float, default=float("inf"), help="stop after so many seconds")
    parser.add_argument("--ours", action="store_true", help="without the rules of others: faster")
    parser.add_argument("--family", nargs="+", help="only these families, without JSON")
    parser.add_argument(
        "--driver-only", action="store_true", help="only the trends of used memory, without JSON"
    )
    parser.add_argument("--write", action="store_true", help=f"put the table of every miss into {PAGE.name}")
    parser.add_argument("--errors", action="store_true", help="list each thing that went wrong")
    return parser.parse_args()


def choose_tasks(tasks: Sequence[OneTask], options: argparse.Namespace) -> list[OneTask]:
    """Return the tasks in an order whose every beginning has all families alike; few for a quick look."""
    ordered = [task for start in range(QUICK) for task in tasks[start::QUICK]]
    return ordered[: -(-len(ordered) // QUICK) if options.quick else None]


def watch_all(
    watch_run: Callable[[OneTask], OneRun], tasks: Sequence[OneTask], jobs: int, within_s: float
) -> Iterator[OneRun]:
    """Yield what became of each run, in the order of the tasks; progress goes to stderr.

    Runs that have not begun after so many seconds are left out.
    """
    context, end_s = multiprocessing.get_context("spawn"), time.monotonic() + within_s
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        futures = [pool.submit(watch_run, task) for task in tasks]
        for done, future in enumerate(futures, 1):
            if time.monotonic() > end_s:
                pool.shutdown(wait=False, cancel_futures=True)
            if future.cancelled():
                break
            if done % 20 == 0:
                print(f"{done}/{len(tasks)} runs", file=sys.stderr, flush=True)
            yield future.result()


def watch_one(task: Task, *, with_others: bool) -> Watched:
    """Make one run and watch it."""
    split, family, seed = task
    return watch(make_run(SPLITS[split][family], seed), with_others=with_others)


def watch_outside(*, is_scored: bool, with_others: bool) -> list[Watched]:
    """Watch what was not made up: recordings of a simulated device and measured traces; never to tune on."""
    if not is_scored:
        return []
    measured = find_measured_runs()
    if not measured:
        print(f"verdicts: no measured traces in {TRACES}: left out", file=sys.stderr)
    outside: list[Labelled] = [*find_recordings(), *measured]
    return [watch(run, with_others=with_others) for run in outside]


def report_trends(trends: Sequence[WatchedTrend], options: argparse.Namespace) -> None:
    """Print how often the trend of used memory was right."""
    print(format_trends(trends), end="\n\n")
    if options.errors:
        print("\n".join(("What the trend got wrong", *list_trend_errors(trends))), end="\n\n")
    print(format_targets(judge_trends(trends)), end="\n\n")


def report_servers(servers: Sequence[WatchedServer], options: argparse.Namespace) -> None:
    """Print how often preemptions of simulated servers were forecast."""
    for split in SERVING_SPLITS[options.split == "tuning"]:
        of_split = [run for run in servers if run.split == split]
        if of_split:
            print(format_serving(of_split, split), end="\n\n")
    if options.errors:
        print("\n".join(("What the forecast of preemptions got wrong", *list_serving_errors(servers))), "\n")
    print(format_targets(judge_serving(servers)), end="\n\n")


def report(
    watched: Sequence[Watched],
    outside: Sequence[Watched],
    trends: Sequence[WatchedTrend],
    servers: Sequence[WatchedServer],
    speed: Speed | None,
    options: argparse.Namespace,
    took_s: float,
) -> None:
    """Print all tables and write the JSON."""
    detectors = list(watched[0].claims)
    scores = {name: score(watched, name) for name in detectors}
    of_outside = {name: score(outside, name) for name in detectors}
    targets = judge_verdicts(scores, watched, outside, speed)
    title = f"{options.split} families, {len(watched)} runs{', quick' if options.quick else ''}"
    print(format_scores(title, scores), end="\n\n")
    if outside:
        print(format_scores(f"Recorded and measured, {len(outside)} runs", of_outside), end="\n\n")
    print(format_families([*watched, *outside]), end="\n\n")
    print(format_shapes(watched), end="\n\n")
    print(format_reliability(watched), end="\n\n")
    if options.errors:
        print(format_errors([*watched, *outside], OURS), end="\n\n")
    print(format_targets(targets), end="\n\n")
    if options.family:
        return
    content = {
        "machine": describe_machine(),
        "split": options.split,
        "quick": options.quick,
        "took_s": round(took_s, 1),
        "verdicts": as_results(scores, of_outside, [*watched, *outside], speed),
        "driver_only": as_trend_results(trends),
        "serving": as_serving_results(servers),
        "targets": [*targets, *judge_trends(trends), *judge_serving(servers)],
        "load_at_end": os.getloadavg(),
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%SZ}-verdicts.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"{took_s:.0f} s; written to {path}")
    if options.write:
        page = replace_misses(PAGE.read_text(encoding="utf-8"), format_misses([*watched, *outside]))
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
