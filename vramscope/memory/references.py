"""Which Python objects have become more since a baseline, and who holds them.

Types are counted as the garbage collector knows them. Tensors are followed by weak references, so that those
that were there at the baseline are told from those that came and stayed.
"""

import gc
import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from types import ModuleType
from typing import Any, NamedTuple

LEAST_MORE = 50
"""A type that has become more by fewer objects is not named."""
LEAST_TENSORS = 2
MOST_TYPES = 5
MOST_HOLDERS = 3
SAMPLED = 16
"""Tensors whose holders are looked up: each look goes through every object there is."""
_OURS = __name__.partition(".")[0]


class GrownType(NamedTuple):
    """A type that has more objects than at the baseline."""

    name: str
    more: int
    size_bytes: int | None
    """Bytes of the tensors that came since; None for other types."""
    holders: tuple[str, ...]
    """Who holds some of them, in words."""

    @property
    def words(self) -> str:
        """What a sentence calls it."""
        size = "" if self.size_bytes is None else f", {self.size_bytes / 2**20:,.1f} MiB"
        held = f", held by {', '.join(self.holders)}" if self.holders else ""
        return f"{self.name}: {self.more:,} more than at the baseline{size}{held}"


class ReferenceTracker:
    """Compares what the garbage collector knows with a baseline; each look takes tens of milliseconds."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._known: dict[int, weakref.ref[Any]] = {}
        self.has_baseline = False

    def set_baseline(self) -> None:
        """Remember how many objects of each type there are, and which tensors."""
        objects = gc.get_objects()
        self._counts = Counter(map(_name_of, objects))
        self._known = {id(it): weakref.ref(it) for it in objects if _is_tensor(it)}
        self.has_baseline = True

    def find_growth(self) -> list[GrownType]:
        """Return what has grown since the baseline: tensors first, by bytes, then types, by count."""
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
    """Yield the containers of modules where a program has called `gc.freeze`: its referrers are not told."""
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
    """Return what a container is called: by the variable or attribute that holds it, where one does."""
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
    """Return whose variables a dictionary holds: a module's, or an object's."""
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
    """Tell a tensor by the name of its class, which asks nothing of the object itself."""
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
        return 0  # a fake or freed storage has no size to tell
