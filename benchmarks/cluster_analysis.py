"""What analysis across nodes costs: CPU of one process that concludes once a second over made nodes.

python -m benchmarks.cluster_analysis [SECONDS]

Snapshots are made beforehand, second by second; only what the analysis does with them is counted. All ranks
end a step every second, so that everything is compared; one grows, and one is forecast to run out.
"""

import sys
import time

from vramscope.analyzers.cluster_state import Adviser, ClusterState
from vramscope.engine.model import (
    AllocatorReading,
    Assessment,
    DeviceSample,
    MemoryReading,
    RankCoordinates,
    RankSample,
    Sample,
    StepReading,
)
from vramscope.engine.units import GIB, MIB
from vramscope.engine.viewer.snapshot import Snapshot

from .measure.tables import format_table

DEVICES_A_NODE, STAGES = 8, 4
CARD = 80 * GIB
GROWING, THREATENED = 5, 7


def make_node(number: int, second: int, nodes: int) -> Snapshot:
    """Return a node of one job that spans all of them."""
    name, world = f"n{number:04d}", nodes * DEVICES_A_NODE
    devices, ranks, said = [], [], []
    for index in range(DEVICES_A_NODE):
        rank = number * DEVICES_A_NODE + index
        floor = 30 * GIB + (second * 20 * MIB if rank == GROWING else 0)
        uuid, peak, reserved = f"GPU-{rank:06d}", floor + 10 * GIB, floor + 11 * GIB
        memory = MemoryReading(CARD, reserved + GIB, CARD - reserved - GIB)
        devices.append(DeviceSample(uuid, index, "NVIDIA H100", age_s=0.1, memory=memory))
        ranks.append(
            RankSample(
                1000 + index,
                1.0,
                job=f"run-{number}",
                device_uuid=uuid,
                coordinates=RankCoordinates(rank, world, tp=index, pp=number % STAGES, dp=number // STAGES),
                allocator=AllocatorReading(floor, peak, reserved),
                step=StepReading(second, float(second), 1.0, floor, peak),
                steps_within=1,
                floor_min_bytes=floor,
                peak_max_bytes=peak,
            )
        )
        is_threatened = rank == THREATENED and second > 20
        level, left_s = ("high", 400.0) if is_threatened else ("low", None)
        said.append(
            Assessment(name, uuid, str(index), float(second), level, "", 1000 + index, 1.0, oom_in_s=left_s)  # type: ignore[arg-type]
        )
    sample = Sample(name, second, float(second), 1.0, tuple(devices), ranks=tuple(ranks))
    return Snapshot("live", sample=sample, assessments=tuple(said), node=name)


def measure_analysis(nodes: int, seconds: int) -> tuple[float, float, int]:
    """Return CPU in percent of a core, milliseconds of the costliest second, and findings.

    Args:
        nodes: How many, of eight devices each, at one sample a second.
        seconds: How long they are watched, in their own time.
    """
    state, adviser, spent_s, found = ClusterState(), Adviser(), list[float](), 0
    for second in range(seconds):
        snapshots = [make_node(number, second, nodes) for number in range(nodes)]
        begun_s = time.process_time()
        for number, snapshot in enumerate(snapshots):
            found += len(state.observe(snapshot, second + number / nodes))
        adviser.decide(state.picture)
        spent_s.append(time.process_time() - begun_s)
    return 100.0 * sum(spent_s) / seconds, 1000.0 * max(spent_s), found


def main() -> None:
    """Measure 16, 128 and 1,024 nodes and print the table."""
    seconds = int(sys.argv[1]) if sys.argv[1:] else 60
    rows = []
    for nodes in (16, 128, 1024):
        percent, worst_ms, found = measure_analysis(nodes, seconds)
        rows.append(
            [f"{nodes:,}", f"{nodes * DEVICES_A_NODE:,}", f"{percent:.2f}", f"{worst_ms:.0f}", f"{found:,}"]
        )
    head = ["nodes", "devices", "CPU % of a core", "CPU ms, costliest second", "findings"]
    print(format_table("Analysis across nodes, made snapshots at 1 Hz", head, rows))


if __name__ == "__main__":
    main()
