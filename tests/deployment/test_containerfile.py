"""The container file, as far as it can be read without building: what it copies, runs, and as whom."""

import json
import re
import shlex
import tomllib

from tests.structure.tree import ROOT
from vramscope.cli.frame.parse import parse

TEXT = (ROOT / "docs/deployment/Containerfile").read_text(encoding="utf-8")
LINES = [
    line for line in re.sub(r"\\\n", " ", TEXT).splitlines() if line.strip() and not line.startswith("#")
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def list_stages() -> dict[str, list[tuple[str, str]]]:
    """Return the instructions of each stage, by its name; those of the stage it is made from come first."""
    stages: dict[str, list[tuple[str, str]]] = {}
    for line in LINES:
        word, _, rest = line.partition(" ")
        if word == "FROM":
            source, _, name = rest.partition(" AS ")
            stages[name] = list(stages.get(source, [(word, source)]))
            current = stages[name]
        elif word != "ARG":
            current.append((word, rest))
    return stages


def find_last(stage: str, word: str) -> str:
    return [rest for found, rest in list_stages()[stage] if found == word][-1]


def test_the_base_is_pinned_by_its_content_and_new_enough() -> None:
    (base,) = (line for line in LINES if line.startswith("ARG BASE="))
    found = re.fullmatch(r"ARG BASE=python:(\d+)\.(\d+)-slim-\w+@sha256:[0-9a-f]{64}", base)
    assert found is not None
    least = re.fullmatch(r">=(\d+)\.(\d+)", PROJECT["requires-python"])
    assert least is not None
    assert tuple(map(int, found.groups())) >= tuple(map(int, least.groups()))
    assert {source for stage in list_stages().values() for word, source in stage if word == "FROM"} == {
        "${BASE}"
    }


def test_everything_that_is_copied_is_there_and_sent_to_the_builder() -> None:
    copied = {
        word
        for stage in list_stages().values()
        for found, rest in stage
        if found == "COPY" and not rest.startswith("--from=")
        for word in shlex.split(rest)[:-1]
    }
    assert copied >= {"pyproject.toml", "constraints.txt", "vramscope", "engine"}
    assert [name for name in copied if not (ROOT / name).exists()] == []
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == copied


def test_agent_and_viewer_run_without_rights_and_without_what_built_them() -> None:
    for stage, words in (("agent", ["agent"]), ("viewer", [])):
        assert find_last(stage, "USER") == "65532:65532"
        command = json.loads(find_last(stage, "ENTRYPOINT")) + json.loads(find_last(stage, "CMD"))
        assert command[0] in PROJECT["scripts"]
        assert command[1:] == words
        parse(command[1:])
        # Of the stage that builds, only the environment.
        assert [rest for word, rest in list_stages()[stage] if word == "COPY"] == [
            "--from=build /opt/vramscope /opt/vramscope"
        ]
    assert list(list_stages())[-1] == "viewer", "a build without --target is the viewer"


def test_what_is_installed_is_pinned_and_of_extras_that_exist() -> None:
    install = next(rest for word, rest in list_stages()["build"] if word == "RUN")
    assert "-c constraints.txt" in install
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", install)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
