"""The text of Prometheus is read as it is meant, and whatever comes instead is left out."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.engine.sources.serving.answers import Series, read_series

from ....fuzz.targets import read_metrics

NAMES = ("vllm:a", "vllm:ab")
LINES = st.lists(
    st.one_of(
        st.text(max_size=40),
        st.sampled_from(["vllm:a 1", 'vllm:ab{x="y"} 2', "# TYPE vllm:a gauge", 'vllm:a{x="', "vllm:a{} "]),
    ),
    max_size=30,
)


def test_names_labels_values_and_times() -> None:
    text = (
        "# HELP vllm:a x\n# TYPE vllm:a gauge\n"
        'vllm:a{b="c",d="e\\"\\\\\\n"} 1.5e3 1700000000\r\nvllm:ab 2\nother 3\n'
    )
    assert read_series(text, NAMES) == {
        "vllm:a": [Series({"b": "c", "d": 'e"\\\n'}, 1500.0)],
        "vllm:ab": [Series({}, 2.0)],
    }


@pytest.mark.parametrize(
    "line",
    [
        "vllm:a",
        "vllm:a ",
        "vllm:a one",
        "vllm:a 1 2 3",
        'vllm:a{b="c} 1',
        "vllm:a{b=c} 1",
        "vllm:a NaN",
        "vllm:a +Inf",
        "vllm:abc 1",
        " vllm:a 1",
    ],
)
def test_what_is_malformed_is_no_value(line: str) -> None:
    assert read_series(line, NAMES) == {}


@given(LINES)
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_or_left_out(lines: list[str]) -> None:
    for series in read_series("\n".join(lines), NAMES).values():
        assert all(isinstance(it.value, float) for it in series)


@given(st.binary(max_size=400))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_an_answer_or_refused(data: bytes) -> None:
    read_metrics(data)


@pytest.mark.parametrize(
    "text",
    ['vllm:a{x="' * 100_000, "vllm:a{" + 'x="y",' * 200_000, "vllm:a " * 200_000, "vllm:a{}\t" * 150_000],
)
def test_a_hostile_text_is_read_in_time(text: str) -> None:
    begun = time.process_time()
    read_series(text, NAMES)
    assert time.process_time() - begun < 5.0
