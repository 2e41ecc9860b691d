"""Trees of several sweeps: the original beside a smaller one of another model."""

from pathlib import Path

from .original import OUT_OF_MEMORY, trace_text, write_original

SMALL = "175B_1024gpus"
SMALL_LOG = "CONFIG_SWEEP_WS1024_175_20250801_010101"


def name_small(tp: int, pp: int) -> str:
    """Return the name of a trace of the smaller sweep."""
    dp = 1024 // (tp * pp)
    return f"memory_trace_rank0_wd1024_tp{tp}_pp{pp}_dp{dp}_exp1_expNumNone_l96_mbs1_nmbs8_gbs64.json"


def estimate_small(tp: int, pp: int) -> float:
    """Return the GiB that a layout of the smaller sweep takes."""
    return 1200 / (tp * pp) + 24 / tp


def write_tree(root: Path) -> Path:
    """Write two sweeps below a folder and return it."""
    write_original(root)
    traces, log = root / "memory_traces_scaling" / SMALL, root / "log" / SMALL_LOG
    traces.mkdir()
    log.mkdir()
    success, failed = ["Successful configurations:\n"], ["Failed configurations:\n"]
    for tp in (1, 2, 4, 8):
        for pp in (4, 8, 16):
            dp, gib = 1024 // (tp * pp), estimate_small(tp, pp)
            line = f"Config 1: TP={tp}, PP={pp}, DP={dp}, NUM_MICBATCH=8, GLOBAL_BATCH_SIZE=64"
            if gib > 80:
                failed.append(f"{line} - FAILED (status: 1)\n")
                (log / f"TP{tp}_PP{pp}_DP{dp}").mkdir()
                (log / f"TP{tp}_PP{pp}_DP{dp}" / "global_rank_0.log").write_text(OUT_OF_MEMORY)
                continue
            success.append(f"{line} - SUCCESS\n")
            (traces / name_small(tp, pp)).write_text(trace_text(gib * 1024, (0.9 * gib + 2) * 1024))
    (log / "successful_configs.log").write_text("".join(success))
    (log / "failed_configs.log").write_text("".join(failed))
    return root
