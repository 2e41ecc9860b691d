"""Columns hold exactly what was put in, and what is damaged is refused."""

import zlib

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramscope.engine.model import Sample
from vramscope.engine.recording.block import (
    BlockError,
    Body,
    ColumnError,
    TickedSample,
    list_columns,
    pack_samples,
    pack_told,
    pack_values,
    unpack_samples,
    unpack_told,
    unpack_values,
)
from vramscope.engine.recording.contents import Told
from vramscope.engine.text import clean_texts

from .samples import arbitrary, arbitrary_samples, make_sample

thorough = settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
ints = st.integers(-(1 << 63), (1 << 64) - 1)


@thorough
@given(arbitrary_samples, st.integers(0, 1 << 40))
def test_any_samples_come_back_to_the_last_bit_with_printable_texts(
    samples: list[Sample], first: int
) -> None:
    rows = [TickedSample(first + place, sample) for place, sample in enumerate(samples)]
    read = unpack_samples(pack_samples(rows), list_columns())
    # Encoded, because a NaN equals nothing and 0.0 equals -0.0.
    assert msgspec.msgpack.encode(read) == msgspec.msgpack.encode(clean_texts(rows))


@thorough
@given(st.lists(arbitrary(Told), max_size=4))
def test_what_was_said_comes_back_as_it_was(told: list[Told]) -> None:
    read = unpack_told(pack_told(told), list_columns())
    assert msgspec.msgpack.encode(read) == msgspec.msgpack.encode(clean_texts(told))


@given(st.lists(ints | st.integers(-300, 300), min_size=1, max_size=40))
def test_any_integers_come_back(values: list[int]) -> None:
    decoder = msgspec.msgpack.Decoder(list[int])
    assert list(unpack_values(pack_values(values, "int"), "int", len(values), decoder)) == values


def test_figures_that_change_cost_few_bytes_and_those_that_do_not_almost_none() -> None:
    changing = pack_samples([TickedSample(tick, make_sample(tick, 8)) for tick in range(500)])
    constant = pack_samples([TickedSample(tick, make_sample(0, 8)) for tick in range(500)])
    assert len(changing.data) < 40 * 500 * 8
    assert len(constant.data) < 5000


def test_an_older_file_lacks_fields_and_a_newer_one_has_more() -> None:
    """Columns are found by name: a missing field gets its default, an unknown one is passed over."""
    rows = [TickedSample(tick, make_sample(tick)) for tick in range(3)]
    names = dict(list_columns())
    renamed = tuple("sample.devices.new" if it.endswith("temperature_c") else it for it in names["samples"])
    read = unpack_samples(pack_samples(rows), {**names, "samples": renamed})
    expected = [
        msgspec.structs.replace(device, temperature_c=None) for it in rows for device in it.sample.devices
    ]
    assert [device for it in read for device in it.sample.devices] == expected


@thorough
@given(st.integers(0, 1 << 30), st.binary(min_size=1, max_size=8), st.booleans())
def test_a_damaged_body_is_refused_or_holds_samples(place: int, bytes_: bytes, is_inside: bool) -> None:
    body = pack_samples([TickedSample(tick, make_sample(tick)) for tick in range(5)])
    raw = zlib.decompress(body.data) if is_inside else body.data
    at = place % len(raw)
    damaged = raw[:at] + bytes_ + raw[at + len(bytes_) :]
    data = zlib.compress(damaged) if is_inside else damaged
    try:
        read = unpack_samples(Body(data, len(damaged) if is_inside else body.raw_bytes, 5), list_columns())
    except BlockError:
        return
    msgspec.msgpack.decode(msgspec.msgpack.encode(read), type=list[TickedSample])


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(Body(zlib.compress(bytes(20 << 20)), 1000, 5), id="unpacks to more than it says"),
        pytest.param(Body(zlib.compress(bytes(100)), 1 << 40, 5), id="says that it unpacks to a terabyte"),
        pytest.param(Body(zlib.compress(bytes(100)), 100, 1 << 40), id="a trillion rows"),
        pytest.param(Body(b"", 0, 1), id="empty"),
    ],
)
def test_a_decompression_bomb_is_refused_before_it_unpacks(body: Body) -> None:
    with pytest.raises(BlockError):
        unpack_samples(body, list_columns())


@pytest.mark.parametrize("kind", ["int", "choice"])
@pytest.mark.parametrize("head", [b"\xdd\xff\xff\xff\xff", b"\xdc\xff\xff", b"\x90", b"\xc0"])
def test_a_list_is_refused_by_its_head_before_it_is_decoded(kind: str, head: bytes) -> None:
    class Decoder:
        """Fails where anything is decoded at all."""

        def decode(self, _: bytes) -> None:
            pytest.fail("it was decoded")

    how = {"int": b"\x07", "choice": b"\x05" + (300_000).to_bytes(4, "little")}[kind]
    with pytest.raises(ColumnError):
        unpack_values(how + head + bytes(300_000), kind, 5, Decoder())  # type: ignore[arg-type]


def test_a_count_of_a_million_devices_in_every_sample_is_refused() -> None:
    names, values = list_columns()["samples"], pack_values([1_000_000] * 600, "int")
    columns = [values if name == "sample.devices#" else b"\x00" for name in names]
    lengths = b"".join(len(it).to_bytes(4, "little") for it in columns)
    raw = len(columns).to_bytes(4, "little") + lengths + b"".join(columns)
    with pytest.raises(BlockError):
        unpack_samples(Body(zlib.compress(raw), len(raw), 600), list_columns())
