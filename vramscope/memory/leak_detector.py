"""`MemoryLeakDetector`: memory that grows without end, from inside a program, with the objects that grow."""

import gc
import sys
import time
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

from vramscope.engine.errors import UsageError
from vramscope.engine.units import MIB
from vramscope.exporters.reports.frame import KINDS, describe_findings
from vramscope.exporters.reports.leak import (
    LeakRule,
    TrackedSource,
    Tracking,
    build_leak,
    describe_seen_growth,
    measure_growth,
    summarize_leaks,
)

from .monitor import MemoryMonitor, publish

# Types are counted among the objects of the garbage collector. Tensors are followed by weak references, to
# separate those of the baseline from those that came later.
# Types that grew by fewer objects are not named.
LEAST_MORE = 50
LEAST_TENSORS = 2
MOST_TYPES = 5
MOST_HOLDERS = 3
# Most tensors whose holders are looked up, since each look goes through all objects.
SAMPLED = 16
_OURS = __name__.partition(".")[0]


class GrownType(NamedTuple):
    """A type with more objects than at the baseline."""

    name: str
    more: int
    # Bytes of the tensors that came since; None for other types.
    size_bytes: int | None
    # Containers that hold some of them, in words.
    holders: tuple[str, ...]

    @property
    def words(self) -> str:
        """For sentences."""
        size = "" if self.size_bytes is None else f", {self.size_bytes / 2**20:,.1f} MiB"
        held = f", held by {', '.join(self.holders)}" if self.holders else ""
        return f"{self.name}: {self.more:,} more than at the baseline{size}{held}"


