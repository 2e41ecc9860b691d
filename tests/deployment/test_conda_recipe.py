"""The conda recipe says what the project says: version, Python, packages, licence, command."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml

from tests.structure.tree import ROOT

RECIPE: dict[str, Any] = yaml.safe_load(
    (ROOT / "docs/deployment/conda/recipe.yaml").read_text(encoding="utf-8")
)
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]


def test_it_is_of_this_version_and_of_these_sources() -> None:
    assert RECIPE["context"]["version"] == PROJECT["version"]
    assert RECIPE["package"]["name"] == PROJECT["name"]
    assert RECIPE["about"]["license"] == PROJECT["license"]
    assert (ROOT / "docs/deployment/conda" / RECIPE["source"]["path"]).resolve() == ROOT
    (entry,) = RECIPE["build"]["python"]["entry_points"]
    assert dict([entry.split(" = ")]) == PROJECT["scripts"]


def test_it_needs_what_the_project_needs() -> None:
    python = f"python {PROJECT['requires-python']}"
    wanted = {re.sub(r"([<>=])", r" \1", it, count=1).lower() for it in PROJECT["dependencies"]}
    assert set(RECIPE["requirements"]["run"]) == wanted | {python}
    built_with = {re.sub(r"([<>=])", r" \1", it, count=1) for it in PYPROJECT["build-system"]["requires"]}
    assert set(RECIPE["requirements"]["host"]) == built_with | {python, "pip"} | list_for_share(wanted)


def list_for_share(wanted: set[str]) -> set[str]:
    """Return what the manual pages are written with, of all that the program needs."""
    return {it for it in wanted if it.split()[0] in ("msgspec", "shtab")}


def test_it_packs_manual_pages_and_completions_which_need_no_more_than_the_host_has(tmp_path: Path) -> None:
    first, second = RECIPE["build"]["script"]
    assert first == "${{ PYTHON }} .ci/write-share share"
    assert " -m pip install . " in second
    host = {it.split()[0] for it in RECIPE["requirements"]["host"]}
    hidden = {"psutil", "pynvml", "rich", "textual", "yaml", "zmq"} - host
    code = (
        f"import runpy, sys; sys.modules.update(dict.fromkeys({sorted(hidden)}))\n"
        f"sys.argv = ['write-share', {str(tmp_path)!r}]\n"
        "runpy.run_path('.ci/write-share', run_name='__main__')"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
    assert (tmp_path / "man/man1/vramscope.1").exists()
