"""The sweep of the original heat map, in the shape of its files: 24 layouts of a 485B model on 8,192 GPUs.

The six measured and the six theoretical values are the published ones. The logs of the 18 that failed are
made up in the shape of torchrun's: those of TP 1 ran out of memory, the others tell no cause.
"""

import json
from pathlib import Path

WORLD_SIZE = 8192
LAYERS = 96
MEASURED_GIB = {(2, 64): 57.3, (4, 32): 76.0, (4, 64): 29.1, (8, 16): 73.6, (8, 32): 38.4, (8, 64): 15.0}
THEORY_MIB = {
    (2, 64): 140204.06,
    (4, 32): 102182.44,
    (4, 64): 70102.03,
    (8, 16): 83411.72,
    (8, 32): 51091.22,
    (8, 64): 35051.02,
}
LAYOUTS = [(tp, pp) for tp in (1, 2, 4, 8) for pp in (2, 4, 8, 16, 32, 64)]
LOG_NAME = "CONFIG_SWEEP_WS8192_540_20250726_024653"
OUT_OF_MEMORY = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "pretrain_gpt.py", line 321, in <module>
[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total \
capacity of 79.10 GiB of which 3.21 GiB is free.
E0726 03:10:11 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


def name_trace(tp: int, pp: int, *, rank: int = 0, stamp: int = 60530) -> str:
    """Return the name that the tracker of July 2025 gives a trace."""
    dp, batches = WORLD_SIZE // (tp * pp), 6 * pp
    return (
        f"memory_trace_rank{rank}_wd{WORLD_SIZE}_tp{tp}_pp{pp}_dp{dp}_exp1_expNumNone_l{LAYERS}_mbs1_"
        f"nmbs{batches}_gbs{batches * dp}_ts{stamp}.json"
    )


def trace_text(peak_mib: float, theory_mib: float = -1, *, samples: int = 4) -> str:
    """Return the content of a trace of one iteration."""
    rows = [
        {
            "timestamp_s": round(0.1 * number, 4),
            "reserved_memory_MB": 696.8125,
            "allocated_memory_MB": peak_mib * (number + 1) / (samples + 1),
        }
        for number in range(samples)
    ]
    iteration = {
        "samples": rows,
        "peak_allocated_MB": peak_mib,
        "theoretical_memory_MB": theory_mib,
        "static_memory_MB": -1,
    }
    return json.dumps({"0": iteration}, indent=4)


def list_line(number: int, tp: int, pp: int, suffix: str = "") -> str:
    """Return a line of the sweep's lists."""
    dp = WORLD_SIZE // (tp * pp)
    text = (
        f"Config {number}: TP={tp}, PP={pp}, DP={dp}, NUM_MICBATCH={6 * pp}, GLOBAL_BATCH_SIZE={6 * pp * dp}"
    )
    return f"{text}{suffix}\n"


def name_log_folder(tp: int, pp: int) -> str:
    """Return the name of the folder of one configuration's log."""
    dp, batches = WORLD_SIZE // (tp * pp), 6 * pp
    return f"TP{tp}_PP{pp}_DP{dp}_nMICROB{batches}_MICROB_SIZE1_GLOBAL_BATCH{batches * dp}"


def write_original(folder: Path) -> tuple[Path, Path]:
    """Write the sweep below a folder and return the folders of its traces and of its logs."""
    memory_dir = folder / "memory_traces_scaling" / "485B_8192gpus_tplimit8"
    log_dir = folder / "log" / LOG_NAME
    memory_dir.mkdir(parents=True)
    log_dir.mkdir(parents=True)
    for (tp, pp), gib in MEASURED_GIB.items():
        peak_mib = 58716.72 if (tp, pp) == (2, 64) else round(gib * 1024, 2)
        (memory_dir / name_trace(tp, pp)).write_text(trace_text(peak_mib, THEORY_MIB[tp, pp]))
    tried = ["Configuration sweep started at Sat Jul 26 02:46:53 UTC 2025\n"]
    success, failed = ["Successful configurations:\n"], ["Failed configurations:\n"]
    for number, (tp, pp) in enumerate(LAYOUTS, 1):
        tried.append(list_line(number, tp, pp))
        if (tp, pp) in MEASURED_GIB:
            success.append(list_line(number, tp, pp, " - SUCCESS"))
            continue
        failed.append(list_line(number, tp, pp, " - FAILED (status: 1)"))
        if tp == 1:
            (log_dir / name_log_folder(tp, pp)).mkdir()
            (log_dir / name_log_folder(tp, pp) / "global_rank_0.log").write_text(OUT_OF_MEMORY)
    (log_dir / "config_combinations.log").write_text("".join(tried))
    (log_dir / "successful_configs.log").write_text("".join(success))
    (log_dir / "failed_configs.log").write_text("".join(failed))
    return memory_dir, log_dir
