"""Run vramscope: `python -m vramscope` and the console script `vramscope`."""

import sys


def main() -> int:
    """Run the command line of this process and return its exit code."""
    from vramscope.cli.application import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
