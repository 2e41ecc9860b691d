"""One name for one thing on every command line: old spellings work, say what to use, and are in no help."""

import argparse
from collections.abc import Iterator

import pytest

from vramscope.cli.frame.flags import OldFlag, read_figure
from vramscope.cli.frame.parse import build_parser, parse
from vramscope.engine.errors import UsageError

OLD = {
    "--max-memory": "--capacity",
    "--size": "--capacity",
    "--seq-length": "--seq",
    "--seq_length": "--seq",
    "--mbs": "--micro-batch",
    "--gbs": "--global-batch",
    "--text": "--format text",
    "--table": "--format text",
    "--plot": "--figure",
    "--tick": "--interval",
    "--for": "--duration",
}
"""Spellings that no verb may show, and what it shows instead."""
JSON_ALONE = {"", "calibrate"}
"""The live view, whose other output is a screen or --once, and `calibrate`, which prints JSON or a note."""


def list_flags() -> Iterator[tuple[str, argparse.Action]]:
    """Yield the flags of the program and of every verb, each with the verb's name."""
    parser = build_parser()
    for action in parser._actions:
        yield "", action
        if isinstance(action, argparse._SubParsersAction):
            for verb, subparser in action.choices.items():
                yield from ((verb, each) for each in subparser._actions)


SHOWN = [(verb, action) for verb, action in list_flags() if action.help != argparse.SUPPRESS]


def test_no_verb_shows_an_old_spelling() -> None:
    shown = {(verb, flag) for verb, action in SHOWN for flag in action.option_strings if flag in OLD}
    assert not shown


def test_no_flag_that_is_shown_has_an_underscore() -> None:
    assert not [flag for _, action in SHOWN for flag in action.option_strings if "_" in flag]


def test_output_has_its_short_form_everywhere() -> None:
    outputs = [(verb, set(action.option_strings)) for verb, action in SHOWN if action.dest == "output"]
    assert outputs
    assert [verb for verb, flags in outputs if flags != {"-o", "--output"}] == []


def test_every_figure_is_a_file_or_a_folder() -> None:
    figures = [(verb, action) for verb, action in SHOWN if "--figure" in action.option_strings]
    verbs = {verb for verb, _ in figures}
    assert verbs >= {"export", "diff", "estimate", "plan", "heatmap", "sweep", "seqlen", "modules", "oom"}
    assert {action.metavar for _, action in figures} == {"FILE|DIR/"}


def test_json_is_short_for_a_format() -> None:
    with_json = {verb for verb, action in SHOWN if "--json" in action.option_strings} - JSON_ALONE
    formats = {verb: action.choices for verb, action in SHOWN if "--format" in action.option_strings}
    assert with_json == set(formats)
    assert all(list(choices or ())[:2] == ["text", "json"] for choices in formats.values())


def test_a_capacity_is_a_size_and_devices_are_chosen_not_counted() -> None:
    capacities = {action.metavar for _, action in SHOWN if "--capacity" in action.option_strings}
    assert capacities == {"SIZE"}
    assert "run" not in {verb for verb, action in SHOWN if "--devices" in action.option_strings}
    counts = {verb for verb, action in SHOWN if "--device-count" in action.option_strings}
    assert counts == {"run"}


def test_an_old_flag_names_one_that_is_shown() -> None:
    shown = {(verb, flag) for verb, action in SHOWN for flag in action.option_strings}
    old = [(verb, action) for verb, action in list_flags() if isinstance(action, OldFlag)]
    assert len(old) > 30
    assert [(verb, each.use) for verb, each in old if (verb, each.use.split()[0]) not in shown] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "estimate --model gpt2 --mbs 2 --gbs 8 --table",
            "estimate --model gpt2 --micro-batch 2 --global-batch 8",
        ),
        ("plan --model gpt2 --seq-length 512", "plan --model gpt2 --seq 512"),
        ("plan --model gpt2 --text", "plan --model gpt2 --format text"),
        ("run --simulate 8GiB --devices 2 -- true", "run --simulate 8GiB --device-count 2 -- true"),
        ("demo --for 1m --size 2GiB", "demo --duration 1m --capacity 2GiB"),
        ("phases --seq_length 64 --format table", "phases --seq 64 --format text"),
        ("modules run -o charts", "modules run --figure charts/"),
        ("seqlen -o a.png", "seqlen --figure a.png"),
        ("import a.csv -o b --tick 1s", "import a.csv -o b --interval 1s"),
        ("distributed --role master --nodes 2", "distributed --role master --node-count 2"),
        ("inspect a --device 1", "inspect a --devices 1"),
    ],
)
def test_an_old_spelling_means_the_new_one_and_says_so(
    old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = vars(parse(old.split()))
    notes = capsys.readouterr().err.splitlines()
    meant = vars(parse(new.split()))
    assert capsys.readouterr().err == ""
    if "--table" in old:
        assert (given.pop("format"), meant.pop("format")) == ("text", None)
    assert given == meant
    assert notes
    assert all(" is an old spelling: use --" in note for note in notes)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("diff a b --json --format text", "--json does not go with --format text"),
        ("diff a b --format text --json", "--json does not go with --format text"),
        ("diff a b --json --text", "--json does not go with --text"),
        ("phases --json --format original", "--json does not go with --format original"),
    ],
)
def test_two_formats_are_refused_in_any_order(words: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse(words.split())


def test_a_figure_without_an_ending_is_refused_with_the_list(tmp_path: object) -> None:
    with pytest.raises(
        UsageError, match=r"\.pdf, \.png or \.svg, or a folder with a slash at its end: plots\.gif/"
    ):
        read_figure("plots.gif")
    assert read_figure("plots/").is_folder
    assert read_figure(str(tmp_path)).is_folder
    assert not read_figure("A.PDF").is_folder
