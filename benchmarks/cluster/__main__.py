"""Show a fleet that speaks the real wire, and print what the viewer costs: `python -m benchmarks.cluster`.

The real program in a terminal of 200x50. Eight nodes are real agents on pretend devices, eight are whole hubs
with an hour of history, and the viewer follows the first of them in full; the others are publishers that
speak the wire, with a port and keys each, a few processes for all of them, whose CPU is nobody's. All on
loopback.
"""

import argparse
import os
import signal
import sys
from statistics import median
from typing import get_args

from ..measure.tables import format_table
from .fleet_run import COLUMNS, ROWS, FleetFigures, FleetPlan, measure_fleet
from .scripted import Kind

NODES_A_PLAYER = 256
BUDGET = "budget: 30 % of a core, 250 MiB, p99 500 ms, nothing lost, 20 kB/s"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--nodes", type=int, help="(128 without relays, then 1024 behind 8)")
    parser.add_argument("--real", type=int, default=8, help="agents on pretend devices (8)")
    parser.add_argument("--relays", type=int, default=0, help="between the viewer and the nodes (0)")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--past", type=int, default=3600, metavar="SECONDS", help="that eight nodes remember")
    parser.add_argument("--kinds", nargs="+", choices=get_args(Kind), default=get_args(Kind))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # nothing is left running
    sizes = [(128, 0), (1024, 8)] if options.nodes is None else [(options.nodes, options.relays)]
    for nodes, relays in sizes:
        players = max(2, nodes // NODES_A_PLAYER)
        plans = [
            FleetPlan(nodes, options.real, players, kind, options.seconds, past_s=options.past, relays=relays)
            for kind in options.kinds
        ]
        print(format_figures([measure_fleet(plan) for plan in plans]), end="\n\n", flush=True)


def format_figures(found: list[FleetFigures]) -> str:
    """Return the table of what viewers cost."""
    rows = [
        ["CPU of the viewer, % of a core", *(f"{it.cpu_percent:.1f}" for it in found)],
        ["RSS, MiB: median, most", *(f"{median(it.rss_mib):.0f}, {max(it.rss_mib):.0f}" for it in found)],
        ["RSS, MiB: first, last", *(f"{it.rss_mib[0]:.1f}, {it.rss_mib[-1]:.1f}" for it in found)],
        ["sample to screen, ms: p50, p99, most", *(_format_latency(it) for it in found)],
        ["samples whose cell was seen", *(f"{len(it.seen.latencies_s):,}" for it in found)],
        ["overtaken by the next before drawn", *(f"{it.seen.overtaken:,}" for it in found)],
        ["samples lost", *(f"{it.lost:,}" for it in found)],
        ["nodes live in the end", *(f"{it.live:,} of {it.plan.nodes:,}" for it in found)],
        ["frames/s", *(f"{it.frames_per_s:.1f}" for it in found)],
        ["bytes/s to the terminal", *(f"{it.bytes_per_s:,.0f}" for it in found)],
        ["CPU of a real agent's hub, %", *(_format_agents(it) for it in found)],
        ["CPU of a relay, %, RSS of the largest, MiB", *(_format_relays(it) for it in found)],
        ["load of the machine", *(f"{it.load:.2f}" for it in found)],
    ]
    plan = found[0].plan
    title = (
        f"{8 * plan.nodes:,} devices on {plan.nodes:,} nodes ({plan.real} real), {plan.relays} relays, 1 Hz, "
        f"{COLUMNS}x{ROWS}, {plan.seconds:.0f} s, {os.cpu_count()} cores\n{BUDGET}"
    )
    return format_table(title, ["memory", *(it.plan.kind for it in found)], rows)


def _format_latency(it: FleetFigures) -> str:
    latencies = it.seen.latencies_s
    if not latencies:
        return "—"
    places = (len(latencies) // 2, int(len(latencies) * 0.99), len(latencies) - 1)
    return ", ".join(f"{1000 * latencies[place]:.0f}" for place in places)


def _format_relays(it: FleetFigures) -> str:
    if it.relays_cpu_percent is None or it.relays_rss_mib is None:
        return "—"
    return f"{it.relays_cpu_percent:.1f}, {it.relays_rss_mib:.0f}"


def _format_agents(it: FleetFigures) -> str:
    return "—" if it.agents_cpu_percent is None else f"{it.agents_cpu_percent:.2f}"


if __name__ == "__main__":
    main()
