"""Training runs of the other splits, played through the allocator model, seen by the driver alone."""

from dataclasses import replace

import numpy as np

from ..run import Family, make_run
from ..shape import Shape
from .run import DriverRun, Sampling

SAMPLINGS = (Sampling(1.0), Sampling(5.0), Sampling(10.0), Sampling(2.0))
FULL_SHARE = 0.985
"""Of the card: what is left then is less than a segment of a large request."""


def model_driver_run(family: Family, seed: int) -> DriverRun:
    """Return one run of a family; where it is full it ends, if something grew until then."""
    sampling = SAMPLINGS[seed % len(SAMPLINGS)]
    run = make_run(replace(family, shapes=(Shape("device", sampling.interval_s),)), seed)
    times: list[float] = []
    levels: list[int] = []
    capacity = 0
    for sample in run.samples():
        memory = sample.devices[0].memory
        times.append(sample.time_s)
        levels.append(memory.used_bytes or 0)
        capacity = memory.total_bytes or 0
    times_s = np.array(times)
    used = np.array(levels, dtype=np.int64)
    full = np.flatnonzero(used >= FULL_SHARE * capacity)
    full_s = float(times_s[full[0]]) if len(full) else None
    growth_s = run.truth.growth_s if full_s is not None else None
    if growth_s is not None and full_s is not None and growth_s < full_s:
        times_s, used = times_s[: full[0] + 1], used[: full[0] + 1]
    else:
        growth_s = None
    name = f"modelled {family.name}"
    return DriverRun(name, f"{name}/{seed}", sampling, capacity, times_s, used, growth_s, full_s, run.seed)
