"""Measure everything, print tables, write JSON: `make bench`, or python -m benchmarks --help."""

import argparse
import datetime
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from .agent import measure_agent
from .allocator_model import (
    as_allocator_figures,
    format_allocator_model,
    judge_allocator_model,
    measure_allocator_model,
)
from .attach import format_attach, judge_attach, measure_attachments, measure_launch, measure_stress
from .budgets import (
    Budget,
    as_records,
    format_budgets,
    judge_agent,
    judge_latencies,
    judge_live_view,
    judge_start_up,
)
from .imports import format_imports, measure_imports
from .joint_plan import as_joint_figures, format_joint_plan, judge_joint_plan, measure_joint_plan
from .latency import as_seconds, format_latencies, measure_latencies
from .live_view import Steadiness, format_live_views, measure_live_views
from .module_profiler import as_profiler_figures, format_module_profiler, measure_module_profiler
from .partition import as_partition_figures, format_partition, judge_partition, measure_partition
from .probe_cost import format_probe_cost, judge_probe_cost, measure_probe_cost
from .programs import find_nvitop, find_programs
from .recording import format_recording, judge_recording, measure_recording
from .replay import format_replay, measure_replay
from .series_input import SAMPLES, as_series_figures, format_series, judge_series, measure_series
from .simulated_device import format_simulation, judge_simulation, measure_simulation
from .snapshot_reader import (
    as_figures,
    format_snapshot_reader,
    judge_snapshot_reader,
    measure_snapshot_reader,
)
from .start_up import format_start_up, measure_start_up
from .step_estimate import (
    as_estimate_figures,
    format_step_estimate,
    judge_step_estimate,
    measure_step_estimate,
)
from .sweep import as_sweep_figures, format_sweep, judge_sweep, measure_sweep
from .time_cursor import as_cursor_figures, format_time_cursor, judge_time_cursor, measure_time_cursor
from .trace_import import MEGABYTES, format_import, judge_import, measure_import

RESULTS = Path(__file__).parent / "results"
PARTS = (
    "live",
    "agent",
    "start",
    "latency",
    "imports",
    "attach",
    "snapshot",
    "cursor",
    "series",
    "allocator",
    "simulation",
    "estimate",
    "partition",
    "joint-plan",
    "sweep",
    "module-profiler",
)


class Report:
    """What was measured so far: printed at once, written at the end."""

    def __init__(self) -> None:
        self.results: dict[str, object] = {"machine": describe_machine()}
        self.budgets: list[Budget] = []

    def add(self, name: str, table: str, figures: object, budgets: list[Budget] | None = None) -> None:
        """Print a table and keep its figures and budgets."""
        print(f"{table}\n", flush=True)
        self.results[name] = figures
        self.budgets += budgets or []

    def write(self) -> Path:
        """Write the JSON and return its path."""
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%SZ}.json"
        content = {**self.results, "load_at_end": os.getloadavg(), "budgets": as_records(self.budgets)}
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return path


def main() -> int:
    """Run the parts that were asked for; return 2 where what they need is missing."""
    options = parse_options()
    for program in ("cc", "tmux"):
        if shutil.which(program) is None:
            print(f"benchmarks: {program} is not installed", file=sys.stderr)
            return 2
    if find_nvitop() is None:
        print(
            "benchmarks: no nvitop here (make bench installs it): measuring without a peer",
            file=sys.stderr,
        )
    report = Report()
    print(f"{describe_machine()}\n", flush=True)
    for name, measure in MEASURES.items():
        if name in options.parts:
            measure(report, options)
    if report.budgets:
        print(f"{format_budgets(report.budgets)}\n")
    print(f"written to {report.write()}")
    return 0


def parse_options() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}; all")
    parser.add_argument("--devices", type=int, nargs="+", default=[8, 64], help="of the live view (8 64)")
    parser.add_argument("--runs", type=int, default=3, help="runs; the median counts (3)")
    parser.add_argument("--samples", type=int, default=SAMPLES, help=f"of each series ({SAMPLES:,})")
    parser.add_argument(
        "--megabytes", type=float, default=MEGABYTES, help=f"of traces to import ({MEGABYTES:g})"
    )
    parser.add_argument("--window", type=float, default=20.0, help="seconds of one steady window (20)")
    return parser.parse_args()


def describe_machine() -> str:
    """Return what was measured on, and how busy it was with other things."""
    load = os.getloadavg()[0]
    python = platform.python_version()
    return (
        f"{os.cpu_count()} cores, Python {python}, {platform.system()} {platform.release()}, load {load:.2f}"
    )


def add_live_views(report: Report, options: argparse.Namespace) -> None:
    """Measure live views left alone."""
    results: list[Steadiness] = []
    for devices in options.devices:
        results += measure_live_views(find_programs(), devices, options.runs, options.window)
    eight = {result.program: result for result in results if result.devices == 8}
    budgets = judge_live_view(eight["vramscope"], eight.get("nvitop")) if eight else []
    report.add("live_view", format_live_views(results), [asdict(result) for result in results], budgets)


def add_agent(report: Report, options: argparse.Namespace) -> None:
    """Measure the agent alone, and a bare loop next to it."""
    results = measure_agent(8, options.runs, options.window)
    table, figures = format_live_views(results), [asdict(result) for result in results]
    report.add("agent", table, figures, judge_agent(*results))


def add_attach(report: Report, options: argparse.Namespace) -> None:
    """Measure attaching to a job, and starting one."""
    attachments, stress = measure_attachments(options.runs), measure_stress()
    launch = measure_launch(options.runs)
    figures = {"runs": [asdict(it) for it in attachments], "stress": stress, "launch": asdict(launch)}
    budgets = judge_attach(attachments, stress, launch)
    report.add("attach", format_attach(attachments, stress, launch), figures, budgets)


