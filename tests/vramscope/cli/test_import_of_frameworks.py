"""`vramscope import` of what PyTorch and others leave behind: figures, errors and labels are kept."""

import gzip
import json
from pathlib import Path

from vramscope.cli.verbs.import_ import Importer
from vramscope.engine.recording import Recording

from ...engine.files.snapshots import MIB, block, segment, snapshot, write_snapshot
from ...engine.files.test_internlm_log import FIRST
from ...engine.files.test_memory_report import PROFILE, STAMP
from ...engine.files.test_memory_timeline import RAW
from ...engine.files.test_oom_text import NEW
from ...engine.files.test_profiler_trace import memory
from ...engine.files.test_snapshot_series import ring
from ...engine.files.test_stormlog_telemetry import make_event


def write_inputs(folder: Path) -> list[Path]:
    """Write a small file of each format."""
    texts = {
        "trace.json.gz": json.dumps({"traceEvents": [memory(5, 10), memory(2000, 20)]}),
        "timeline.json": json.dumps(RAW),
        "memory.log": FIRST,
        "report.json": json.dumps({"timestamp": STAMP, "devices": {"0": PROFILE}}),
        "telemetry.jsonl": "\n".join(json.dumps(make_event(second)) for second in range(3)) + "\n",
        "train.log": f"[2025-07-26 02:46:53] step\n[rank3]: {NEW}\n",
    }
    for name, text in texts.items():
        data = text.encode()
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    root = snapshot([segment([block(6 * MIB)])], ring())
    return [*(folder / name for name in texts), write_snapshot(folder, root)]


def test_each_becomes_a_recording_of_its_kind(tmp_path: Path) -> None:
    told, errors = {}, []
    for path in write_inputs(tmp_path):
        output = tmp_path / f"{path.name}.vscope"
        Importer([path], output, capacity_bytes=None, interval_s=None).run()
        with Recording(output) as recording:
            (made,) = recording.identity.imported
            told[made.format] = (recording.sample_count, made.clock, made.is_simulated)
            errors += [(made.format, event.text) for event in recording.events(kinds=["oom"])]
    assert told == {
        "profiler trace": (3, "trace", None),
        "memory timeline": (4, "wall", None),
        "InternLM log": (1, "trace", True),
        "memory report": (1, "wall", None),
        "stormlog telemetry": (3, "wall", None),
        "framework log": (1, "wall", None),
        "memory snapshot": (4, "wall", None),
    }
    assert errors == [
        ("framework log", "device 3 ran out of memory"),
        ("memory snapshot", "device 0 ran out of memory"),
    ]
