"""Fuzzing without coverage finds what a change of one token can reach, keeps it, and is counted honestly."""

import itertools
import json
from pathlib import Path

import msgspec
import pytest

from . import counts
from .blind import Mutator, hammer
from .targets import TARGETS

SOUND = [b'{"name": "step", "bytes": 12, "parts": [1, 2]}', b"name,bytes\nstep,12\n"]


def read_badly(data: bytes) -> None:
    """Refuse no JSON, but divide by a number of it."""
    try:
        row = msgspec.json.decode(data, type=dict[str, int | float | str | list[int]])
    except (msgspec.MsgspecError, ValueError):
        return
    if isinstance(row.get("bytes"), int):
        assert 1 // row["bytes"] >= 0  # type: ignore[operator]


def test_what_a_reader_does_not_withstand_is_found_and_kept_once_for_each_way_to_fail(tmp_path: Path) -> None:
    outcome = hammer(
        read_badly,
        Mutator(SOUND, most_bytes=1 << 12, seed=1).make,
        tmp_path,
        seconds=60,
        slowest_s=20,
        most=20_000,
    )
    kept = [path.read_bytes() for path in outcome.finds]
    assert sorted(path for path in tmp_path.iterdir()) == sorted(outcome.finds)
    assert 1 <= len(kept) <= 2  # divided by 0, and a number below 0
    for data in kept:
        with pytest.raises((ZeroDivisionError, AssertionError)):
            read_badly(data)


def test_a_message_is_changed_within_what_it_holds(tmp_path: Path) -> None:
    inner = msgspec.msgpack.encode({"kind": "sample", "body": {"devices": [1, 2]}})
    seen = set[str]()

    def read(data: bytes) -> None:
        try:
            for message in msgspec.msgpack.decode(data, type=list[bytes]):
                body = msgspec.msgpack.decode(message, type=dict[str, object]).get("body")
                seen.update(repr(it) for it in body.get("devices", [])) if isinstance(body, dict) else None
        except (msgspec.MsgspecError, ValueError, TypeError):
            return

    mutator = Mutator([msgspec.msgpack.encode([inner, inner])], most_bytes=1 << 12, seed=1)
    assert not hammer(read, mutator.make, tmp_path, seconds=60, slowest_s=20, most=5000).finds
    assert {"None", "nan", "''", str(1 << 63)} <= seen


def test_an_input_without_an_end_is_found(tmp_path: Path) -> None:
    def read(data: bytes) -> None:
        while data == b"b":
            pass

    made = iter([b"a", b"b", b"c"])
    outcome = hammer(read, made.__next__, tmp_path, seconds=60, slowest_s=1, most=3)
    assert outcome.executions == 3
    assert [path.read_bytes() for path in outcome.finds] == [b"b"]


def test_the_time_ends_it(tmp_path: Path) -> None:
    now_s = itertools.count()
    outcome = hammer(bytes, lambda: b"", tmp_path, seconds=2, slowest_s=20, clock=lambda: float(next(now_s)))
    assert 0 < outcome.executions <= 256


def test_executions_add_up_until_the_reader_changes(tmp_path: Path) -> None:
    file = tmp_path / "executions.json"
    counts.add("a", "old", guided=3, file=file)
    counts.add("b", "old", blind=1, file=file)
    assert counts.add("a", "old", blind=4, file=file).total == 7
    changed = counts.add("a", "new", blind=5, file=file)
    assert (changed.guided, changed.blind, changed.earlier) == (0, 5, 7)
    assert counts.load(file)["b"].total == 1
    assert json.loads(file.read_text())["a"]["earlier"] == 7
    row = counts.describe({"a": "newest"}, file).splitlines()[1].split()
    assert row[:5] == ["a", "0", "0", "0", "12"]


def test_a_reader_is_known_by_the_code_that_it_executes(tmp_path: Path) -> None:
    target = TARGETS["oom-text"]
    code = counts.find_code(target.replay, target.seeds())
    assert "oom_text.py" in {path.name for path in code}
    assert "case_table.py" not in {path.name for path in code}
    assert b"Tried to allocate" in b" ".join(counts.list_words(code))


def test_a_count_outlasts_a_comment_and_ends_with_a_change_of_what_is_executed(tmp_path: Path) -> None:
    file = tmp_path / "reader.py"

    def digest_of(text: str, lines: set[int]) -> str:
        file.write_text(text)
        return counts.digest({file: lines})

    text = "MOST = 3\ndef read(data):\n    return data[:MOST]\ndef write(data):\n    return 1\n"
    known = digest_of(text, {2})
    assert digest_of(f"# why\nimport os\n{text}".replace("return 1", "return 2"), {4}) == known
    assert (
        digest_of(text.replace("(data):\n    return data", '(data):\n    """Read."""\n    return data'), {2})
        == known
    )
    assert digest_of(text.replace("[:MOST]", "[MOST:]"), {2}) != known
    assert digest_of(text.replace("3", "4"), {2}) != known


def test_what_is_counted_is_what_is_fuzzed() -> None:
    assert set(counts.load()) <= set(TARGETS)