def add_probe(report: Report, options: argparse.Namespace) -> None:
    """Measure what the probe costs the training."""
    cost = measure_probe_cost(3 * options.window, 10 * options.runs)
    report.add("probe", format_probe_cost(cost), asdict(cost), judge_probe_cost(cost))


def add_start_up(report: Report, options: argparse.Namespace) -> None:
    """Measure what starts, and what prints and ends."""
    medians = measure_start_up(8, 2 * options.runs + 1)
    report.add("start_up", format_start_up(medians), medians, judge_start_up(medians))


def add_latencies(report: Report, options: argparse.Namespace) -> None:
    """Measure keys and quitting."""
    latencies = measure_latencies(find_programs(), 8, options.runs)
    report.add("latency", format_latencies(latencies), as_seconds(latencies), judge_latencies(latencies))


def add_simulation(report: Report, options: argparse.Namespace) -> None:
    """Measure a step on the simulated device against the plain step."""
    cost = measure_simulation(4 * options.runs)
    report.add("simulated_device", format_simulation(cost), asdict(cost), judge_simulation(cost))


def add_step_estimate(report: Report, options: argparse.Namespace) -> None:
    """Measure estimates of a training step, and PyTorch's own."""
    del options
    runs = measure_step_estimate()
    report.add(
        "step_estimate", format_step_estimate(runs), as_estimate_figures(runs), judge_step_estimate(runs)
    )


def add_imports(report: Report, options: argparse.Namespace) -> None:
    """Measure imports."""
    measured = measure_imports(2 * options.runs + 1)
    report.add("imports", format_imports(measured), measured)


def add_allocator_model(report: Report, options: argparse.Namespace) -> None:
    """Measure the allocator model."""
    speeds = measure_allocator_model(2 * options.runs + 1)
    budgets = judge_allocator_model(speeds)
    report.add("allocator_model", format_allocator_model(speeds), as_allocator_figures(speeds), budgets)


def add_series(report: Report, options: argparse.Namespace) -> None:
    """Measure reports about long series."""
    measured = measure_series(options.samples, options.runs)
    report.add("series", format_series(measured), as_series_figures(measured), judge_series(measured))


def add_recording(report: Report, options: argparse.Namespace) -> None:
    """Measure writing, opening and seeking a recording."""
    cost = measure_recording(6 * options.window)
    report.add("recording", format_recording(cost), asdict(cost), judge_recording(cost))


def add_replay(report: Report, options: argparse.Namespace) -> None:
    """Measure moving in a replay."""
    cost = measure_replay(3 * options.runs)
    report.add("replay", format_replay(cost), asdict(cost))


def add_partition(report: Report, options: argparse.Namespace) -> None:
    """Measure exact partitions."""
    times, quality = measure_partition(2 * options.runs + 1)
    figures = as_partition_figures(times, quality)
    report.add("partition", format_partition(times, quality), figures, judge_partition(times))


def add_joint_plan(report: Report, options: argparse.Namespace) -> None:
    """Measure the joint search."""
    times = measure_joint_plan(options.runs)
    report.add("joint_plan", format_joint_plan(times), as_joint_figures(times), judge_joint_plan(times))


def add_sweep(report: Report, options: argparse.Namespace) -> None:
    """Measure a sweep from its folders to its figure."""
    cost = measure_sweep(options.runs)
    report.add("sweep", format_sweep(cost), as_sweep_figures(cost), judge_sweep(cost))


def add_module_profiler(report: Report, options: argparse.Namespace) -> None:
    """Measure what memory by module costs a training step."""
    cost = measure_module_profiler(options.runs)
    report.add("module_profiler", format_module_profiler(cost), as_profiler_figures(cost))


def add_import(report: Report, options: argparse.Namespace) -> None:
    """Measure importing memory traces."""
    runs = measure_import(options.megabytes, options.runs)
    report.add("trace_import", format_import(runs), [asdict(run) for run in runs], judge_import(runs))


def add_snapshot_reader(report: Report, options: argparse.Namespace) -> None:
    """Measure reading memory snapshots."""
    readings = measure_snapshot_reader(options.runs)
    budgets = judge_snapshot_reader(readings)
    report.add("snapshot_reader", format_snapshot_reader(readings), as_figures(readings), budgets)


def add_time_cursor(report: Report, options: argparse.Namespace) -> None:
    """Measure the cursor in time over a long trace."""
    cost = measure_time_cursor(options.runs)
    report.add("time_cursor", format_time_cursor(cost), as_cursor_figures(cost), judge_time_cursor(cost))


MEASURES: dict[str, Callable[[Report, argparse.Namespace], None]] = {
    "imports": add_imports,
    "start": add_start_up,
    "latency": add_latencies,
    "live": add_live_views,
    "agent": add_agent,
    "probe": add_probe,
    "attach": add_attach,
    "snapshot": add_snapshot_reader,
    "cursor": add_time_cursor,
    "series": add_series,
    "allocator": add_allocator_model,
    "simulation": add_simulation,
    "recording": add_recording,
    "replay": add_replay,
    "import": add_import,
    "estimate": add_step_estimate,
    "partition": add_partition,
    "joint-plan": add_joint_plan,
    "sweep": add_sweep,
    "module-profiler": add_module_profiler,
}
"""What measures each part; those that are not in `PARTS` are measured only where they are named."""


if __name__ == "__main__":
    sys.exit(main())
