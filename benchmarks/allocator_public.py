"""How far the allocator model is from traces of real cards: python -m benchmarks.allocator_public FILE…

Each file is a snapshot with the history of allocations (`torch.cuda.memory._dump_snapshot`). The history is
replayed with the settings it was recorded with; compared is the most that was reserved. Such files of others
are not in this repository; docs/allocator-model.md has the results and where the files are from.
"""

import argparse
from pathlib import Path

from vramscope.analyzers.snapshot_summary.settings_advice import advise_settings
from vramscope.engine.files.memory_snapshot.reader import read_memory_snapshot
from vramscope.engine.units import format_bytes

from .measure.tables import format_table


def compare_file(path: Path) -> list[list[str]]:
    """Return a line for each device of a snapshot that has a trace."""
    snapshot = read_memory_snapshot(path)
    lines = []
    for trace in snapshot.traces:
        advice = advise_settings(snapshot, trace.device)
        recorded = advice.recorded_peak_bytes
        model = advice.peak_reserved_bytes
        if recorded is None or model is None:
            lines.append([path.stem, "", "", "", "", "", advice.reason or ""])
            continue
        lines.append(
            [
                path.stem,
                f"{advice.events:,}",
                format_bytes(advice.before_bytes or 0),
                format_bytes(recorded),
                format_bytes(model),
                f"{(model - recorded) / recorded:+.2%}",
                str(advice.flushes),
            ]
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    head = ["trace", "events", "live before", "recorded", "model", "error", "flushes"]
    lines = [line for path in options.files for line in compare_file(path)]
    print(format_table("Most that was reserved", head, lines))


if __name__ == "__main__":
    main()
