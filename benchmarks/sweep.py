"""4,096 layouts from their folders to the figure, in one sweep and in four: seconds of a fresh process.

The traces are made up in the shape of the tracker's, with a sample every tenth of a second for a minute.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from .budgets import Budget
from .measure.tables import format_number, format_table

SIDE = 64
"""TP and PP go from 1 to this."""
SAMPLES = 600
LIMIT_S, KEY_LIMIT_S = 2.0, 0.1
SWEEPS, SMALL_SIDE = 4, 32
"""Sweeps of an index that together have as many layouts."""
_CAPACITY_MIB = 80 * 1024
_ONE = (
    "import json, sys, time\n"
    "from pathlib import Path\n"
    "from vramscope.sweeps import load_sweep\n"
    "def now():\n"
    "    return time.perf_counter(), time.process_time()\n"
    "begun = now()\n"
    "loaded = load_sweep(Path(sys.argv[1]), Path(sys.argv[2]), 80.0)\n"
    "read = now()\n"
    "import matplotlib.figure, matplotlib.backends.backend_pdf, matplotlib.backends.backend_svg\n"
    "from vramscope.exporters.sweep.figure import draw_sweep\n"
    "ready = now()\n"
    "page = draw_sweep(loaded.grid)\n"
    "page.render('pdf')\n"
    "paged = now()\n"
    "page.render('png'), page.render('svg')\n"
    "drawn = now()\n"
    "spans = [(begun, read), (ready, paged), (paged, drawn)]\n"
    "took = [b - a for one, other in spans for a, b in zip(one, other)]\n"
    "print(json.dumps([len(loaded.grid.cells), *took]))\n"
)

_SEVERAL = (
    "import json, sys, time\n"
    "from pathlib import Path\n"
    "from vramscope.sweeps import index_sweeps\n"
    "def now():\n"
    "    return time.perf_counter(), time.process_time()\n"
    "begun = now()\n"
    "index = index_sweeps([Path(sys.argv[1])], 80.0)\n"
    "read = now()\n"
    "import matplotlib.figure, matplotlib.backends.backend_pdf\n"
    "from vramscope.exporters.sweep.figure import draw_multiples\n"
    "ready = now()\n"
    "draw_multiples(index.sweeps).render('pdf')\n"
    "drawn = now()\n"
    "from vramscope.tui.draw.glyphs import UNICODE\n"
    "from vramscope.tui.sweep.lines import Window, draw_lines, prepare_grid\n"
    "from vramscope.sweeps import load_sweep\n"
    "grid = load_sweep(Path(sys.argv[2]), Path(sys.argv[3]), 80.0).grid\n"
    "opening = now()\n"
    "shown = prepare_grid(grid)\n"
    "opened = now()\n"
    "for row in range(20):\n"
    "    draw_lines(shown, Window(0, 0, 44, 24, 1, row, 3), UNICODE)\n"
    "moved = now()\n"
    "spans = [(begun, read), (ready, drawn), (opening, opened), (opened, moved)]\n"
    "took = [b - a for one, other in spans for a, b in zip(one, other)]\n"
    "print(json.dumps([sum(len(it.grid.cells) for it in index.sweeps), *took[:6], took[7] / 20]))\n"
)
"""Reads four sweeps, draws them together; opens the grid of one large sweep and moves its mark."""


@dataclass(frozen=True)
class IndexCost:
    """What an index of several sweeps cost, and the grid of a large one on a screen."""

    layouts: int
    index_s: float
    """Finding, pairing and reading the folders; states and findings."""
    index_cpu_s: float
    figure_s: float
    """Drawing small multiples, and the PDF; matplotlib was loaded before."""
    figure_cpu_s: float
    opened_s: float
    """Preparing the grid of 4,096 cells for a screen."""
    opened_cpu_s: float
    moved_cpu_s: float
    """Drawing the lines of a window of 44 rows and 24 columns again, after a key."""


@dataclass(frozen=True)
class SweepCost:
    """What one sweep cost: the run with the least CPU time."""

    layouts: int
    index_s: float
    """Reading both folders, states and findings."""
    index_cpu_s: float
    figure_s: float
    """Drawing, and the PDF; matplotlib was loaded before."""
    figure_cpu_s: float
    others_s: float
    """PNG at 600 dots per inch, and SVG."""
    others_cpu_s: float
    several: IndexCost
    """Of as many layouts in several sweeps."""


def measure_sweep(runs: int) -> SweepCost:
    """Return what a sweep costs from its folders to its figure.

    Args:
        runs: Fresh processes; the one with the least CPU time counts.
    """
    with tempfile.TemporaryDirectory(prefix="sweep-") as name:
        folder = Path(name)
        one = write_sweep(folder / "one", SIDE)
        for number in range(SWEEPS):
            write_sweep(folder / "several" / f"{number + 1}B", SMALL_SIDE)
        indexes = [IndexCost(*_measure(_SEVERAL, folder / "several", *one)) for _ in range(runs)]
        several = min(indexes, key=lambda cost: cost.index_cpu_s + cost.figure_cpu_s)
        names = [field.name for field in fields(SweepCost)]
        took = [dict(zip(names, _measure(_ONE, *one), strict=False)) for _ in range(runs)]
        costs = [SweepCost(**each, several=several) for each in took]
    return min(costs, key=lambda cost: cost.index_cpu_s + cost.figure_cpu_s)


def _measure(code: str, *folders: Path) -> list[Any]:
    """Return what a fresh process prints."""
    command = [sys.executable, "-c", code, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def judge_sweep(cost: SweepCost) -> list[Budget]:
    """Return the budgets of index and figure."""
    return [
        Budget(f"index of a sweep of {cost.layouts:,} layouts: CPU", cost.index_cpu_s, LIMIT_S, "s"),
        Budget(f"figure of {cost.layouts:,} layouts as PDF: CPU", cost.figure_cpu_s, LIMIT_S, "s"),
        Budget(
            f"index of {SWEEPS} sweeps, {cost.several.layouts:,} layouts: CPU",
            cost.several.index_cpu_s,
            LIMIT_S,
            "s",
        ),
        Budget(f"small multiples of {SWEEPS} sweeps as PDF: CPU", cost.several.figure_cpu_s, LIMIT_S, "s"),
        Budget("key to lines of a grid of 4,096 cells: CPU", cost.several.moved_cpu_s, KEY_LIMIT_S, "s"),
    ]


def format_sweep(cost: SweepCost) -> str:
    """Return the table of what a sweep cost."""
    head = ["", "wall s", "CPU s"]
    rows = [
        ["folders to findings", format_number(cost.index_s, 2), format_number(cost.index_cpu_s, 2)],
        ["drawing and PDF", format_number(cost.figure_s, 2), format_number(cost.figure_cpu_s, 2)],
        ["PNG at 600 dpi, SVG", format_number(cost.others_s, 2), format_number(cost.others_cpu_s, 2)],
    ]
    several = cost.several
    rows += [
        [f"{SWEEPS} sweeps: index", format_number(several.index_s, 2), format_number(several.index_cpu_s, 2)],
        ["small multiples, PDF", format_number(several.figure_s, 2), format_number(several.figure_cpu_s, 2)],
        ["grid for a screen", format_number(several.opened_s, 3), format_number(several.opened_cpu_s, 3)],
        ["its lines, after a key", "", format_number(several.moved_cpu_s, 4)],
    ]
    return format_table(f"a sweep of {cost.layouts:,} layouts", head, rows)


def as_sweep_figures(cost: SweepCost) -> Mapping[str, object]:
    """Return the cost as it stands in the JSON."""
    return asdict(cost)


def write_sweep(folder: Path, side: int) -> tuple[Path, Path]:
    """Write a sweep in which a third of the layouts failed; return the folders of traces and of logs.

    Args:
        folder: To be made.
        side: TP and PP go from 1 to this.
    """
    memory_dir, log_dir = folder / "traces", folder / "log"
    memory_dir.mkdir(parents=True)
    log_dir.mkdir()
    success, failed = ["Successful configurations:"], ["Failed configurations:"]
    for tp in range(1, side + 1):
        for pp in range(1, side + 1):
            line = f"Config {tp * side + pp}: TP={tp}, PP={pp}, DP=8, NUM_MICBATCH=8, GLOBAL_BATCH_SIZE=64"
            if tp * pp < side * side // 10:
                failed.append(f"{line} - FAILED (status: 1)")
                continue
            peak_mib = _CAPACITY_MIB * side * side / 10 / (tp * pp)
            name = (
                f"memory_trace_rank0_wd{8 * tp * pp}_tp{tp}_pp{pp}_dp8_exp1_expNumNone_l96_mbs1_nmbs8_gbs64"
            )
            (memory_dir / f"{name}_ts{tp}.json").write_text(_write_trace(peak_mib), encoding="utf-8")
            success.append(f"{line} - SUCCESS")
    (log_dir / "successful_configs.log").write_text("\n".join(success), encoding="utf-8")
    (log_dir / "failed_configs.log").write_text("\n".join(failed), encoding="utf-8")
    return memory_dir, log_dir


def _write_trace(peak_mib: float) -> str:
    samples: Sequence[Mapping[str, float]] = [
        {
            "timestamp_s": round(0.1 * at, 4),
            "reserved_memory_MB": peak_mib,
            "allocated_memory_MB": peak_mib * at / SAMPLES,
        }
        for at in range(SAMPLES)
    ]
    iteration = {"samples": samples, "peak_allocated_MB": peak_mib, "theoretical_memory_MB": 1.3 * peak_mib}
    return json.dumps({"0": iteration}, indent=4)
