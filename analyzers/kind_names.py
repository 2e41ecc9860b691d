"""Kinds of findings in words for people; in JSON they keep the names that programs look for."""

from .capacity import KIND as CAPACITY
from .out_of_memory_track import OOM_MET, RETRIES
from .pressure_track import KIND as PRESSURE
from .usage_threshold import KIND as THRESHOLD

_NAMES = {
    OOM_MET: "out of memory",
    RETRIES: "retries",
    CAPACITY: "capacity",
    PRESSURE: "pressure",
    THRESHOLD: "threshold crossed",
    "oom": "out of memory ahead",
    "idle_held": "idle memory",
}


def name_kind(kind: str) -> str:
    """Return what a kind of finding is called in a few words; one of a plug-in keeps its own, spelled out."""
    return _NAMES.get(kind, kind.replace("_", " "))
