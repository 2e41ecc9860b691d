"""A sweep of 4,096 layouts from its folders to the figure: seconds of a fresh process.

The traces are made up in the shape of the tracker's, with a sample every tenth of a second for a minute.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .budgets import Budget
from .measure.tables import format_number, format_table

SIDE = 64
"""TP and PP go from 1 to this."""
SAMPLES = 600
LIMIT_S = 2.0
_CAPACITY_MIB = 80 * 1024
_PICK = (
    "import json, sys, time\n"
    "from pathlib import Path\n"
    "from vramscope.sweeps.loading import load_sweep\n"
    "def now():\n"
    "    return time.perf_counter(), time.process_time()\n"
    "begun = now()\n"
    "loaded = load_sweep(Path(sys.argv[1]), Path(sys.argv[2]), 80.0)\n"
    "read = now()\n"
    "import matplotlib.figure, matplotlib.backends.backend_pdf, matplotlib.backends.backend_svg\n"
    "from vramscope.exporters.figures.sweep import draw_sweep\n"
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


def measure_sweep(runs: int) -> SweepCost:
    """Return what a sweep costs from its folders to its figure.

    Args:
        runs: Fresh processes of which the one with the least CPU time counts.
    """
    with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
        memory_dir, log_dir = write_sweep(Path(folder))
        command = [sys.executable, "-c", _PICK, str(memory_dir), str(log_dir)]
        costs = []
        for _ in range(runs):
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            costs.append(SweepCost(*json.loads(done.stdout)))
    return min(costs, key=lambda cost: cost.index_cpu_s + cost.figure_cpu_s)


def judge_sweep(cost: SweepCost) -> list[Budget]:
    """Return the budgets of index and figure."""
    return [
        Budget(f"index of a sweep of {cost.layouts:,} layouts: CPU", cost.index_cpu_s, LIMIT_S, "s"),
        Budget(f"figure of {cost.layouts:,} layouts as PDF: CPU", cost.figure_cpu_s, LIMIT_S, "s"),
    ]


def format_sweep(cost: SweepCost) -> str:
    """Return the table of what a sweep cost."""
    head = ["", "wall s", "CPU s"]
    rows = [
        ["folders to findings", format_number(cost.index_s, 2), format_number(cost.index_cpu_s, 2)],
        ["drawing and PDF", format_number(cost.figure_s, 2), format_number(cost.figure_cpu_s, 2)],
        ["PNG at 600 dpi, SVG", format_number(cost.others_s, 2), format_number(cost.others_cpu_s, 2)],
    ]
    return format_table(f"a sweep of {cost.layouts:,} layouts", head, rows)


def as_sweep_figures(cost: SweepCost) -> Mapping[str, object]:
    """Return the cost as it stands in the JSON."""
    return asdict(cost)


def write_sweep(folder: Path) -> tuple[Path, Path]:
    """Write a sweep in which a third of the layouts failed; return the folders of traces and of logs."""
    memory_dir, log_dir = folder / "traces", folder / "log"
    memory_dir.mkdir()
    log_dir.mkdir()
    success, failed = ["Successful configurations:"], ["Failed configurations:"]
    for tp in range(1, SIDE + 1):
        for pp in range(1, SIDE + 1):
            line = f"Config {tp * SIDE + pp}: TP={tp}, PP={pp}, DP=8, NUM_MICBATCH=8, GLOBAL_BATCH_SIZE=64"
            if tp * pp < SIDE * SIDE // 10:
                failed.append(f"{line} - FAILED (status: 1)")
                continue
            peak_mib = _CAPACITY_MIB * SIDE * SIDE / 10 / (tp * pp)
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
