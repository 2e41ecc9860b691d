"""Packets of the probe, sent and received: JSON, as `engine/ranks/messages.py` defines it for the hub."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from .base.foreign import Foreign

PROTOCOL = 1
SOCKET_NAME = "probe.sock"
MAX_PACKET_BYTES = 64 * 1024
# Readings or steps in one packet; the longest row has fewer than 250 characters.
MOST_ROWS = 200
# Characters of a segment map's base64 in one packet.
PART_CHARACTERS = 48 * 1024

# What is understood; announced to the hub, so that it need not ask in vain.
DEMANDS = ("segments", "detach", "history", "modules", "advise")
# Of a program of JAX, whose arrays are listed by stack alone.
JAX_DEMANDS = ("segments", "detach")
_LONGEST_TEXT = 800
_LONGEST_NOTE = 300
_MOST_NOTES = 12
# JSON may need six bytes for a character, and a hello of the longest texts still fits.
_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)

# Wall time in s; bytes allocated, requested, active, reserved, inactive split; retries, OOMs; bytes pinned on
# the host, bytes resident. None is unmeasured.
ReadingRow = tuple[float, Any, Any, Any, Any, Any, Any, Any, Any, Any]

# Index, wall time of the end, duration in s, floor and peak in bytes, whether the peak is exact.
StepRow = tuple[int, float, Any, Any, Any, bool]
# The same, then tokens and samples from the program, either of them None.
SizedStepRow = tuple[int, float, Any, Any, Any, bool, Any, Any]
_STEP_FIELDS = 6
# Name of a part, its calls so far; of the newest measured call: wall time of the end, duration in s, bytes
# allocated and reserved before, the same after, peak, whether that is exact; the most of all calls, and
# whether that is exact.
PhaseRow = tuple[str, int, float, Any, Any, Any, Any, Any, Any, bool, Any, bool]


class Demand(NamedTuple):
    """What a hub asks of this process."""

    # One of `DEMANDS`.
    kind: str
    request: int = 0
    is_on: bool = True
    # For `history`: how long at most. For the others: how long to wait for the end of a step.
    seconds: float | None = None
    # For `advise`: what to do, as `empty_cache`.
    action: str = ""
    # For `advise`: why, in one sentence.
    reason: str = ""


def encode_hello(about: dict[str, Any]) -> bytes:
    """Who reports: fields of a `Hello` except version and kind."""
    return _encode("hello", {name: _clean(value) for name, value in about.items() if value is not None})


def encode_readings(
    rows: Sequence[ReadingRow],
    dropped: int,
    phase: str | None,
    memory_history: str,
    counts: tuple[int | None, int | None] = (None, None),
) -> bytes:
    """Readings, oldest first, with the counts of allocations and frees."""
    rest = {
        "dropped": dropped,
        "phase": _clean(phase),
        "memory_history": memory_history,
        "allocations": counts[0],
        "frees": counts[1],
    }
    return _encode_rows("readings", rows, "," + _encoder.encode(rest)[1:])


def encode_steps(rows: Sequence[StepRow | SizedStepRow]) -> bytes:
    """Steps that ended, oldest first; sizes are separate, by the step's index."""
    sizes = [(row[0], *row[_STEP_FIELDS:]) for row in rows if len(row) > _STEP_FIELDS]
    if not sizes:
        return _encode_rows("steps", rows, "}")
    tail = f',"sizes":{_encoder.encode(sizes)}}}'
    return _encode_rows("steps", [row[:_STEP_FIELDS] for row in rows], tail)


def encode_phases(rows: Sequence[PhaseRow]) -> bytes:
    """Named parts, each row with all that is known of its name.

    It is a packet of steps, without any: a hub that does not know the field ignores it.
    """
    named = [[_clean(row[0]), *row[1:]] for row in rows]
    return _encode("steps", {"rows": [], "phases": named})


def encode_model_state(state: dict[str, int | None]) -> bytes:
    """Bytes of the optimizers."""
    return _encode("model_state", state)


def encode_segments_part(request: int, part: int, parts: int, data: str) -> bytes:
    return _encode("segments", {"request": request, "part": part, "parts": parts, "data": data})


def encode_modules_part(request: int, part: int, parts: int, data: str) -> bytes:
    return _encode("modules", {"request": request, "part": part, "parts": parts, "data": data})


def encode_refused(request: int, reason: str) -> bytes:
    """Why a demand is not met: a sentence without its subject."""
    return _encode("refused", {"request": request, "reason": _clean(reason, _LONGEST_NOTE)})


def encode_advised(request: int, is_obeyed: bool, outcome: str, freed_bytes: int | None) -> bytes:
    """What was done about an advice: a sentence without its subject."""
    fields = {"is_obeyed": is_obeyed, "outcome": _clean(outcome, _LONGEST_NOTE), "freed_bytes": freed_bytes}
    return _encode("advised", {"request": request, **fields})


def encode_out_of_memory(
    time_s: float, size_bytes: int | None, flight_record: str | None, reason: str | None
) -> bytes:
    fields = {
        "time_s": time_s,
        "size_bytes": size_bytes,
        "flight_record": _clean(flight_record),
        "reason": _clean(reason),
    }
    return _encode("oom", fields)


def encode_goodbye(reason: str) -> bytes:
    """The end of a report: `exit` or `detached`."""
    return _encode("goodbye", {"reason": "exit" if reason == "exit" else "detached"})


def decode_demand(packet: bytes) -> Demand | None:
    """Return what a hub asks, or None if it is not understood: newer, foreign or malformed."""
    try:
        content = json.loads(packet)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or content.get("v") != PROTOCOL:
        return None
    kind = content.get("kind")
    request = content.get("request", 0)
    if kind not in DEMANDS or type(request) is not int:
        return None
    seconds = _seconds(content.get("seconds"))
    is_on = content.get("is_on") is not False
    return Demand(kind, request, is_on, seconds, _text(content.get("action")), _text(content.get("reason")))


def _text(value: object) -> str:
    """Drop what could steer a terminal: the program may well print it."""
    text = value[:_LONGEST_NOTE] if isinstance(value, str) else ""
    return "".join(it if it.isprintable() else " " for it in text)


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def _encode(kind: str, fields: dict[str, Any]) -> bytes:
    """NaN and infinity, which JSON lacks, raise an exception."""
    content = {"v": PROTOCOL, "kind": kind, **fields}
    return _encoder.encode(content).encode("ascii")


def _encode_rows(kind: str, rows: Sequence[tuple[Any, ...]], tail: str) -> bytes:
    """Encode rows of numbers, truths and None, which Python writes like JSON except for names.

    It takes half as long as the encoder, of what the probe does most.
    """
    written = repr(list(rows)).replace(", ", ",").replace("(", "[").replace(")", "]")
    written = written.replace("None", "null")
    if kind == "steps":
        written = written.replace("True", "true").replace("False", "false")
    if "n" in written.replace("null", ""):
        raise ValueError(f"a row holds what JSON lacks: {written[:200]}")
    return f'{{"v":{PROTOCOL},"kind":"{kind}","rows":{written}{tail}'.encode("ascii")


def _clean(value: Foreign, longest: int = _LONGEST_TEXT) -> Foreign:
    """Shorten texts and make them encodable: file names may have any byte."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")[:longest]
    if isinstance(value, dict):
        return {name: _clean(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(inner, _LONGEST_NOTE) for inner in value[:_MOST_NOTES]]
    return value
