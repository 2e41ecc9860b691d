"""YAML that people write: what is read as what, and what is refused with its line."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.files.base.yaml_text import YamlError, parse_yaml


def test_scalars_are_what_they_look_like() -> None:
    text = "a: no\nb: 010\nc: 1:30\nd: 2026-01-01\ne: 1e5\nf: ~\ng: TRUE\nh: 'it''s'\n1: \"x\\ny\"\n"
    assert parse_yaml(text).value == {
        "a": "no",
        "b": 10,
        "c": "1:30",
        "d": "2026-01-01",
        "e": 1e5,
        "f": None,
        "g": True,
        "h": "it's",
        "1": "x\ny",
    }
    assert parse_yaml("# nothing\n").value is None


def test_keys_have_their_lines() -> None:
    text = "name: x\nlink: {kind: y}\nnodes:\n- count: 2\n  device: h100\n- name: b\n"
    assert parse_yaml(text).lines == {
        "name": 1,
        "link": 2,
        "nodes": 3,
        "nodes[0]": 4,
        "nodes[0].count": 4,
        "nodes[0].device": 5,
        "nodes[1]": 6,
        "nodes[1].name": 6,
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: &x 1\n", "line 2: '&x 1' is YAML that is not supported; write the value itself"),
        ("a: *x\n", "line 1: '*x' is YAML that is not supported; write the value itself"),
        (
            "a: !!python/object:os.system x\n",
            "line 1: '!!python/object:os.system x' is YAML that is not supported",
        ),
        ("a: |\n  x\n", "line 1: '|' is YAML that is not supported"),
        ("a: 1\na: 2\n", "line 2: a appears twice"),
        ("a:\n\t- x\n", "line 2: a tab in the indentation; expected spaces"),
        ("a: {\n", "line 1: a bracket is not closed on its line"),
        ("a: [1,\n 2]\n", "line 1: a bracket is not closed on its line"),
        ("a: 'x\n", 'line 1: "\'x" has no closing quote'),
        ("a: 1\n---\nb: 2\n", "line 2: a second document; expected one"),
        ("[" * 60 + "]" * 60, "line 1: nested deeper than 50 levels"),
        ("".join(" " * at + "a:\n" for at in range(60)), "line 52: nested deeper than 50 levels"),
    ],
)
def test_what_is_not_read_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(YamlError) as caught:
        parse_yaml(text)
    assert str(caught.value).startswith(words)


@given(st.text(alphabet="ab01 :-[]{},#&*!|>'\"%@\n\t?~", max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(YamlError):
        parse_yaml(text)
