"""Packages that only parts of vramscope need, and the extras of ours that bring them."""

from importlib.util import find_spec

from .errors import PackageMissingError

EXTRAS = {
    "matplotlib": "figures",
    "mcp": "mcp",
    "networkx": "figures",
    "numpy": "figures",
    "opacus": "train",
    "pyarrow": "parquet",
    "tomlkit": "settings",
    "torch": "train",
}
"""The extra that brings a package; packages whose lack is explained where they are used are not listed."""


def find_missing_package(error: BaseException) -> PackageMissingError | None:
    """Return the error that names the missing package and its extra; None for any other error."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    package = (name or "").partition(".")[0]
    return _explain(package) if package in EXTRAS else None


def require_package(package: str) -> None:
    """Raise a `PackageMissingError` if a package of an extra is not installed; nothing is imported."""
    if find_spec(package) is None:
        raise _explain(package)


def _explain(package: str) -> PackageMissingError:
    return PackageMissingError(f"this needs {package}: pip install 'vramscope[{EXTRAS[package]}]'")
