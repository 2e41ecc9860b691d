"""How well a replay follows a full card: python -m benchmarks.allocator_full_card [--jobs N] [--seed N]

Made-up jobs run on the allocator model with less memory than they would reserve on a card with room, and are
recorded. Compared are the capacity that is found in their traces, and how often the replay gives cache back,
with what really was. It says nothing about how close the model is to a real allocator.
"""

import argparse
import random
from typing import NamedTuple

from tests.analyzers.fragmentation.jobs import Job, vary
from vramscope.analyzers.allocator_model import AllocatorOutOfMemoryError, AllocatorSettings
from vramscope.analyzers.snapshot_summary.settings_advice import SettingsAdvice, advise_settings
from vramscope.engine.files.memory_snapshot import convert_tree
from vramscope.engine.units import GIB, MIB

from .measure.tables import format_table

STEPS = 40
STEP_BYTES = 2 * MIB
WHOLE_RING = 100_000
SHORT_RING = 2_000
SETTINGS = (
    "",
    "max_split_size_mb:20",
    "max_split_size_mb:64",
    "expandable_segments:True",
    "garbage_collection_threshold:0.7,per_process_memory_fraction:0.5",
    "per_process_memory_fraction:0.9",
)
LENGTHS = ((4000, 12000), (1000, 9000), (7000, 9000))


class Case(NamedTuple):
    settings: str
    capacity_bytes: int
    is_whole: bool
    advice: SettingsAdvice


def run_case(numbers: random.Random) -> Case:
    settings = numbers.choice(SETTINGS)
    lengths = numbers.choice(LENGTHS)
    seed = numbers.randrange(1000)
    keep = numbers.choice((0, 100, 200))

    def make_job(capacity_bytes: int) -> Job:
        return Job(capacity_bytes, vary(seed, *lengths), keep=keep, settings=settings)

    with_room = make_job(64 * GIB)
    for _ in with_room.run(STEPS):
        pass
    stats = with_room.allocator.memory_stats()
    allocated = stats["allocated_bytes.all.peak"]
    reserved = stats["reserved_bytes.all.peak"]
    capacity = int(allocated + (reserved - allocated) * numbers.uniform(0.2, 0.9)) // STEP_BYTES * STEP_BYTES
    ring = numbers.choice((WHOLE_RING, WHOLE_RING, SHORT_RING))
    job = make_job(int(capacity / AllocatorSettings.parse(settings).memory_fraction))
    job.allocator.record_history(ring)
    try:
        for _ in job.run(STEPS):
            pass
    except AllocatorOutOfMemoryError:
        # As good a record as one of a job that ended.
        pass
    root = job.allocator.snapshot()
    root["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = settings
    return Case(settings, capacity, ring == WHOLE_RING, advise_settings(convert_tree(root), 0))


def summarize(name: str, cases: list[Case]) -> list[str]:
    """Return a line on the cases of one kind."""
    known = [case for case in cases if case.advice.card is not None and case.advice.card.does_run]
    misses = [(case.advice.capacity_bytes or 0) - case.capacity_bytes for case in known]
    times = [
        abs((case.advice.card.times_given_back or 0) - case.advice.times_given_back)
        for case in known
        if case.advice.card is not None
    ]
    span = f"{min(misses) // MIB:+,} to {max(misses) // MIB:+,} MiB" if misses else ""
    refused = sum(case.advice.reason is not None for case in cases)
    return [
        name,
        f"{len(cases)}",
        f"{refused}",
        f"{len(known)}",
        span,
        f"{sum(not miss for miss in times)}",
        f"{max(times, default=0)}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=48)
    parser.add_argument("--seed", type=int, default=5)
    options = parser.parse_args()
    numbers = random.Random(options.seed)
    cases = [run_case(numbers) for _ in range(options.jobs)]
    enough = [case for case in cases if case.advice.events or "are needed" not in (case.advice.reason or "")]
    whole = [case for case in enough if case.is_whole]
    early = [case for case in whole if "garbage" in case.settings]
    others = [case for case in whole if "garbage" not in case.settings]
    lines = [
        summarize("out of memory", [case for case in others if case.advice.failed_requests]),
        summarize("full", [case for case in others if not case.advice.failed_requests]),
        summarize("garbage_collection_threshold", early),
        summarize("trace begins late", [case for case in enough if not case.is_whole]),
    ]
    head = ["trace", "jobs", "refused", "capacity found", "off by", "times right", "off by at most"]
    print(format_table(f"{len(cases) - len(enough)} of {len(cases)} jobs too short", head, lines))


if __name__ == "__main__":
    main()
