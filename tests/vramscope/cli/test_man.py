"""Manual pages: whole, from the parser, and without anything that a formatter stumbles over."""

import re
import subprocess
from datetime import date
from pathlib import Path

import pytest

from tests.components import require
from vramscope.cli.frame.help import explain, list_groups
from vramscope.cli.frame.man import render_pages
from vramscope.cli.frame.parse import build_parser, list_verbs

DAY = date(2026, 1, 31)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("man")
    for name, text in render_pages(DAY).items():
        (folder / name).write_text(text, encoding="utf-8")
    return {path.stem: path for path in folder.iterdir()}


def show(page: Path) -> str:
    done = subprocess.run(
        [require("mandoc"), "-Tutf8", "-Owidth=100", page], capture_output=True, text=True, check=True
    )
    return re.sub(r".\x08", "", done.stdout)


def test_the_program_and_each_verb_have_a_page(pages: dict[str, Path]) -> None:
    assert set(pages) == {"vramscope", *(f"vramscope-{verb}" for verb in list_verbs())}


def test_a_formatter_finds_nothing_wrong(pages: dict[str, Path]) -> None:
    done = subprocess.run(
        [require("mandoc"), "-Tlint", "-W", "warning", *pages.values()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout + done.stderr == ""


def test_a_page_explains_every_flag_as_the_help_does(pages: dict[str, Path]) -> None:
    parser = build_parser()
    (verbs,) = (it.choices for it in parser._actions if isinstance(it.choices, dict))
    for verb in ("oom", "run", "plan"):
        text = " ".join(show(pages[f"vramscope-{verb}"]).split())
        for _, actions in list_groups(verbs[verb], verbs[verb].page):
            for action in actions:
                assert all(flag in text for flag in action.option_strings)
                assert " ".join(explain(action).replace("`", "").split()) in text


def test_a_page_has_examples_exit_codes_and_its_date(pages: dict[str, Path]) -> None:
    text = show(pages["vramscope-import"])
    assert re.search(r"^ +vramscope import .* -o \S+", text, re.MULTILINE)
    assert "EXIT STATUS" in text
    assert "2026-01-31" in text
    assert "vramscope-oom(1)" in show(pages["vramscope"])


def test_text_that_roff_would_obey_is_shown() -> None:
    from vramscope.cli.frame.man import _escape, _protect

    assert _protect(_escape(".so /etc/passwd")) == "\\&.so /etc/passwd"
    assert _escape("'a\\b' -x ─") == "\\(aqa\\eb\\(aq \\-x \\[u2500]"
