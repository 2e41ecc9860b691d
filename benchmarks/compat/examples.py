"""Gets PyTorch's own distributed examples, as their authors wrote them; nothing of them is kept here.

python -m benchmarks.compat.examples FOLDER [SOURCE]

SOURCE is a folder that has them already, where the network is not there; its files are checked as well.
"""

import argparse
import hashlib
import io
import shutil
import sys
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

COMMIT = "77f55b912142e11fcfdf5b530231fb9c52f181e8"
ADDRESS = f"https://github.com/pytorch/examples/archive/{COMMIT}.tar.gz"
# Those that are run; their files add up to this.
FOLDERS = ("FSDP2", "ddp", "ddp-tutorial-series", "minGPT-ddp", "tensor_parallelism")
DIGEST = "e36a8d646c50dfd1c374f07b0dafcf41aa005fd25c8a5e17f98c181d4185e45a"
TIMEOUT_S = 60
_PARENT = "distributed"


def main() -> int:
    """Fetch or copy the examples into a folder; return 1 if they are not those that the jobs are made for."""
    parser = argparse.ArgumentParser(prog="benchmarks.compat.examples", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("source", type=Path, nargs="?", help="folder `distributed` of the examples")
    arguments = parser.parse_args()
    try:
        files = fetch() if arguments.source is None else read(arguments.source)
    except (OSError, tarfile.TarError, urllib.error.URLError) as error:
        print(f"{ADDRESS}: {error}; name a copy with EXAMPLES=FOLDER", file=sys.stderr)
        return 1
    found = digest(files)
    if found != DIGEST:
        print(f"{arguments.source or ADDRESS}: has digest {found}, expected {DIGEST}", file=sys.stderr)
        return 1
    shutil.rmtree(arguments.folder, ignore_errors=True)
    for name, content in files.items():
        path = arguments.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return 0


def fetch() -> dict[str, bytes]:
    """Return the files by their names below `distributed`."""
    with urllib.request.urlopen(ADDRESS, timeout=TIMEOUT_S) as answer:
        packed = answer.read()
    files = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            _, parent, name = [*member.name.split("/", 2), "", ""][:3]
            content = archive.extractfile(member) if parent == _PARENT and _is_wanted(name) else None
            if content is not None:
                files[name] = content.read()
    return files


def read(source: Path) -> dict[str, bytes]:
    """Return the files of a folder."""
    paths = [path for name in FOLDERS for path in (source / name).rglob("*") if path.is_file()]
    files = {path.relative_to(source).as_posix(): path.read_bytes() for path in paths}
    return {name: content for name, content in files.items() if _is_wanted(name)}


def digest(files: dict[str, bytes]) -> str:
    """Return one digest of names and contents."""
    total = hashlib.sha256()
    for name in sorted(files):
        total.update(f"{name}\0{hashlib.sha256(files[name]).hexdigest()}\n".encode())
    return total.hexdigest()


def _is_wanted(name: str) -> bool:
    return name.split("/", maxsplit=1)[0] in FOLDERS and "__pycache__" not in name


if __name__ == "__main__":
    sys.exit(main())
