"""A small file of every format that is read or written here."""

import json
from collections.abc import Callable
from pathlib import Path

from vramscope.cli.application import run
from vramscope.engine.sampling.live import node_name

from ...analyzers.planning.cluster.test_clusters import TOML as CLUSTER
from ...analyzers.planning.sweep.original import write_original
from ...vramscope.phases.test_reading import LOG as PHASES
from ..probe.module_memory.profiles import CHART, write_profile
from . import flight_records
from .monitor_outputs import ALL_SMI_HEADER, DMON, TABLE, all_smi, gpustat
from .series_files import LOG_HEADER, write_lines
from .snapshots import small_snapshot, write_snapshot
from .test_framework_log import OOM, TITAN
from .test_internlm_log import FIRST, SECOND
from .test_memory_report import MEMORY, write_report
from .test_memory_timeline import SIZES, START_US
from .test_profiler_trace import memory
from .test_series_format import EXPORT
from .test_stormlog_telemetry import make_event
from .traces import rank_name, trace, write_trace

SERIES_HEADER = "time_s,device,allocated_bytes,reserved_bytes,used_bytes,total_bytes"
HUGGING_FACE = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "max_position_embeddings": 1024,
}
CONFIGURATIONS = {
    "galvatron": (
        ".yaml",
        "model_type: llama\nhidden_size: 64\nnum_hidden_layers: 4\nnum_attention_heads: 8\nvocab_size: 99\n",
    ),
    "megatron arguments": (".yaml", "num_layers: 4\nhidden_size: 64\nnum_attention_heads: 8\n"),
    "nemo": (
        ".yaml",
        "model:\n  num_layers: 4\n  hidden_size: 64\n  num_attention_heads: 8\n  encoder_seq_length: 128\n",
    ),
    "torchtitan": (".toml", '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 128\n'),
}
CASES = "case,num_layers,hidden,heads,seq,mbs,gbs,tp,pp,world_size,bf16"
_UNREAD = ("plan", "joint-plan", "difference", "estimate", "seqlen", "sweep", "heatmap", "doctor", "newer")


def write_samples(folder: Path) -> dict[str, Path]:
    """Write the files and folders, and return them by what they are called in tests."""
    made: dict[str, Path] = {}

    def put(name: str, content: object, suffix: str = ".json") -> Path:
        path = folder / f"{name}{suffix}"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        made[name] = path
        return path

    rows = [f"{tick},0,{10**9 + tick},{2 * 10**9},{3 * 10**9},{80 * 10**9}" for tick in range(12)]
    series = put("series", "\n".join([SERIES_HEADER, *rows]) + "\n", ".csv")
    for verb in ("profile", "oom", "leak", "fragment"):
        made[f"{verb}-report"] = folder / f"{verb}-report.json"
        run([verb, "--input", str(series), "--output", str(made[f"{verb}-report"])])
    made["recording"] = folder / "recording.vscope"
    run(["import", str(series), "-o", str(made["recording"])])
    made["memory trace"] = write_trace(
        folder / "traces", rank_name(0, "_wd1_tp1_pp1"), trace([(0.05, 700.0, 600.0), (0.35, 800.0, 500.0)])
    )
    made["folder of traces"] = folder / "traces"
    (folder / "recordings").mkdir()
    (folder / "recordings" / "one.vscope").write_bytes(made["recording"].read_bytes())
    made["folder of recordings"] = folder / "recordings"
    status = {"schema": "vramscope.status/1", "time": 1.75e9, "node": node_name(), "devices": []}
    put("status stream", "".join(json.dumps({**status, "time": 1.75e9 + it}) + "\n" for it in range(3)))
    put("snapshots", EXPORT)
    made["snapshot"] = write_snapshot(folder, small_snapshot())
    put("profiler trace", {"schemaVersion": 1, "traceEvents": [memory(1.0, 4096), memory(9.0, 8192)]})
    put("timeline", [[START_US + 1000 * at for at in range(len(SIZES))], SIZES])
    log = folder / "rank0_dp0_tp0"
    log.mkdir()
    (log / "memory.log").write_text(FIRST + SECOND)
    made["memory.log"], made["folder of profiles"] = log / "memory.log", folder / "profiles"
    made["module profile"] = write_profile(folder / "profiles" / "rank0_dp0_tp0", rank=0)
    made["tiny report"] = write_report(folder / "tiny.json", devices={"0": {"current_memory": MEMORY}})
    put("telemetry", "".join(json.dumps(make_event(second)) + "\n" for second in range(3)), ".jsonl")
    put("framework log", f"{TITAN}\n{TITAN.replace('02:46:53', '02:46:54')}\n", ".log")
    put("out of memory", f"[2025-07-26 02:46:53] {OOM} GPU 0 has a total capacity of 23.65 GiB.\n", ".txt")
    made["nvidia-smi log"] = write_lines(
        folder / "gpu.csv",
        LOG_HEADER,
        *(f"2025/06/23 10:30:0{it}.000, 0, 100 MiB, 81920 MiB" for it in range(3)),
    )
    for name, text in {
        "nvidia-smi table": TABLE.format(second=0, used=2048),
        "nvidia-smi dmon": DMON,
        "gpustat": gpustat(0) + gpustat(1),
        "all-smi": ALL_SMI_HEADER + all_smi(0),
    }.items():
        put(name, text, ".txt")
    flights = folder / "flights"
    flights.mkdir()
    made["flight record"] = flight_records.write_record(flights, flight_records.record(), "oom-1.json.gz")
    made["folder of flight records"] = flights
    put("phases log", PHASES, ".log")
    charts = folder / "charts"
    charts.mkdir()
    (charts / "params_memory_sunburst.html").write_text(CHART)
    made["chart"], made["folder of charts"] = charts / "params_memory_sunburst.html", charts
    put("hugging face", HUGGING_FACE)
    put("cases", f"{CASES}\nc1,12,512,8,1024,1,8,1,1,8,True\n", ".csv")
    put("cluster", CLUSTER, ".toml")
    put("settings", 'interval = "2s"\n', ".toml")
    put("heat maps", 'memory_dir = "traces"\noutput = "heat"\n', ".toml")
    put(
        "calibration",
        {
            "schema": "vramscope.calibration/1",
            "source": "runs.csv",
            "runs": 9,
            "offset_bytes": 100,
            "activation_scale": 1.1,
            "held_out_error_percent": 1.0,
            "plain_error_percent": 2.0,
        },
    )
    put("layer times", {"layertype_0_bsz8_seq2048": 1.5})
    put("layer memory", {"1_1_8": {"layernum[2]_bsz8_seq2048_rank0_ms": 812.5}})
    (folder / "hardware").mkdir()
    for name, content in (
        ("allreduce_bandwidth_1nodes_8gpus_per_node", {"allreduce_size_8_consec_1": 150.0}),
        ("overlap_coefficient", {"overlap_coe": 1.1}),
    ):
        made[name] = folder / "hardware" / f"{name}.json"
        made[name].write_text(json.dumps(content))
    made["folder of hardware profiles"] = folder / "hardware"
    for name, (suffix, text) in CONFIGURATIONS.items():
        put(name, text, suffix)
    write_original(folder / "sweep")
    made["folder of a sweep"] = folder / "sweep"
    made["folder of logs"] = next((folder / "sweep").rglob("successful_configs.log")).parent
    made["list of a sweep"] = made["folder of logs"] / "successful_configs.log"
    put("phase results", [{"seq_length": 128, "peak_memory_gb": 1.5, "snapshots": []}])
    put("phase summary", "seq_length,batch_size,peak_memory_gb\n128,2,1.5\n", ".csv")
    for name in _UNREAD:
        put(f"{name} output", {"schema": f"vramscope.{name}/1", "time": 1.0, "devices": {}})
    plan = folder / "planned"
    run(["plan", "--model", "gpt-1.5b", "--stages", "2", "-o", str(plan)])
    made["graph"] = next(plan.glob("*_model_graph.json"))
    run(["modules", str(made["folder of profiles"]), "--figure", f"{folder}/drawn/", "--pages"])
    made["folder of pages"] = folder / "drawn"
    made["page"] = folder / "drawn" / "params_memory_sunburst.html"
    return made


