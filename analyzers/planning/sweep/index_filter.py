"""Which sweeps of an index are wanted: `model=485B gpus>=1024 state=oom`, and words of their names."""

import re
from collections.abc import Callable, Sequence
from operator import eq, ge, gt, le, lt

from ....engine.errors import UsageError
from .index import IndexedSweep
from .model import STATES, CellState

EXPECTED = "model=NAME, gpus=N (or >=, <=, >, <), state=STATE, and words of the name"
_TOKEN = re.compile(r"(?P<key>[a-z]+)(?P<sign>>=|<=|=|>|<)(?P<value>.*)", re.IGNORECASE)
_SIGNS: dict[str, Callable[[float, float], bool]] = {"=": eq, ">=": ge, "<=": le, ">": gt, "<": lt}
Check = Callable[[IndexedSweep], bool]


def filter_sweeps(sweeps: Sequence[IndexedSweep], text: str) -> list[IndexedSweep]:
    """Return the sweeps that a filter lets pass.

    Args:
        sweeps: In any order.
        text: Conditions with blanks between them; all must hold.

    Raises:
        UsageError: A condition is none.
    """
    checks = [_read_condition(token) for token in text.split()]
    return [sweep for sweep in sweeps if all(check(sweep) for check in checks)]


def _read_condition(token: str) -> Check:
    match = _TOKEN.fullmatch(token)
    if match is None:
        word = token.casefold()
        return lambda sweep: word in _text_of(sweep)
    key = match["key"].lower()
    sign = match["sign"]
    value = match["value"]
    if key == "gpus":
        return _read_gpus(token, sign, value)
    if sign == "=" and key == "model":
        return lambda sweep: _is_model(sweep, value)
    if sign == "=" and key == "state":
        return _read_state(token, value)
    raise UsageError(f"filter {token}: expected {EXPECTED}")


def _read_gpus(token: str, sign: str, value: str) -> Check:
    number = value.replace(",", "")
    if not number.isdecimal():
        raise UsageError(f"filter {token}: expected a number of GPUs")
    compare = _SIGNS[sign]
    wanted = int(number)
    return lambda sweep: sweep.grid.world_size is not None and compare(sweep.grid.world_size, wanted)


def _read_state(token: str, value: str) -> Check:
    states: list[CellState] = [state for state in STATES if state == value.lower()]
    if not states:
        raise UsageError(f"filter {token}: expected one of {', '.join(STATES)}")
    return lambda sweep: any(cell.state in states for cell in sweep.grid.cells)


def _is_model(sweep: IndexedSweep, value: str) -> bool:
    return sweep.model is not None and sweep.model.casefold().removesuffix(
        "b"
    ) == value.casefold().removesuffix("b")


def _text_of(sweep: IndexedSweep) -> str:
    parts = (sweep.name, sweep.model, sweep.memory_dir, sweep.log_dir)
    return " ".join(part for part in parts if part is not None).casefold()
