"""The conda recipe says what the project says: version, Python, packages, licence, command."""

import re
import tomllib
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
    assert set(RECIPE["requirements"]["host"]) == built_with | {python, "pip"}
