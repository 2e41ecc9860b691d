"""Garbage and damage: whatever a file holds, the outcome is a sound snapshot or one line."""

import pickle
import subprocess
import sys
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import REPOSITORY
from vramscope.engine.errors import InputFileError
from vramscope.engine.files.memory_snapshot import MemorySnapshot, convert_tree, read_memory_snapshot

from .snapshots import BASE, LINEAR, event, small_snapshot, snapshot

MANY = """
import io, pickle, random, resource, sys
from tests.engine.files.snapshots import small_snapshot
from vramscope.engine.files.memory_snapshot.decoder import decode

# A little more than what is held: memory that damaged bytes ask for is refused, not given.
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
chance = random.Random(int(sys.argv[1]))
outcomes = [0, 0]
for protocol in (2, 3, 4, 5):
    good = pickle.dumps(small_snapshot(), protocol=protocol)
    for _ in range(400):
        data = bytearray(good)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(2, len(data))] = chance.randrange(256)
        reply = decode(io.BufferedReader(io.BytesIO(data)))
        assert (reply.snapshot is None) == bool(reply.refusal or reply.is_out_of_memory)
        assert reply.refusal is None or "\\n" not in reply.refusal
        outcomes[reply.snapshot is None] += 1
print(*outcomes)
"""


def check_columns(found: MemorySnapshot) -> None:
    blocks, segments = found.blocks, found.segments
    assert len(blocks) == len(blocks.size_bytes) == len(blocks.state) == len(blocks.stack)
    assert len(blocks) == len(blocks.requested_bytes)
    assert list(segments.first_block) == sorted(segments.first_block)
    assert len(segments.first_block) == len(segments) + 1
    assert segments.first_block[-1] == len(blocks)
    assert min(blocks.size_bytes, default=0) >= 0
    assert max((*blocks.stack, *segments.stack), default=-1) < len(found.stacks)
    for trace in found.traces:
        assert len({len(trace), len(trace.address), len(trace.size_bytes), len(trace.stack)}) == 1


def test_thousands_of_damaged_pickles_are_read_or_refused() -> None:
    result = subprocess.run(
        [sys.executable, "-c", MANY, "7"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    read, refused = map(int, result.stdout.split())
    # Damage within a number or a name goes unseen, anything else does not.
    assert read + refused == 1600
    assert refused > 400


fuzz = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
EVENTS = [event("alloc", BASE, 512, 1, frames=LINEAR), event("oom", 5, 6, 7)]
GOOD = pickle.dumps(snapshot(small_snapshot()["segments"], EVENTS), protocol=4)


@settings(fuzz, max_examples=20)
@given(st.lists(st.tuples(st.integers(0, len(GOOD)), st.binary(max_size=4), st.integers(0, 8)), max_size=4))
def test_mutated_files_never_surprise(tmp_path: Path, edits: list[tuple[int, bytes, int]]) -> None:
    data = GOOD
    for position, new, removed in edits:
        data = data[:position] + new + data[position + removed :]
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(data)
    refused = ""
    try:
        check_columns(read_memory_snapshot(path))
    except InputFileError as error:
        refused = str(error)
    assert "\n" not in refused


SHAPE = ["segments", "device_traces", "blocks", "frames", "history", "allocator_settings", "segment_type"]
FIGURES = ["address", "size", "total_size", "state", "requested_size", "action", "addr", "time_us", "stream"]
KEYS = st.sampled_from([*SHAPE, *FIGURES])
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["inactive", "active_allocated", "large", "alloc", "oom", ""])
    | st.binary(max_size=3)
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS | leaves, inner, max_size=5)
        | st.tuples(inner, inner)
    ),
    max_leaves=25,
)


def convert(root: object) -> None:
    """Convert a tree that may hold anything."""
    refused = ""
    try:
        check_columns(convert_tree(root))
    except InputFileError as error:
        refused = str(error)
    assert "\n" not in refused


@fuzz
@given(trees)
def test_any_tree_is_converted_or_refused(root: object) -> None:
    convert(root)


@settings(fuzz, max_examples=300)
@given(st.data())
def test_any_value_anywhere_is_converted_or_refused(data: st.DataObject) -> None:
    root = pickle.loads(GOOD)  # noqa: S301 - made above
    place: object = root
    while isinstance(place, list | dict) and place:
        key = data.draw(st.sampled_from(list(place) if isinstance(place, dict) else list(range(len(place)))))
        if data.draw(st.booleans()) or not isinstance(place[key], list | dict) or not place[key]:
            place[key] = data.draw(trees)
            break
        place = place[key]
    convert(root)
