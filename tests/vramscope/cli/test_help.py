"""The help of the program and of every verb: one form, examples that run, lines that fit a terminal."""

import re
import shlex
import subprocess
import sys
from argparse import SUPPRESS

import pytest

from vramscope.cli.frame.help import OVERVIEW_FLAGS, SUMMARIES, VERB_GROUPS
from vramscope.cli.frame.parse import build_parser, list_verbs, parse

from .running import environment, run

WIDTH = 80
OTHER_PROGRAMS = {"promtool", "torchrun"}
"""Programs that examples run besides vramscope."""


def read_help(*words: str) -> str:
    outcome = run(*words, COLUMNS=str(WIDTH))
    assert (outcome.code, outcome.stderr) == (0, "")
    return outcome.stdout


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    parser = build_parser()
    choices = next(action.choices for action in parser._actions if isinstance(action.choices, dict))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(WIDTH))
        return {verb: choices[verb].format_help() for verb in choices}


def list_sections(page: str) -> list[str]:
    """Return the lines of a page that begin a section, without the colon."""
    return [line[:-1] for line in page.splitlines() if re.fullmatch(r"\S.*:", line)]


def list_examples(page: str) -> list[str]:
    """Return the commands under `examples:`, each as one line."""
    lines = page.partition("\nexamples:\n")[2].partition("\n\n")[0]
    return [line.strip() for line in lines.replace("\\\n", " ").splitlines()]


def read_commands(example: str) -> list[list[str]]:
    """Return the words of each vramscope command in an example, without what the shell does with it."""
    lexer = shlex.shlex(example, posix=True, punctuation_chars="|<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words = []
    for word in lexer:
        if set(word) <= set("|<>"):
            break
        words.append(word)
    if words[0] in OTHER_PROGRAMS:
        words = words[words.index("vramscope") :] if "vramscope" in words else []
    return [words[1:]] if words else []


@pytest.mark.parametrize("verb", list_verbs())
def test_a_page_has_one_form(verb: str, pages: dict[str, str]) -> None:
    page = pages[verb]
    head, _, rest = page.partition("\nusage: ")
    sentence = " ".join(head.split())
    assert re.fullmatch(r"[A-Z][^.!?]*(\.[a-z]\S*[^.!?]*)*\.", sentence), sentence
    assert rest.startswith(f"vramscope {verb}")
    sections = list_sections(page)
    assert sections[0] == "examples"
    assert sections[-1] == "exit codes"
    assert len(sections) > 2
    assert len(sections) == len(set(sections))
    assert max(map(len, page.splitlines())) <= WIDTH


@pytest.mark.parametrize("verb", list_verbs())
def test_every_example_is_one_that_the_parser_accepts(verb: str, pages: dict[str, str]) -> None:
    examples = list_examples(pages[verb])
    commands = [words for example in examples for words in read_commands(example)]
    assert verb in {words[0] for words in commands}
    for words in commands:
        assert parse(words).verb == words[0], words


@pytest.mark.parametrize("verb", list_verbs())
def test_help_of_a_verb_lists_every_flag_that_is_not_hidden(verb: str, pages: dict[str, str]) -> None:
    subparsers = next(it for it in build_parser([verb])._actions if isinstance(it.choices, dict))
    assert isinstance(subparsers.choices, dict)
    shown = {
        flag for it in subparsers.choices[verb]._actions if it.help != SUPPRESS for flag in it.option_strings
    }
    words = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", pages[verb]))
    assert shown <= words


def test_the_overview_has_every_verb_once_and_fits_a_tall_terminal() -> None:
    assert sorted(SUMMARIES) == list_verbs()
    assert sum(map(len, VERB_GROUPS.values())) == len(SUMMARIES)
    assert max(map(len, SUMMARIES.values())) <= 60
    assert len(VERB_GROUPS) == 5
    assert len(OVERVIEW_FLAGS) == 10
    text = read_help("--help")
    lines = text.splitlines()
    for verb, line in SUMMARIES.items():
        assert f"  {verb:<12} {line}" in lines
    assert lines[-1] == "more: vramscope help VERB | flags"
    assert len(lines) <= 65
    assert max(map(len, lines)) <= WIDTH
    assert [parse(words) for example in lines[4:7] for words in read_commands(example)]
    assert read_help("-h") == read_help("help") == text


def test_help_flags_lists_every_flag_of_the_program_and_of_every_verb() -> None:
    text = read_help("help", "flags")
    assert max(map(len, text.splitlines())) <= WIDTH
    words = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text))
    parser = build_parser()
    for action in parser._actions:
        assert action.help == SUPPRESS or set(action.option_strings) <= words
        for each in action.choices.values() if isinstance(action.choices, dict) else ():
            longest = {
                max(it.option_strings, key=len)
                for it in each._actions
                if it.option_strings and it.help != SUPPRESS
            }
            assert longest <= words
    assert "130  interrupted by Ctrl-C" in text


def test_help_of_a_verb_is_the_same_both_ways() -> None:
    for verb in ("oom", "run", "help"):
        assert read_help("help", verb) == read_help(verb, "--help") == read_help(verb, "-h")


def test_help_of_an_unknown_verb_suggests_one() -> None:
    outcome = run("help", "agnet")
    assert outcome.code == 2
    assert outcome.stderr == "vramscope: unknown verb 'agnet'; did you mean `vramscope agent`?\n"


def test_the_overview_loads_no_verb() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys\nfrom vramscope.cli.frame.parse import parse\n"
            "try:\n    parse(['--help'])\nexcept SystemExit:\n    pass\n"
            "print([name for name in sys.modules if name.startswith('vramscope.cli.verbs.')])",
        ],
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=30,
    )
    assert done.stdout.splitlines()[-1] == "[]"
