"""What is told of each training process that reports through the probe."""

from collections.abc import Callable

from ...engine.model import AllocatorReading, ModelStateReading, RankSample, StepReading
from .family import Family

_NO_ALLOCATOR = AllocatorReading()
_NO_STATE = ModelStateReading()
_NO_STEP = StepReading(0, 0.0)


def _of_allocator(read: Callable[[AllocatorReading], float | None]) -> Callable[[RankSample], float | None]:
    return lambda rank: read(rank.allocator or _NO_ALLOCATOR)


def _of_state(read: Callable[[ModelStateReading], float | None]) -> Callable[[RankSample], float | None]:
    return lambda rank: read(rank.model_state or _NO_STATE)


def _of_step(read: Callable[[StepReading], float | None]) -> Callable[[RankSample], float | None]:
    return lambda rank: read(rank.step or _NO_STEP)


def _bytes(name: str, text: str, read: Callable[[RankSample], float | None]) -> Family[RankSample]:
    return Family(f"vramscope_rank_{name}_bytes", "gauge", "bytes", text, read)


GAUGES = (
    _bytes("allocated", "Bytes of live tensors.", _of_allocator(lambda it: it.allocated_bytes)),
    _bytes(
        "allocated_max",
        "Most bytes of live tensors within the tick.",
        _of_allocator(lambda it: it.allocated_max_bytes),
    ),
    _bytes(
        "reserved", "Bytes that the caching allocator holds.", _of_allocator(lambda it: it.reserved_bytes)
    ),
    _bytes("requested", "Bytes the program asked for.", _of_allocator(lambda it: it.requested_bytes)),
    _bytes(
        "active",
        "Live bytes, and freed ones that another stream may still use.",
        _of_allocator(lambda it: it.active_bytes),
    ),
    _bytes(
        "inactive_split",
        "Free bytes that cannot be given back to the device.",
        _of_allocator(lambda it: it.inactive_split_bytes),
    ),
    _bytes(
        "capacity",
        "Most the allocator may reserve, where that was limited below the device.",
        lambda it: it.capacity_bytes,
    ),
    _bytes("parameters", "Parameters.", _of_state(lambda it: it.parameters_bytes)),
    _bytes("gradients", "Gradients.", _of_state(lambda it: it.gradients_bytes)),
    _bytes("optimizer", "Optimizer state on the device.", _of_state(lambda it: it.optimizer_bytes)),
    _bytes("step_floor", "Live bytes at the ends of the newest step.", _of_step(lambda it: it.floor_bytes)),
    _bytes("step_peak", "Most live bytes within the newest step.", _of_step(lambda it: it.peak_bytes)),
    _bytes("pinned", "Pinned host memory.", lambda it: it.pinned_bytes),
    _bytes("resident", "Resident host memory.", lambda it: it.resident_bytes),
    Family[RankSample](
        "vramscope_rank_step_duration_seconds",
        "gauge",
        "seconds",
        "Duration of the newest training step.",
        _of_step(lambda it: it.duration_s),
    ),
    Family[RankSample](
        "vramscope_rank_age_seconds",
        "gauge",
        "seconds",
        "Seconds since its newest reading.",
        lambda it: it.age_s,
    ),
    Family[RankSample](
        "vramscope_rank_up", "gauge", "", "Whether the process reports.", lambda it: float(it.state == "ok")
    ),
)
"""Of processes that have not ended."""
COUNTERS = (
    Family[RankSample](
        "vramscope_rank_retries",
        "counter",
        "",
        "Times that the device refused memory and the cache was flushed.",
        _of_allocator(lambda it: it.retries),
    ),
    Family[RankSample](
        "vramscope_rank_ooms",
        "counter",
        "",
        "Out-of-memory errors of the allocator.",
        _of_allocator(lambda it: it.ooms),
    ),
    Family[RankSample](
        "vramscope_rank_steps",
        "counter",
        "",
        "Training steps that the probe saw end.",
        lambda it: None if it.step is None else it.step.index,
    ),
)
"""Of processes that have ended too, as long as the agent tells of them: what ends a process comes last."""
INFO_NAME = "vramscope_rank"
INFO_HELP = "The process: its place in the parallel layout, its run, whether its card is a modelled one."
INFO_LABELS = ("world_size", "tp", "pp", "dp", "cp", "ep", "run", "backend", "simulated")


def read_info(rank: RankSample) -> tuple[object, ...]:
    """Return the values of `INFO_LABELS`; None is unknown."""
    place = rank.coordinates
    places = (
        (None,) * 6 if place is None else (place.world_size, place.tp, place.pp, place.dp, place.cp, place.ep)
    )
    return *places, rank.job, rank.backend, str(rank.is_simulated).lower()
