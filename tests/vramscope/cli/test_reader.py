"""The process that reads files for the live view and `mcp`: what it answers, refuses, and may do to them."""

from pathlib import Path

import pytest

from tests.analyzers.planning.sweep.original import write_original
from tests.engine.probe.module_memory.profiles import write_profile
from vramscope.cli import reader
from vramscope.cli.frame.parse import parse
from vramscope.cli.live import find_by_words, read_by_words
from vramscope.cli.reader import ask_apart
from vramscope.cli.sweeps import find_wanted
from vramscope.cli.verbs.modules import read_profiled
from vramscope.cli.verbs.sweep import read_job
from vramscope.engine.errors import InputFileError, VramscopeError


def test_sweeps_and_profiles_are_the_same_as_read_here(tmp_path: Path) -> None:
    folders = list(map(str, write_original(tmp_path)))
    found = find_by_words(" ".join([*folders, "--capacity 40GiB"]))
    assert found == find_wanted(read_job(parse(["sweep", *folders, "--capacity", "40GiB"]))).chosen
    assert found.sweeps[0].grid.capacity_bytes == 40 << 30
    profile = write_profile(tmp_path / "profiles")
    assert read_by_words(str(profile)) == read_profiled([profile])


def test_what_cannot_be_read_is_refused_in_the_same_words(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no profile")
    for words in (f"{tmp_path}/text", f"{tmp_path}"):
        with pytest.raises(VramscopeError) as here:
            read_profiled([Path(words)])
        with pytest.raises(InputFileError) as apart:
            read_by_words(words)
        assert str(apart.value) == here.value.describe("flag")


@pytest.mark.parametrize(
    "taken_over",
    [
        "import os; os._exit(3)",
        "print('no answer')",
        # Without end; the asker must not store it.
        "import os\nwhile True: os.write(1, b' ' * 65536)",
    ],
)
def test_a_process_that_gives_no_answer_is_an_error_and_does_not_end_its_asker(
    taken_over: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(taken_over)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(reader, "_MOST_REPLY_BYTES", 1 << 20)
    with pytest.raises(InputFileError, match="ended without an answer"):
        ask_apart("inspect", {"file": str(tmp_path)}, str)
