"""The definition of CI on a public host: pinned, and of commands and programs that this repository has."""

import re
import tomllib
from typing import Any

import yaml

from benchmarks.compat.catalogue import JOBS
from tests.structure.tree import ROOT

TEXT = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
WORKFLOW: dict[str, Any] = yaml.safe_load(TEXT)
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


def test_actions_are_pinned_by_commit_and_the_same_everywhere() -> None:
    used = re.findall(r"uses: (\S+)(.*)", TEXT)
    assert len(used) == sum("uses" in step for step in STEPS)
    assert [line for line in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", line[0])] == []
    assert [line for line in used if not re.fullmatch(r" # v\d+\.\d+\.\d+", line[1])] == []
    names = dict(used)
    assert len({name.partition("@")[0] for name in names}) == len(names)


def test_it_may_read_and_nothing_else_and_ends() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    for job in WORKFLOW["jobs"].values():
        assert "permissions" not in job
        assert job["timeout-minutes"] <= 90
    checkouts = [step for step in STEPS if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)
    # What a stranger writes into a pull request is never part of a command.
    assert not any("${{" in step.get("run", "") for step in STEPS)


def test_what_it_makes_are_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    made = [word for step in STEPS for word in re.findall(r"^make (.+)$", step.get("run", ""), re.MULTILINE)]
    words = {word for line in made for word in line.split() if "=" not in word}
    assert words >= {"lint", "docs", "test", "dist-check", "sbom", "audit", "jax", "compat"}
    assert words <= targets


def test_the_jobs_that_are_trained_are_in_the_catalogue() -> None:
    made = [
        line
        for step in STEPS
        for line in re.findall(r"^make compat (.+)$", step.get("run", ""), re.MULTILINE)
    ]
    named = {word for line in made for word in re.findall(r'ARGS="([a-z_ ]+)"', line)[0].split()}
    assert named <= {job.name for job in JOBS}
    assert "loggers_offline" in named


def test_it_installs_what_the_other_definition_installs() -> None:
    own, other = (
        set(re.findall(r"[a-z0-9-]+", re.split(r"--no-install-recommends \\\n", text)[1].partition("zsh")[0]))
        for text in (TEXT, (ROOT / ".ci/run").read_text(encoding="utf-8"))
    )
    assert own == other


def test_it_tests_every_python_from_the_oldest_on() -> None:
    versions = WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f">={versions[0]}" == project["requires-python"]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
