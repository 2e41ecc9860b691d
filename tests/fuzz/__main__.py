"""Fuzz the readers: `python -m tests.fuzz [TARGET ...] --seconds 60`, guided by what they execute.

That needs atheris. `--blind` watches nothing and changes the inputs that guided fuzzing has reached, which is
several times as many executions in the same time. What is found is left in `build/fuzz/TARGET/`; minimize it
(`--minimize FILE`), mend the reader, and keep the bytes in `tests/fuzz/finds/` as `TARGET-what.bin`:
`test_finds.py` reads them ever after. `--keep` chooses from all inputs so far the few that the suite replays
(`tests/fuzz/corpus/`). Executions are added up in `tests/fuzz/executions.json`; `--counts` prints them.
"""

import argparse
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import REPOSITORY

from . import counts
from .corpus import choose, load, save

if TYPE_CHECKING:
    from .targets import Target

ROOT = REPOSITORY
WORK = ROOT / "build" / "fuzz"
FINDS = Path(__file__).parent / "finds"
MOST_RSS_MB = 2048
SLOWEST_S = 20
"""An input that takes longer is a find."""
# The first is what libFuzzer prints at the end.
_EXECUTIONS = re.compile(r"(?:stat::number_of_executed_units|executions): *(\d+)")


def main() -> int:
    """Run each target in a process of its own; return 1 where anything was found."""
    arguments = _parse()
    if arguments.inside is not None and arguments.digest:
        print(counts.digest(_find_code(arguments.inside)))
        return 0
    if arguments.inside is not None:
        return (_run_blind if arguments.blind else _run_guided)(arguments.inside, arguments)
    sys.path.insert(0, str(ROOT))
    from .targets import TARGETS

    unknown = set(arguments.targets) - set(TARGETS)
    if unknown:
        print(f"unknown targets {sorted(unknown)}; expected some of {list(TARGETS)}", file=sys.stderr)
        return 2
    names = arguments.targets or list(TARGETS)
    if arguments.keep:
        for name in names:
            print(f"{name}: kept {_keep(name)} inputs", flush=True)
        return 0
    digests = {name: _ask_digest(name) for name in names}
    if arguments.counts:
        print(counts.describe(digests))
        return 0
    found = [name for name in names if not _run(name, digests[name], arguments)]
    return int(bool(found))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument(
        "--blind", action="store_true", help="without watching what is executed: far more inputs"
    )
    parser.add_argument(
        "--until", type=int, metavar="N", help="leave out a reader that, as it is now, was run so often"
    )
    parser.add_argument("--counts", action="store_true", help="fuzz nothing; print how often each was run")
    parser.add_argument("--keep", action="store_true", help="fuzz nothing; choose what the suite replays")
    parser.add_argument("--minimize", metavar="FILE", help="make a find smaller")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--digest", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _ask_digest(name: str) -> str:
    """Ask a process of its own: what a reader executes can depend on what was read before it."""
    command = [sys.executable, "-m", "tests.fuzz", "--inside", name, "--digest"]
    done = subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE)
    return done.stdout.split()[-1]


def _run(name: str, digest: str, arguments: argparse.Namespace) -> bool:
    """Fuzz one target in a process of its own and count its executions; return whether nothing was found."""
    now = counts.load().get(name, counts.Count()).of(digest).total
    if arguments.until is not None and now >= arguments.until:
        return True
    # libFuzzer ends its process at once: what that one has written is removed here.
    folder = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    command = [sys.executable, "-m", "tests.fuzz", "--inside", name, "--seconds", str(arguments.seconds)]
    command += ["--blind"] if arguments.blind else []
    command += ["--minimize", arguments.minimize] if arguments.minimize else []
    environment = {**os.environ, "TMPDIR": folder}
    executions = 0
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            ended = _EXECUTIONS.match(line)
            executions = int(ended[1]) if ended else executions
            if not (arguments.blind and ended):
                print(line, end="", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    is_sound = child.returncode == 0
    verdict = "nothing found" if is_sound else f"ended with {child.returncode}; see {WORK / name}"
    if not arguments.minimize:
        is_blind = arguments.blind
        now = counts.add(
            name, digest, guided=0 if is_blind else executions, blind=executions if is_blind else 0
        ).total
    print(f"{name}: {executions:,} executions, {now:,} of the reader as it is; {verdict}", flush=True)
    return is_sound


def _run_guided(name: str, arguments: argparse.Namespace) -> int:
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
    dictionary = folder / "words"
    escaped = ("".join(f"\\x{byte:02x}" for byte in word) for word in counts.list_words(_find_code(name)))
    dictionary.write_text("".join(f'"{word}"\n' for word in escaped))
    words = [
        f"-max_total_time={arguments.seconds}",
        f"-artifact_prefix={folder}/",
        f"-rss_limit_mb={MOST_RSS_MB}",
        f"-timeout={SLOWEST_S}",
        f"-max_len={target.most_bytes}",
        f"-dict={dictionary}",
        "-print_final_stats=1",
    ]
    words += ["-minimize_crash=1", arguments.minimize] if arguments.minimize else [str(corpus)]
    atheris.Setup([sys.argv[0], *words], target.run)
    with bounding_memory(target.memory_bytes):
        atheris.Fuzz()
    return 0


def _run_blind(name: str, arguments: argparse.Namespace) -> int:
    """Change inputs that are known and run them, in this process; return 1 where anything was found."""
    from .blind import Mutator, hammer, weigh
    from .targets import TARGETS, bounding_memory

    target = TARGETS[name]
    folder = WORK / name
    folder.mkdir(parents=True, exist_ok=True)
    sound, others = _list_known(target, name)
    known = [*sound, *others]
    words = counts.list_words(_find_code(name))
    with bounding_memory(target.memory_bytes or MOST_RSS_MB << 20):
        # What is known is run first, as it is.
        first = hammer(
            target.run,
            iter(known).__next__,
            folder,
            seconds=arguments.seconds,
            slowest_s=SLOWEST_S,
            most=len(known),
        )
        weights = weigh(target.run, sound, others)
        mutator = Mutator(known, words, most_bytes=target.most_bytes, weights=weights)
        then = hammer(target.run, mutator.make, folder, seconds=arguments.seconds, slowest_s=SLOWEST_S)
    print(f"executions: {first.executions + then.executions}", flush=True)
    return int(bool(first.finds or then.finds))


def _list_known(target: "Target", name: str) -> tuple[list[bytes], list[bytes]]:
    """Return sound inputs, and others: kept ones, finds, and what guided fuzzing has found here."""
    files = [*sorted((WORK / name / "corpus").glob("*")), *sorted(FINDS.glob(f"{name}-*.bin"))]
    found = [path.read_bytes() for path in files if path.stat().st_size <= target.most_bytes]
    sound = list(dict.fromkeys(target.seeds()))
    return sound, sorted({*load(name), *found} - set(sound))


def _find_code(name: str) -> counts.Code:
    from .targets import TARGETS

    # Sound inputs alone: those that are kept change as fuzzing goes on, and the reader does not.
    return counts.find_code(TARGETS[name].replay, TARGETS[name].seeds())


def _keep(name: str) -> int:
    """Choose from what was kept and what fuzzing has found since; return how many inputs are kept now."""
    from .targets import TARGETS

    target = TARGETS[name]
    sound, others = _list_known(target, name)
    chosen = choose(target.replay, [*sound, *others])
    save(name, chosen)
    return len(chosen)


if __name__ == "__main__":
    sys.exit(main())