Command = Callable[[str, Path, Path], list[str]]
"""Makes the words of a verb from a file, a folder to write into, and a snapshot for what needs one."""

COMMANDS: dict[str, Command] = {
    "import": lambda file, out, _: ["import", file, "-o", str(out / "made.vscope")],
    "replay": lambda file, out, _: ["replay", file],
    "diff": lambda file, out, _: ["diff", file, file, "--json"],
    "profile --input": lambda file, out, _: ["profile", "--input", file],
    "oom --input": lambda file, out, _: ["oom", "--input", file],
    "leak --input": lambda file, out, _: ["leak", "--input", file],
    "fragment --input": lambda file, out, _: ["fragment", "--input", file],
    "export": lambda file, out, _: ["export", file, "--csv", "-o", str(out / "made.csv")],
    "inspect": lambda file, out, _: ["inspect", file, "--text"],
    "modules": lambda file, out, _: ["modules", file],
    "phases --read": lambda file, out, _: ["phases", "--read", file],
    "sweep": lambda file, out, _: ["sweep", file],
    "heatmap --memory-dir": lambda file, out, _: ["heatmap", "--memory-dir", file, "--json"],
    "calibrate": lambda file, out, _: ["calibrate", file],
    "estimate --batch": lambda file, out, _: ["estimate", "--batch", file, "-o", str(out / "made.csv")],
    "estimate --model": lambda file, out, _: ["estimate", "--model", file],
    "estimate --calibration": lambda file, out, _: ["estimate", "--model", "gpt2", "--calibration", file],
    "plan --model": lambda file, out, _: ["plan", "--model", file, "--stages", "2"],
    "plan --cluster": lambda file, out, _: [
        "plan", "--model", "gpt2", "--cluster", file, "--global-batch", "8", "--top", "1"
    ],
    "plan --calibrate-time": lambda file, out, _: [
        "plan", "--model", "gpt2", "--cluster", "8xh100", "--global-batch", "8", "--top", "1",
        "--calibrate-time", file
    ],
    "--config": lambda file, out, snapshot: ["inspect", str(snapshot), "--text", "--config", file],
}  # fmt: skip
