"""Faults with the real timers: `python -m benchmarks.faults` prints a table; takes ten minutes.

Where network namespaces can be made (root on Linux), the agent runs in one of its own, and the link to it is
cut too; elsewhere everything is on loopback.
"""

import argparse
import os
import subprocess
import sys

from .cases import CASES
from .site import INSIDE, open_site
from .trial import Row

HEAD = ("fault", "lost after", "back after", "missing", "other viewer", "what the viewer said")


def main() -> None:
    """Try everything and print a row each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"of {', '.join(CASES)}; all")
    options = parser.parse_args()
    unknown = [name for name in options.faults if name not in CASES]
    if unknown:
        parser.error(f"no fault: {', '.join(unknown)}")
    can_unshare = os.geteuid() == 0 and subprocess.run(["unshare", "-n", "true"], check=False).returncode == 0
    if INSIDE not in os.environ and can_unshare:
        command = ["unshare", "-n", sys.executable, "-m", "benchmarks.faults", *sys.argv[1:]]
        os.execvpe(command[0], command, {**os.environ, INSIDE: "1"})  # noqa: S606 - ourselves
    where = "in a network namespace" if INSIDE in os.environ else "on loopback"
    print(f"an agent {where}, {options.devices} pretend devices at 1 s, keys, {os.cpu_count()} cores")
    print(format_cells(HEAD), flush=True)
    with open_site(options.devices) as site:
        for name in options.faults or CASES:
            for row in CASES[name](site):
                print(format_cells(describe(row)), flush=True)


def describe(row: Row) -> tuple[str, ...]:
    """Return a row as cells."""
    return (
        row.fault,
        "never" if row.noticed_s is None else f"{row.noticed_s:.1f} s",
        "—" if row.recovered_s is None else f"{row.recovered_s:.1f} s",
        str(row.missing),
        row.harm or "—",
        row.said,
    )


def format_cells(cells: tuple[str, ...]) -> str:
    """Return a line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
