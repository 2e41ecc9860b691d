"""How the training processes on a device are named, and what is said of their state and steps."""

from collections.abc import Iterable, Sequence

import msgspec

from ...engine.model import DeviceSample, RankCoordinates, RankSample
from ...engine.units import format_age

DEGREES = ("tp", "pp", "dp", "cp", "ep")
"""Kinds of parallelism, in the order in which a rank's place in them is told."""
MOST_NAMED = 4
"""Ranks of one device that are named one by one; more of them are counted."""


def spell_label(device: DeviceSample) -> str:
    """Return the short name of a device as screens spell it: `0`, `sim0`, `CPU`."""
    return "CPU" if device.kind == "cpu" else device.label


def collect_ranks(ranks: Iterable[RankSample]) -> dict[str, tuple[RankSample, ...]]:
    """Return the training processes of each device by its UUID, in the order of their ranks.

    Processes that have ended are left out where others still train on the device.
    """
    found: dict[str, list[RankSample]] = {}
    for rank in ranks:
        if rank.device_uuid is not None:
            found.setdefault(rank.device_uuid, []).append(_settle(rank))
    return {uuid: tuple(_still_running(on_device)) for uuid, on_device in found.items()}


def order_of(rank: RankSample) -> tuple[bool, int, int]:
    """Return by what processes are sorted: their ranks, and after those the pids of processes without one."""
    place = rank.coordinates
    return (place is None, place.rank if place else 0, rank.pid)


def name_coordinates(place: RankCoordinates, *, is_long: bool = True, has_rank: bool = True) -> str:
    """Return where a rank stands (`rank 5 tp1 pp2`), or only its number.

    Args:
        place: Where it stands.
        is_long: Whether its place in each kind of parallelism is told.
        has_rank: Whether its number is told.
    """
    parts = [f"rank {place.rank}"] if has_rank else []
    if is_long:
        parts += [f"{name}{value}" for name in DEGREES if (value := getattr(place, name)) is not None]
    return " ".join(parts)


def name_rank(rank: RankSample, *, is_long: bool = True) -> str:
    """Return what a training process is called: its rank, or its process id where it has none."""
    if rank.coordinates is None:
        return f"pid {rank.pid}"
    return name_coordinates(rank.coordinates, is_long=is_long)


def name_ranks(ranks: Sequence[RankSample], *, is_long: bool = True) -> str:
    """Return what the processes of one device are called (`ranks 0,1`), with what ails them."""
    if not ranks:
        return ""
    return " ".join(filter(None, (_name_all(ranks, is_long=is_long), _name_state(ranks))))


def _name_all(ranks: Sequence[RankSample], *, is_long: bool) -> str:
    if len(ranks) == 1:
        return name_rank(ranks[0], is_long=is_long)
    places = [rank.coordinates for rank in ranks]
    if None in places or len(ranks) > MOST_NAMED:
        return f"{len(ranks)} {'processes' if None in places else 'ranks'}"
    return "ranks " + ",".join(str(place.rank) for place in places if place is not None)


def _name_state(ranks: Sequence[RankSample]) -> str:
    """Return the state in one word where it is not `ok`; of several ranks, how many are in it."""
    for state in ("stale", "ended"):
        count = sum(rank.state == state for rank in ranks)
        if count:
            return state if count == len(ranks) else f"{count} {state}"
    return ""


def name_degrees(ranks: Sequence[RankSample]) -> str:
    """Return how a job is cut up (`tp2 pp4`); nothing where not every one of its ranks is among these."""
    places = [rank.coordinates for rank in ranks if rank.coordinates is not None]
    if len(places) != len(ranks) or {place.world_size for place in places} != {len(ranks)}:
        return ""
    degrees = {
        name: 1 + max(values)
        for name in DEGREES
        if (values := [value for place in places if (value := getattr(place, name)) is not None])
    }
    return " ".join(f"{name}{degree}" for name, degree in degrees.items() if degree > 1)


def explain_state(rank: RankSample) -> str:
    """Return why the figures of a process are not of now (`rank 3 stale 12 s: …`), or nothing."""
    if rank.state == "ok":
        return ""
    age = f" {format_age(rank.age_s)}" if rank.state == "stale" and rank.age_s is not None else ""
    reason = f": {rank.reason}" if rank.reason else ""
    return f"{name_rank(rank, is_long=False)} {rank.state}{age}{reason}"


def _settle(rank: RankSample) -> RankSample:
    """Return a process without an age that is another at every tick and tells nothing."""
    age_s = None if rank.state != "stale" or rank.age_s is None else float(int(rank.age_s))
    return rank if rank.age_s == age_s else msgspec.structs.replace(rank, age_s=age_s)


def _still_running(ranks: list[RankSample]) -> list[RankSample]:
    """Return the processes that run, in order; all of them where none does."""
    running = [rank for rank in ranks if rank.state != "ended"]
    return sorted(running or ranks, key=order_of)
