"""Fuzzing without coverage: inputs that fuzzing has reached, changed where their format has its joints.

What is executed is not watched, so several times as many inputs are read in the same time. Only `guided` runs
find new ground; this one goes over it far more often.
"""

import hashlib
import random
import re
import signal
import sys
import time
import traceback
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeVar

import msgspec

EDGES = (
    *(0, 1, -1, 127, 128, 255, 256, 65535, 1 << 31, (1 << 31) - 1, -(1 << 31), 1 << 32, 1 << 40, 1 << 50),
    *((1 << 53) + 1, (1 << 63) - 1, 1 << 63, -(1 << 63), (1 << 64) - 1),
)
_MARKS = (
    *(b"1e309", b"-1e309", b"1e-320", b"NaN", b"nan", b"-inf", b"Infinity", b"0x1f", b"1_000", b"00", b"+1"),
    *(
        b"1.",
        b"9" * 400,
        b"9" * 5000,
        b"\x00",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\r\n",
        b"\n\n",
        b"\r",
    ),
    *(b"null", b"true", b"false", b"[]", b"{}", b'""', b"[" * 100, b'{"a":' * 100, b"\\ud800", b"\\u0000"),
    *("é\u202e\u0661\U0001f600".encode(), b"\x1b[2J", b"\xc3", b"\xed\xa0\x80", b"\x1f\x8b"),
)
_LEAVES: tuple[Any, ...] = (
    *EDGES,
    *(None, True, False, 0.5, -0.0, 1e308, 5e-324, float("nan"), float("inf"), float("-inf"), 1.7e9),
    *("", "a", "é\n\x1b[2J", "\u202e", "x" * 300, b"", b"\xc1", [], {}, [None], {"": None}),
)
_Thing = TypeVar("_Thing")
_TOKEN = re.compile(rb"[A-Za-z_]+|\d+(?:\.\d+)?|\s+|[^A-Za-z_\d\s]")
_MOST_JOINTS = 2000
_MOST_CHANGES = 6
# An input that takes many times longer than most is drawn that much less often, down to the least.
_SLOW, _LEAST_WEIGHT = 8.0, 0.02
_MOST_KEPT = 20


class TooSlowError(BaseException):
    """Raised within a reader; readers catch every Exception of theirs."""


class _Known(NamedTuple):
    data: bytes
    # Where its tokens begin, and its end; those of a text are its words, numbers and marks.
    joints: tuple[int, ...]
    # What it holds, where it is MessagePack or JSON, perhaps behind the byte that says its ending.
    tree: Any = None
    encode: Callable[[Any], bytes] = msgspec.msgpack.encode
    prefix: bytes = b""


