"""Reads the text in which servers expose metrics to Prometheus; only the names that are asked for.

The format is version 0.0.4 of Prometheus' text format: a name, labels in braces, a value, perhaps a time.
What is malformed is left out: nothing of it is ever a number.
"""

import math
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

MOST_SERIES = 20_000
MOST_LABELS = 64
_LABEL = r'[a-zA-Z_]\w{0,99}="(?:[^"\\\n]|\\.){0,1000}"'
_LABELS = rf"(?:\{{[ \t]*((?:{_LABEL}[ \t]*,?[ \t]*){{0,{MOST_LABELS}}})\}})?"
_PAIR = re.compile(r'([a-zA-Z_]\w{0,99})="((?:[^"\\\n]|\\.){0,1000})"')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n"}


class Series(NamedTuple):
    labels: dict[str, str]
    value: float


@lru_cache(maxsize=16)
def _compile(names: frozenset[str]) -> re.Pattern[str]:
    known = "|".join(sorted(map(re.escape, names)))
    return re.compile(rf"^({known}){_LABELS}[ \t]+([-+.\w]{{1,40}})(?:[ \t]+-?\d{{1,20}})?[ \t\r]*$", re.M)


def read_series(text: str, names: Iterable[str]) -> dict[str, list[Series]]:
    """Return the finite values of some names, each with its labels."""
    found: dict[str, list[Series]] = {}
    for count, match in enumerate(_compile(frozenset(names)).finditer(text)):
        if count >= MOST_SERIES:
            break
        try:
            value = float(match[3])
        except ValueError:
            continue
        if math.isfinite(value):
            found.setdefault(match[1], []).append(Series(_read_labels(match[2] or ""), value))
    return found


def _read_labels(text: str) -> dict[str, str]:
    return {
        name: _ESCAPE.sub(lambda it: _ESCAPED.get(it[1], it[1]), value) if "\\" in value else value
        for name, value in _PAIR.findall(text)
    }
