"""Device memory profiles of JAX: a recorded one, made-up ones, and bytes that are none.

`jax/cpu.prof` was recorded by JAX 0.10.2 on the CPU; the paths in it were replaced.
"""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.detect import identify
from vramscope.engine.files.device_profile import (
    begins_device_profile,
    is_device_profile,
    parse_device_profile,
    read_device_profile,
)

RECORDED = Path(__file__).with_name("jax") / "cpu.prof"


def number(value: int) -> bytes:
    """Return a number as protocol buffers write it."""
    value &= (1 << 64) - 1
    written = b""
    while value >= 0x80:
        written += bytes([value & 0x7F | 0x80])
        value >>= 7
    return written + bytes([value])


def field(place: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return number(place << 3) + number(value)
    return number(place << 3 | 2) + number(len(value)) + value


TEXTS = [
    "",
    "allocations",
    "count",
    "space",
    "bytes",
    "kind",
    "buffer",
    "device",
    "gpu:0",
    "build",
    "/job/t.py",
]


def make_profile(samples: list[tuple[int, int]], *, is_packed: bool = True) -> bytes:
    """Return a profile of buffers on one GPU, each of a count and a size."""
    data = field(1, field(1, 1) + field(2, 2)) + field(1, field(1, 3) + field(2, 4))
    labels = field(3, field(1, 5) + field(2, 6)) + field(3, field(1, 7) + field(2, 8))
    for count, size in samples:
        values = field(2, number(count) + number(size)) if is_packed else field(2, count) + field(2, size)
        data += field(2, field(1, 7) + values + labels)
    data += field(4, field(1, 7) + field(4, field(1, 3) + field(2, 42)))
    data += field(5, field(1, 3) + field(2, 9) + field(4, 10))
    return data + b"".join(field(6, text.encode()) for text in TEXTS)


def test_a_recorded_profile_has_its_arrays_with_their_lines() -> None:
    profile = read_device_profile(RECORDED)
    arrays = [it for it in profile.buffers if it.kind == "buffer"]
    assert {it.device for it in arrays} == {"cpu:0"}
    # Four arrays of 256 x 256 float32 that one line makes, the first while JAX compiles.
    made = [it for it in arrays if "build_weights" in {frame.name for frame in it.frames}]
    assert (sum(it.size_bytes for it in made), sum(it.count for it in made)) == (4 * 256 * 256 * 4, 4)
    assert all(it.frames[-1].filename == "/job/train.py" for it in made)
    assert {it.kind for it in profile.buffers} == {"buffer", "executable"}
    assert is_device_profile(RECORDED)
    kind = identify(RECORDED)
    assert kind is not None
    assert kind.words == "a device memory profile of JAX"


@pytest.mark.parametrize("is_packed", [True, False])
def test_values_labels_and_frames_are_read(is_packed: bool) -> None:
    profile = parse_device_profile(make_profile([(2, 300), (1, 5000)], is_packed=is_packed))
    assert [(it.size_bytes, it.count, it.kind, it.device) for it in profile.buffers] == [
        (5000, 1, "buffer", "gpu:0"),
        (300, 2, "buffer", "gpu:0"),
    ]
    (frame,) = profile.buffers[0].frames
    assert (frame.filename, frame.line, frame.name) == ("/job/t.py", 42, "build")


def test_sizes_below_zero_are_left_out_and_counted() -> None:
    profile = parse_device_profile(make_profile([(1, -5), (1, 7)]))
    assert [it.size_bytes for it in profile.buffers] == [7]
    assert profile.notes == ("1 samples of less than 0 bytes were left out",)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no table of texts"),
        (field(6, b"") + field(1, field(1, 9)), "text 9 is missing"),
        (field(6, b""), "no column of bytes"),
        (make_profile([(1, 2)])[:-3], "ends behind its message"),
        (b"\x0b", "a field of type 3"),
        (b"\xff" * 11, "a number has no end"),
        (field(0, 1), "a field has no number"),
    ],
)
def test_what_is_no_profile_is_refused_with_its_reason(data: bytes, why: str) -> None:
    with pytest.raises(InputFileError, match=why):
        parse_device_profile(data)


def test_the_refusal_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "some.prof"
    path.write_bytes(gzip.compress(b"\x0b"))
    with pytest.raises(
        InputFileError, match=r"some\.prof: a field of type 3; expected a device memory profile"
    ):
        read_device_profile(path)


@pytest.mark.parametrize(
    "head", [b"", b"\n a text that begins with an empty line\n" * 9, b"\x80\x04}", b"{}"]
)
def test_other_files_do_not_begin_as_a_profile(head: bytes) -> None:
    assert not begins_device_profile(head)


@given(st.data())
def test_damaged_profiles_are_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(gzip.decompress(RECORDED.read_bytes()))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        profile = parse_device_profile(damaged)
    except InputFileError:
        return
    assert all(it.size_bytes >= 0 and it.count >= 0 for it in profile.buffers)