class Mutator:
    """Makes inputs from those that are known.

    Args:
        inputs: Sound ones, and what fuzzing has reached.
        words: Of the format.
        weights: How often each input is drawn, next to the others.
    """

    def __init__(
        self,
        inputs: Iterable[bytes],
        words: Iterable[bytes] = (),
        *,
        most_bytes: int,
        weights: Iterable[float] | None = None,
        seed: int | None = None,
    ) -> None:
        self._random = random.Random(seed)
        self._known = [_know(data) for data in inputs]
        tokens = {it.data[a:b] for it in self._known for a, b in pairwise(it.joints)}
        edges = (str(number).encode() for number in EDGES)
        self._words = [*edges, *_MARKS, *sorted({*words, *(it for it in tokens if len(it) > 1)})]
        self._leaves = [*_LEAVES, *(leaf for it in self._known for leaf in _list_leaves(it.tree))]
        self._words_alike = _group(self._words, _name_kind)
        self._leaves_alike = _group(self._leaves, lambda it: type(it).__name__)
        self._most_bytes = most_bytes
        self._weights = list(accumulate([1.0] * len(self._known) if weights is None else weights))

    def make(self) -> bytes:
        draw = self._random.random
        known = self._known[min(bisect(self._weights, draw() * self._weights[-1]), len(self._known) - 1)]
        if known.tree is not None and draw() < 0.7:
            tree = self._change_tree(known.tree)
            while draw() < 0.4:
                tree = self._change_tree(tree)
            data = known.prefix + known.encode(tree)
            if draw() < 0.8:
                return data[: self._most_bytes]
        else:
            data = self._change_tokens(known)
        changes = 0
        while draw() < 0.45 and changes < _MOST_CHANGES:
            data = self._change_bytes(data)
            changes += 1
        return data[: self._most_bytes]

    def _pick(self, things: Sequence[Any]) -> Any:
        return things[int(self._random.random() * len(things))]

    def _change_tokens(self, known: _Known) -> bytes:
        draw, data, joints = self._random.random, known.data, known.joints
        at = int(draw() * (len(joints) - 1))
        start = joints[at]
        end = joints[min(len(joints) - 1, at + 1 + (int(draw() * 8) if draw() < 0.3 else 0))]
        kind = draw()
        if kind < 0.5:  # another word, in its place or before it
            alike = self._words_alike.get(_name_kind(data[start:end]), self._words)
            between = self._pick(alike if draw() < 0.6 else self._words)
            end = end if kind < 0.4 else start
        elif kind < 0.6:
            between = b""
        elif kind < 0.7:  # once more, or many times
            between = data[start:end] * (2 if draw() < 0.8 else int(draw() * 200))
        else:  # a part of another input, or its whole end
            other = self._pick(self._known)
            begin = int(draw() * len(other.joints))
            until = len(other.joints) - 1 if kind < 0.85 else begin + 1 + int(draw() * 12)
            between = other.data[other.joints[begin] : other.joints[min(len(other.joints) - 1, until)]]
            end = len(data) if kind < 0.85 else end
        return b"".join((data[:start], between, data[end:]))

    def _change_bytes(self, data: bytes) -> bytes:
        draw = self._random.random
        at, kind = int(draw() * (len(data) + 1)), draw()
        end, between = at, b""
        if kind < 0.3:
            between, end = bytes((int(draw() * 256),)), at + 1
        elif kind < 0.5:
            between, end = bytes(byte ^ (1 << int(draw() * 8)) for byte in data[at : at + 1]), at + 1
        elif kind < 0.6:
            end = at + 1 + int(draw() * 8)
        elif kind < 0.7:
            between = self._pick(self._words)
        elif kind < 0.75:
            end = len(data)
        elif kind < 0.9:  # a number of a binary format
            size = 1 << int(draw() * 4)
            number = self._pick(EDGES) & ((1 << 8 * size) - 1)
            between, end = number.to_bytes(size, "little" if draw() < 0.5 else "big"), at + size
        else:
            other = self._pick(self._known).data
            begin = int(draw() * len(other))
            between = other[begin : begin + 1 + int(draw() * 64)]
        return b"".join((data[:at], between, data[end:]))

    def _change_tree(self, node: Any) -> Any:  # noqa: PLR0911 - a way for each kind of node
        draw = self._random.random
        kind = draw()
        if isinstance(node, list) and node and kind < 0.95:
            at = int(draw() * len(node))
            if kind < 0.05:
                return node[:at] + node[at + 1 :]
            if kind < 0.1:
                return [*node[:at], *[self._pick(node)] * (1 if draw() < 0.9 else 50), *node[at:]]
            return [*node[:at], self._change_tree(node[at]), *node[at + 1 :]]
        if isinstance(node, dict) and node and kind < 0.95:
            key = self._pick(list(node))
            if kind < 0.05:
                return {name: value for name, value in node.items() if name != key}
            if kind < 0.08:
                return {**node, self._pick(list(node)): node[key]}
            return {**node, key: self._change_tree(node[key])}
        if isinstance(node, bytes) and kind < 0.9 and (inner := _read_msgpack(node)) is not None:
            return msgspec.msgpack.encode(self._change_tree(inner))
        if isinstance(node, int) and kind < 0.3:
            return max(-(1 << 63), min((1 << 64) - 1, node + int(draw() * 5) - 2))
        alike = self._leaves_alike.get(type(node).__name__, self._leaves)
        return self._pick(alike if kind < 0.7 else self._leaves)


def _group(things: Iterable[_Thing], name: Callable[[_Thing], str]) -> dict[str, list[_Thing]]:
    groups = defaultdict[str, list[_Thing]](list)
    for it in things:
        groups[name(it)].append(it)
    return dict(groups)


def _name_kind(word: bytes) -> str:
    return "number" if word[:1].isdigit() else "name" if word[:1].isalpha() else "mark"


