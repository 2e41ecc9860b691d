"""Text of others: whatever it holds, what is left of it cannot steer a terminal."""

import json
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.engine.agent.hubs import make_sample
from tests.hostile import HOSTILE, PRINTED, list_forbidden, poison
from vramscope.engine.model import Sample
from vramscope.engine.ranks.listener import decode_packet
from vramscope.engine.text import (
    clean_texts,
    escape_json,
    make_ascii,
    make_csv_cell,
    make_printable,
    make_printable_lines,
)
from vramscope.engine.wire.messages import body_of, decode, encode

anything = st.text(st.characters(codec=None) | st.sampled_from(HOSTILE))
FORBIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Categories of Unicode of which nothing is drawn."""


@given(anything)
def test_nothing_is_left_that_is_no_character_to_draw(text: str) -> None:
    shown = make_printable(text)
    assert not {unicodedata.category(it) for it in shown} & FORBIDDEN
    assert len(shown) == len(text)
    assert make_printable(shown) == shown
    shown.encode()


@given(anything)
def test_what_can_be_drawn_stays(text: str) -> None:
    kept = "".join(it for it in text if unicodedata.category(it) not in FORBIDDEN)
    assert make_printable(kept) == kept


@given(anything)
def test_lines_stay_lines(text: str) -> None:
    shown = make_printable_lines(text)
    assert shown.count("\n") == text.count("\n")
    assert not {unicodedata.category(it) for it in shown if it not in "\n\t"} & FORBIDDEN


@given(anything)
def test_ascii_takes_as_many_characters(text: str) -> None:
    shown = make_ascii(make_printable(text))
    assert shown.isascii()
    assert len(shown) == len(text)


@pytest.mark.parametrize(
    "text", ["größe", "機械", "no\u00a0break", "q\u0303", "wide\u3000blank", "日本 GPU ▲"]
)
def test_words_of_any_script_are_as_they_were(text: str) -> None:
    assert make_printable(text) == text
    assert cell_len(make_printable(text)) == cell_len(text)


def test_a_long_name_is_cut_and_says_so() -> None:
    assert make_printable("n" * 300, 10) == "nnnnnnnnn…"
    assert make_printable("n" * 10, 10) == "n" * 10


def test_a_line_break_is_a_blank_and_an_escape_is_visible() -> None:
    assert make_printable("a\nb\tc\x1b[5m\x9b1m\u202e") == "a b c�[5m�1m�"


@given(st.text())
def test_json_means_the_same_and_steers_nothing(text: str) -> None:
    written = escape_json(msgspec.json.encode([text, {text: 1}]))
    assert json.loads(written) == [text, {text: 1}]
    assert not [it for it in written.decode() if unicodedata.category(it) in FORBIDDEN]


def test_a_clean_message_is_handed_on_as_it_is() -> None:
    sample = make_sample(1)
    assert clean_texts(sample) is sample


@pytest.mark.parametrize("is_large", [False, True])
def test_every_text_of_a_message_is_made_printable(is_large: bool) -> None:
    sample = clean_texts(poison(make_sample(1), HOSTILE), is_large=is_large)
    written = json.dumps(msgspec.to_builtins(sample), ensure_ascii=False)
    assert not list_forbidden(written)
    assert "]52;c;" in written


def test_what_a_remote_agent_sends_is_made_printable() -> None:
    sample = poison(make_sample(1))
    received = body_of(decode(encode("sample", "hub", sample)), Sample)
    assert received.node == make_printable(sample.node)
    assert not list_forbidden(json.dumps(msgspec.to_builtins(received), ensure_ascii=False))


def test_what_a_process_sends_is_made_printable() -> None:
    packet = {"v": 1, "kind": "advised", "request": 1, "is_obeyed": True, "outcome": PRINTED}
    message = decode_packet(json.dumps(packet).encode())
    assert not list_forbidden(json.dumps(msgspec.to_builtins(message), ensure_ascii=False))


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)"])
def test_a_spreadsheet_computes_no_cell(text: str) -> None:
    assert make_csv_cell(text) == f"'{text}"
    assert make_csv_cell("n1/GPU-0") == "n1/GPU-0"
