"""Which devices of a fleet are wanted: `node:gpu1* used>90% !job:debug`, and words."""

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from operator import eq, ge, gt, le, lt
from typing import get_args

from ...engine.errors import UsageError
from ...engine.model import DeviceState
from ...engine.units import parse_bytes, parse_duration
from ..risk import LEVELS
from .model import FleetDevice

Check = Callable[[FleetDevice], bool]
Number = Callable[[FleetDevice], float | None]

_TERM = re.compile(r"(?P<key>[a-z]+)(?P<sign>>=|<=|=|:|>|<)(?P<value>.*)", re.IGNORECASE)
_SIGNS: dict[str, Callable[[float, float], bool]] = {":": eq, "=": eq, ">=": ge, "<=": le, ">": gt, "<": lt}
_TEXTS: dict[str, Callable[[FleetDevice], Sequence[str]]] = {
    "node": lambda it: (it.node,),
    "job": lambda it: it.jobs,
    "gpu": lambda it: (it.label,),
    "model": lambda it: (it.model or "",),
    "finding": lambda it: it.kinds,
    "state": lambda it: (it.state,),
}
_NUMBERS: dict[str, Number] = {
    "risk": lambda it: LEVELS.index(it.level),
    "oom": lambda it: it.oom_in_s,
    "probability": lambda it: it.probability,
    "rank": lambda it: it.rank,
    "tp": lambda it: it.tp,
    "pp": lambda it: it.pp,
    "dp": lambda it: it.dp,
}
KEYS = (*_TEXTS, "used", "free", *_NUMBERS)
_NEAR = 0.7
"""How alike words are of which one is offered for the other: `usd` and `used`, not `foo` and `oom`."""
EXAMPLE = "node:gpu1* used>90% risk>=medium job:NAME pp:0, words; ! before one turns it round"


def compile_filter(text: str) -> Check:
    """Return what tells whether a device is wanted: all terms of a text must hold.

    A term about what nobody measured does not hold.

    Args:
        text: Terms with blanks between them; empty wants every device.

    Raises:
        UsageError: A term is none; the text names it.
    """
    checks = [_read_signed(term) for term in text.split()]
    return lambda device: all(check(device) for check in checks)


def _read_signed(term: str) -> Check:
    if not term.startswith("!"):
        return _read_term(term)
    if len(term) == 1:
        raise UsageError("filter !: expected a term after it, such as !job:debug")
    check = _read_term(term[1:])
    return lambda device: not check(device)


def _read_term(term: str) -> Check:
    match = _TERM.fullmatch(term)
    if match is None:
        word = term.casefold()
        return lambda device: word in _text_of(device)
    key = match["key"].lower()
    sign = match["sign"]
    value = match["value"]
    if not value:
        raise UsageError(f"filter {term}: expected a value after {sign}")
    if key in _TEXTS:
        return _read_text(term, key, sign, value)
    if key in ("used", "free"):
        return _read_memory(term, key, sign, value)
    if key not in KEYS:
        raise UsageError(f"filter {term}: {_explain(key)}")
    return _compare(_NUMBERS[key], sign, _read_value(term, key, value))


def _read_value(term: str, key: str, value: str) -> float:
    if key == "risk":
        return _read_level(term, value)
    if key == "oom":
        return _read_time(term, value)
    return _read_share(term, value) if key == "probability" else _read_number(term, value)


def _explain(key: str) -> str:
    near = get_close_matches(key, KEYS, n=1, cutoff=_NEAR)
    return f"did you mean {near[0]}?" if near else f"expected one of {', '.join(KEYS)}"


def _read_text(term: str, key: str, sign: str, value: str) -> Check:
    if sign not in (":", "="):
        raise UsageError(f"filter {term}: {key} is a name and takes : with * and ?, not {sign}")
    patterns = [pattern for pattern in value.casefold().split(",") if pattern]
    if key == "state" and not any(
        fnmatchcase(it, pattern) for it in get_args(DeviceState) for pattern in patterns
    ):
        raise UsageError(f"filter {term}: expected one of {', '.join(get_args(DeviceState))}")
    texts = _TEXTS[key]
    return lambda it: any(fnmatchcase(text.casefold(), pattern) for text in texts(it) for pattern in patterns)


def _read_memory(term: str, key: str, sign: str, value: str) -> Check:
    """Return a check of a share of the capacity (`used>90%`), or of bytes (`free<2GiB`)."""
    is_used = key == "used"
    if value.endswith("%"):
        share = _read_share(term, value)
        return _compare(lambda it: _invert(it.used_share, 1.0, is_used=is_used), sign, share)
    try:
        size = parse_bytes(value)
        if size and value[-1].isdigit():  # `used>90` means a share, and would be 90 bytes
            raise UsageError(value)
    except (UsageError, OverflowError):
        raise UsageError(f"filter {term}: expected a share such as 90%, or a size such as 70GiB") from None
    return _compare(lambda it: _invert(it.used_bytes, it.total_bytes, is_used=is_used), sign, size)


def _invert(used: float | None, whole: float | None, *, is_used: bool) -> float | None:
    """Return what is used, or what is left of the whole."""
    if is_used or used is None:
        return used
    return None if whole is None else round(whole - used, 9)


def _read_share(term: str, value: str) -> float:
    number = _read_number(term, value.removesuffix("%"))
    return number / 100 if value.endswith("%") else number


def _read_number(term: str, value: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", value, re.ASCII):
        raise UsageError(f"filter {term}: expected a number, not {value}")
    return float(value)


def _read_time(term: str, value: str) -> float:
    try:
        return parse_duration(value)
    except (UsageError, OverflowError):
        raise UsageError(f"filter {term}: expected a time such as 90s, 10m or 2h") from None


def _read_level(term: str, value: str) -> int:
    """Return the place of a level; `unknown` stands between low and medium."""
    level = next((it for it in LEVELS if it == value.lower()), None)
    if level is None:
        raise UsageError(f"filter {term}: expected one of {', '.join(LEVELS)}")
    return LEVELS.index(level)


def _compare(number: Number, sign: str, wanted: float) -> Check:
    compare = _SIGNS[sign]

    def holds(device: FleetDevice) -> bool:
        found = number(device)
        return found is not None and compare(found, wanted)

    return holds


def _text_of(device: FleetDevice) -> str:
    return " ".join((device.node, device.name, device.model or "", *device.jobs, *device.kinds)).casefold()
