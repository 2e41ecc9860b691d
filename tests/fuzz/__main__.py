"""Fuzz the readers, guided by what they execute: `python -m tests.fuzz [TARGET ...] --seconds 60`.

It needs atheris. What is found is left in `build/fuzz/TARGET/`; minimize it (`--minimize FILE`), mend the
reader, and keep the bytes in `tests/fuzz/finds/` as `TARGET-what.bin`: `test_finds.py` reads them ever after.
`--keep` chooses from all inputs so far the few that the suite replays (`tests/fuzz/corpus/`).
"""

import argparse
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from typing import Any

from tests import REPOSITORY

from .corpus import choose, load, save

ROOT = REPOSITORY
WORK = ROOT / "build" / "fuzz"
MOST_RSS_MB = 2048
SLOWEST_S = 20
"""An input that takes longer is a find."""


def main() -> int:
    """Run each target in a process of its own; return 1 where anything was found."""
    arguments = _parse()
    if arguments.inside is not None:
        _fuzz(arguments.inside, arguments.seconds, arguments.minimize)
        return 0
    sys.path.insert(0, str(ROOT))
    from .targets import TARGETS

    unknown = set(arguments.targets) - set(TARGETS)
    if unknown:
        print(f"unknown targets {sorted(unknown)}; expected some of {list(TARGETS)}", file=sys.stderr)
        return 2
    if arguments.keep:
        for name in arguments.targets or TARGETS:
            print(f"{name}: kept {_keep(name)} inputs", flush=True)
        return 0
    found = False
    # libFuzzer ends its process at once: what that one has written is removed here.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    for name, folder in ((it, tempfile.mkdtemp(dir=memory)) for it in arguments.targets or TARGETS):
        command = [sys.executable, "-m", "tests.fuzz", "--inside", name, "--seconds", str(arguments.seconds)]
        command += ["--minimize", arguments.minimize] if arguments.minimize else []
        code = subprocess.run(command, check=False, cwd=ROOT, env={**os.environ, "TMPDIR": folder}).returncode
        shutil.rmtree(folder)
        print(
            f"{name}: {'nothing found' if code == 0 else f'ended with {code}; see {WORK / name}'}", flush=True
        )
        found = found or code != 0
    return int(found)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--keep", action="store_true", help="fuzz nothing; choose what the suite replays")
    parser.add_argument("--minimize", metavar="FILE", help="make a find smaller")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    return parser.parse_args()


def _fuzz(name: str, seconds: int, minimize: str | None) -> None:
    """Fuzz one target in this process, which libFuzzer ends."""
    atheris: Any = importlib.import_module("atheris")  # only here, and not part of what tests need
    with atheris.instrument_imports(include=["vramscope"]):
        from .targets import TARGETS, bounding_memory
    target = TARGETS[name]
    folder = WORK / name
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate([*target.seeds(), *load(name)]):
        (corpus / f"seed-{number}").write_bytes(seed)
    words = [
        f"-max_total_time={seconds}",
        f"-artifact_prefix={folder}/",
        f"-rss_limit_mb={MOST_RSS_MB}",
        f"-timeout={SLOWEST_S}",
        f"-max_len={target.most_bytes}",
        "-print_final_stats=1",
    ]
    words += ["-minimize_crash=1", minimize] if minimize else [str(corpus)]
    atheris.Setup([sys.argv[0], *words], target.run)
    with bounding_memory(target.memory_bytes):
        atheris.Fuzz()


def _keep(name: str) -> int:
    """Choose from what was kept and what fuzzing has found since; return how many inputs are kept now."""
    from .targets import TARGETS

    target = TARGETS[name]
    found = [path.read_bytes() for path in sorted((WORK / name / "corpus").glob("*"))]
    chosen = choose(target.replay, [*target.seeds(), *load(name), *found])
    save(name, chosen)
    return len(chosen)


if __name__ == "__main__":
    sys.exit(main())