def _find_joints(data: bytes) -> tuple[int, ...]:
    """Return where tokens begin; those of a binary format are as good as any other places."""
    starts = [match.start() for match in _TOKEN.finditer(data)]
    step = 1 + len(starts) // _MOST_JOINTS
    return (*starts[::step], len(data))


def _know(data: bytes) -> _Known:
    joints = _find_joints(data)
    tree = _read_msgpack(data)
    if tree is not None:
        return _Known(data, joints, tree)
    for prefix, rest in ((b"", data), (data[:1], data[1:])):
        with suppress(msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
            tree = msgspec.json.decode(rest)
            msgspec.json.encode(tree)
            if isinstance(tree, list | dict):
                return _Known(data, joints, tree, msgspec.json.encode, prefix)
    return _Known(data, joints)


def _read_msgpack(data: bytes) -> Any:
    """Return what bytes hold as MessagePack with parts; None if they are something else."""
    if not data or not (0x80 <= data[0] <= 0x9F or data[0] in b"\xdc\xdd\xde\xdf"):
        return None
    try:
        tree = msgspec.msgpack.decode(data)
        msgspec.msgpack.encode(tree)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return None
    return tree if isinstance(tree, list | dict) else None


def _list_leaves(node: Any) -> Iterator[Any]:
    if isinstance(node, list):
        for it in node:
            yield from _list_leaves(it)
    elif isinstance(node, dict):
        for key, value in node.items():
            yield key
            yield from _list_leaves(value)
    elif isinstance(node, bytes) and (inner := _read_msgpack(node)) is not None:
        yield from _list_leaves(inner)
    elif node is not None:
        yield node


class Outcome(NamedTuple):
    executions: int
    # The files of what ended otherwise than by a refusal.
    finds: tuple[Path, ...]


def hammer(
    run: Callable[[bytes], object],
    make: Callable[[], bytes],
    folder: Path,
    *,
    seconds: float,
    slowest_s: int,
    most: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Run made inputs for a time, or `most` of them; keep one input of each failure in `folder`.

    An input that takes more than `slowest_s` CPU seconds is one; a busy machine stretches any other clock.
    """
    seen: dict[tuple[str, str, int], Path] = {}
    executions, data = 0, b""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise TooSlowError(f"more than {slowest_s} CPU seconds")

    before = signal.signal(signal.SIGPROF, interrupt)
    until_s = clock() + seconds
    try:
        while (executions & 63 or clock() < until_s) and executions != most:
            data = make()
            executions += 1
            signal.setitimer(signal.ITIMER_PROF, slowest_s)
            try:
                run(data)
            except (Exception, TooSlowError) as error:  # noqa: BLE001 - whatever it is, it is a find
                signal.setitimer(signal.ITIMER_PROF, 0)
                _keep_find(error, data, folder, seen)
                if len(seen) >= _MOST_KEPT:
                    break
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return Outcome(executions, tuple(seen.values()))


def _keep_find(
    error: BaseException, data: bytes, folder: Path, seen: dict[tuple[str, str, int], Path]
) -> None:
    last = traceback.extract_tb(error.__traceback__)[-1]
    key = (type(error).__name__, last.filename, last.lineno or 0)
    if key in seen:
        return
    seen[key] = path = folder / f"crash-{hashlib.sha1(data, usedforsecurity=False).hexdigest()}"
    path.write_bytes(data)
    traceback.print_exception(error, file=sys.stderr)
    print(f"kept {path}", file=sys.stderr, flush=True)


def weigh(run: Callable[[bytes], object], sound: Sequence[bytes], others: Sequence[bytes]) -> list[float]:
    """Return how often each input is to be drawn: half of the time a sound one, and slow ones less often."""
    taken_s = []
    for data in (*sound, *others):
        start_s = time.perf_counter()
        with suppress(Exception):  # a find, and kept where it is run as one
            run(data)
        taken_s.append(time.perf_counter() - start_s)
    most_s = _SLOW * sorted(taken_s)[len(taken_s) // 2]
    weights = [max(_LEAST_WEIGHT, min(1.0, most_s / it)) for it in taken_s]
    halves = sum(weights[: len(sound)]), sum(weights[len(sound) :])
    return [it / halves[place >= len(sound)] for place, it in enumerate(weights)]
