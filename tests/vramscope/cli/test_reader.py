"""The process that reads files for the live view and `mcp`: what it answers, refuses, and may do to them."""

import json
from pathlib import Path

import pytest

from tests.analyzers.planning.sweep.original import write_original
from tests.analyzers.planning.theory.test_configs import HUGGING_FACE
from tests.engine.probe.module_memory.profiles import write_profile
from vramscope.cli import reader
from vramscope.cli.frame.parse import parse
from vramscope.cli.live import find_by_words, plan_words, read_by_words
from vramscope.cli.plan_screen import present_words
from vramscope.cli.reader import ask_apart, check_names
from vramscope.cli.sweeps import find_wanted
from vramscope.cli.verbs.modules import read_profiled
from vramscope.cli.verbs.sweep import read_job
from vramscope.engine.errors import InputFileError, VramscopeError
from vramscope.tui.plan.planned import JobDefaults


def test_sweeps_and_profiles_are_the_same_as_read_here(tmp_path: Path) -> None:
    folders = list(map(str, write_original(tmp_path)))
    found = find_by_words(" ".join([*folders, "--capacity 40GiB"]))
    assert found == find_wanted(read_job(parse(["sweep", *folders, "--capacity", "40GiB"]))).chosen
    assert found.sweeps[0].grid.capacity_bytes == 40 << 30
    profile = write_profile(tmp_path / "profiles")
    assert read_by_words(str(profile)) == read_profiled([profile])


@pytest.mark.parametrize(
    "words",
    ["{}/config.json 2-4 --capacity 80GiB", "gpt-1.5b", "llama3-8b --cluster 8xh100 --global-batch 16"],
)
def test_a_plan_is_the_same_as_made_here_and_writes_the_same_files(words: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(HUGGING_FACE))
    words, defaults = words.format(tmp_path), JobDefaults(stages=2, capacity_bytes=40 << 30)
    here, apart = present_words(words, defaults), plan_words(words, defaults)
    assert apart.analysis() == here.analysis()
    assert [it.describe() for it in apart.candidates[0].stages] == [
        it.describe() for it in here.candidates[0].stages
    ]
    assert (apart.model, apart.verdict, apart.report) == (here.model, here.verdict, here.report)
    assert here.write is not None
    assert apart.write is not None
    written = [
        {path.name: path.read_bytes() for path in write(tmp_path / name)}
        for name, write in (("here", here.write), ("apart", apart.write))
    ]
    assert written[0] == written[1]
    assert "torchtitan.toml" in written[0]


@pytest.mark.parametrize("name", ["../a.json", "/etc/a.json", ".a.json", "a/b.txt", "a.py", "a", ""])
def test_a_process_that_reads_files_cannot_choose_where_those_of_a_plan_get(name: str) -> None:
    with pytest.raises(InputFileError, match="may not write"):
        check_names([name])
    check_names(["torchtitan.toml", "megatron_arguments.txt"])


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