class ReferenceTracker:
    """Compares the objects of the garbage collector with a baseline; each look takes tens of milliseconds."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._known: dict[int, weakref.ref[Any]] = {}
        self.has_baseline = False

    def set_baseline(self) -> None:
        """Remember the number of objects of each type, and the tensors."""
        objects = gc.get_objects()
        self._counts = Counter(map(_name_of, objects))
        self._known = {id(it): weakref.ref(it) for it in objects if _is_tensor(it)}
        self.has_baseline = True

    def find_growth(self) -> list[GrownType]:
        """Return what grew since the baseline: tensors first, by bytes, then types, by count."""
        if not self.has_baseline:
            return []
        objects = gc.get_objects()
        counts = Counter(map(_name_of, objects))
        fresh = [it for it in objects if _is_tensor(it) and not self._was_known(it)]
        grown = [
            GrownType(name, more, None, ())
            for name, more in (counts - self._counts).most_common()
            if more >= LEAST_MORE and not name.startswith(f"{_OURS}.")
        ]
        tensors = _describe_tensors(fresh, objects)
        named = {it.name for it in tensors}
        return [*tensors, *(it for it in grown if it.name not in named)][:MOST_TYPES]

    def _was_known(self, tensor: object) -> bool:
        reference = self._known.get(id(tensor))
        return reference is not None and reference() is tensor


def _describe_tensors(fresh: list[Any], objects: list[object]) -> list[GrownType]:
    by_type: dict[str, list[Any]] = {}
    for tensor in fresh:
        by_type.setdefault(_name_of(tensor), []).append(tensor)
    found = [
        GrownType(
            name,
            len(tensors),
            sum(_size_of(it) for it in tensors),
            _find_holders(tensors, (fresh, objects, tensors)),
        )
        for name, tensors in by_type.items()
        if len(tensors) >= LEAST_TENSORS
    ]
    return sorted(found, key=lambda it: -(it.size_bytes or 0))


def _find_holders(tensors: list[Any], ours: tuple[object, ...]) -> tuple[str, ...]:
    """Return in words the containers that hold most of some tensors."""
    sample = tensors[-SAMPLED:]
    ignored = {id(it) for it in ours} | {id(sample), id(sys._getframe())}
    holders: Counter[int] = Counter()
    known: dict[int, object] = {}
    for holder in chain(gc.get_referrers(*sample), _list_frozen_containers()):
        if (
            id(holder) not in known
            and id(holder) not in ignored
            and isinstance(holder, list | dict | tuple | set)
        ):
            holders[id(holder)] += _count_held(holder, sample)
            known[id(holder)] = holder
    most = [known[key] for key, held in holders.most_common(MOST_HOLDERS) if held]
    return tuple(dict.fromkeys(_word_holder(it) for it in most))


def _list_frozen_containers() -> Iterator[object]:
    """Yield the containers of modules after `gc.freeze`, which hides them from `gc.get_referrers`."""
    if not gc.get_freeze_count():
        return
    for module in tuple(sys.modules.values()):
        for value in tuple(getattr(module, "__dict__", {}).values()):
            if type(value) in (list, dict, tuple, set):
                yield value


def _count_held(holder: object, tensors: Iterable[object]) -> int:
    values = holder.values() if isinstance(holder, dict) else holder
    held = {id(it) for it in values}  # type: ignore[attr-defined] # one of four containers
    return sum(id(tensor) in held for tensor in tensors)


def _word_holder(holder: object) -> str:
    """Return a container in words, with the variable or attribute that holds it, if there is one."""
    if isinstance(holder, dict):
        owner = _name_namespace(holder)
        if owner is not None:
            return f"variables of {owner}"
    size = f"{type(holder).__name__} of {len(holder):,}"  # type: ignore[arg-type] # a container
    modules = (getattr(module, "__dict__", None) for module in tuple(sys.modules.values()))
    for namespace in chain(gc.get_referrers(holder), modules):
        if not isinstance(namespace, dict):
            continue
        name = next((key for key, value in tuple(namespace.items()) if value is holder), None)
        owner = _name_namespace(namespace) if isinstance(name, str) else None
        if owner is not None:
            return f"{size} `{name}` of {owner}"
    return size


def _name_namespace(namespace: dict[Any, Any]) -> str | None:
    """Return the module or the class of object whose variables are in a dictionary."""
    name = namespace.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    if isinstance(module, ModuleType) and vars(module) is namespace:
        return f"module {name}"
    for owner in gc.get_referrers(namespace):
        if getattr(owner, "__dict__", None) is namespace and not isinstance(owner, type):
            return f"a {type(owner).__qualname__}"
    return None


def _name_of(it: object) -> str:
    kind = type(it)
    return f"{_module_of(kind)}.{kind.__qualname__}".removeprefix("builtins.")


def _is_tensor(it: object) -> bool:
    """Return whether an object is a tensor, by its class alone, without touching the object."""
    kind = type(it)
    return kind.__name__ in ("Tensor", "Parameter") and _module_of(kind).partition(".")[0] == "torch"


def _module_of(kind: type) -> str:
    """Return the module of a class; some classes of extensions have something else under that name."""
    module: object = kind.__module__
    return module if isinstance(module, str) else ""


def _size_of(tensor: Any) -> int:  # noqa: ANN401 - torch is reached by attribute
    try:
        return int(tensor.nelement()) * int(tensor.element_size())
    except RuntimeError:
        return 0  # a fake or freed storage has no size


NOT_STARTED = "Monitoring not started"
# Least seconds between counts of Python objects that nobody asked for.
LOOK_EVERY_S = 60.0
COUNTED = (
    "Python objects were compared with the baseline; new tensors were followed to the objects that hold them"
)
NOTHING_FOUND = "No memory was seen to grow without end"


class MemoryLeakDetector(MemoryMonitor):
    """Watches memory in the background and reports leaks, each once.

    Args:
        devices: Indices of the devices to watch; None for all.
        sampling_interval: Seconds between samples.
        leak_threshold: Growth in bytes a minute from which `leak_risk` is high; does not change findings.
        history_window: Newest snapshots that growth is fitted to, where the analyzers have no rate yet.
        enable_reference_tracking: Compare Python objects with a baseline, and name what holds new tensors.
    """

    def __init__(
        self,
        devices: list[int] | None = None,
        sampling_interval: float = 5.0,
        leak_threshold: float = 10 * MIB,
        history_window: int = 100,
        enable_reference_tracking: bool = True,
    ) -> None:
        if leak_threshold < 0 or history_window < 2:
            raise UsageError(
                f"leak_threshold {leak_threshold}, history_window {history_window}: expected 0 or more bytes "
                "a minute, and 2 or more snapshots"
            )
        super().__init__(devices, sampling_interval)
        self._rule = LeakRule(leak_threshold / MIB, history_window)
        self._tracker = ReferenceTracker() if enable_reference_tracking else None
        self._grown: list[GrownType] = []
        self._looked_s: float | None = None
        self._baseline_s: float | None = None

    def start_monitoring(self) -> None:
        """Start to watch in the background; sets a baseline now if there is none."""
        if self._tracker is not None and not self._tracker.has_baseline:
            self._tracker.set_baseline()
        super().start_monitoring()

    def set_baseline(self) -> None:
        """Count growth of memory and of Python objects from now on."""
        with self._lock:
            last = self._log.last
            self._baseline_s = None if last is None else last.time_s
            self._grown = []
        if self._tracker is not None:
            self._tracker.set_baseline()

    def force_garbage_collection(self) -> int:
        """Collect unreachable Python objects now; return how many there were.

        PyTorch keeps its cached device memory; `torch.cuda.empty_cache()` gives that back.
        """
        return gc.collect()

    def get_leak_summary(self) -> dict[str, object]:
        """Return a summary of all leaks so far; `error` if monitoring was never started."""
        with self._lock:
            if self._watch is None:
                return {"error": NOT_STARTED}
            summary = summarize_leaks(self._log, self._rule)
        built: dict[str, object] = msgspec.to_builtins(summary)
        return built

    def get_memory_growth_trend(self, device_id: int, duration_minutes: float = 30) -> dict[str, object]:
        """Return the recent growth of device and host memory; empty where nothing was seen.

        Args:
            device_id: Index of the device.
            duration_minutes: How far to look back.
        """
        with self._lock:
            device = self._find(device_id)
            if device is None or device.last_s is None:
                return {}
            since_s = max(device.last_s - 60.0 * duration_minutes, self._baseline_s or 0.0)
            times = [it.time_s for it in device.snapshots if it.time_s >= since_s]
            window = self._rule.window
            gpu = measure_growth(self._log, device, window, device.memory_source, since_s=since_s)
            host = measure_growth(self._log, device, window, "resident", since_s=since_s)
        return {
            "device_id": device_id,
            "duration_minutes": (times[-1] - times[0]) / 60.0 if times else 0.0,
            "data_points": len(times),
            "gpu_memory": msgspec.to_builtins(gpu),
            "python_memory": msgspec.to_builtins(host),
        }

    def generate_leak_report(self, output_file: str | Path | None = None) -> dict[str, object]:
        """Return the report so far, as `vramscope leak` prints it.

        Args:
            output_file: File to write it to as JSON.

        Raises:
            OutputFileError: The file cannot be written.
        """
        self._look()
        with self._lock:
            report = build_leak(self._log, self._provenance, self._rule, self._describe_tracking())
        return publish(report, output_file)

    def suggest_fixes(self, device_id: int) -> list[str]:
        """Return advice about the leaks of a device and of the host.

        Growth above the threshold that is not yet a leak comes with its rate and what is still unknown.
        """
        self._look()
        with self._lock:
            findings = describe_findings(self._log, self._provenance, KINDS["leak"])
            said = [it.advice for it in findings if it.device in (device_id, None) and it.advice]
            if findings:
                said += [f"Look at {grown.words}" for grown in self._grown]
            device = self._find(device_id)
            if device is not None:
                said += describe_seen_growth(self._log, device, self._rule)
        return list(dict.fromkeys(said)) or [NOTHING_FOUND]

    def _react(self) -> None:
        with self._lock:
            is_leaking = any(
                trail.finding.is_open and trail.finding.kind in (KINDS["leak"] or ())
                for trail in self._log.findings.values()
            )
            now_s = time.monotonic()
            is_due = self._looked_s is None or now_s - self._looked_s >= LOOK_EVERY_S
        if is_leaking and is_due:
            self._look()

    def _look(self) -> None:
        """Compare Python objects with the baseline; blocks the interpreter for tens of milliseconds."""
        if self._tracker is None:
            return
        grown = self._tracker.find_growth()
        with self._lock:
            self._grown = grown
            self._looked_s = time.monotonic()

    def _describe_tracking(self) -> Tracking:
        if self._tracker is None:
            return Tracking()
        return Tracking(
            requested=True,
            active=self._tracker.has_baseline,
            reason=COUNTED,
            sources=tuple(_describe(grown) for grown in self._grown),
        )


def _describe(grown: GrownType) -> TrackedSource:
    return TrackedSource(
        place=grown.words,
        file=None,
        line=None,
        function=None,
        grown_bytes=grown.size_bytes,
        blocks=grown.more,
        share=None,
    )
