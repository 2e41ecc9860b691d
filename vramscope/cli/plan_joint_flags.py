"""The flags of `vramscope plan --cluster`."""

from argparse import ArgumentParser, Namespace

from vramscope.engine.errors import UsageError


def add_joint_flags(parser: ArgumentParser) -> None:
    """Add what a plan of all degrees on a cluster is told."""
    group = parser.add_argument_group("on a cluster: all degrees at once")
    group.add_argument(
        "--cluster", metavar="FILE|local|NxMxNAME", help="plan for these devices, for example 128x8xh100"
    )
    group.add_argument("--global-batch", metavar="N", help="sequences of a step, over all ranks")
    group.add_argument("--max-tp", metavar="N", help="most tensor ranks (as many as a node has devices)")
    group.add_argument("--max-micro-batch", metavar="N", help="most sequences of a micro-batch (32)")
    group.add_argument("--cp", metavar="N", help="context-parallel ranks (1)")
    group.add_argument("--zero", metavar="N,…", help="ZeRO stages to choose from (0,1,2,3)")
    group.add_argument("--recompute", metavar="NAME,…", help="to choose from (none,selective,full)")
    group.add_argument("--memory-share", metavar="N", help="of each device that may be filled (0.9)")
    group.add_argument("--top", metavar="N", help="configurations to list (10)")
    group.add_argument("--efficiency", metavar="N", help="of the peak, by large matrix products (0.75)")
    group.add_argument(
        "--calibrate-time", metavar="FILE", help="learn times: CSV of measured steps, or a Galvatron profile"
    )


JOINT_FLAGS = (
    "global_batch",
    "max_tp",
    "max_micro_batch",
    "cp",
    "zero",
    "recompute",
    "memory_share",
    "top",
    "efficiency",
    "calibrate_time",
)
"""Names of what is of no use without `--cluster`."""


def refuse_joint_flags(arguments: Namespace) -> None:
    """Refuse flags that need a cluster where there is none.

    Raises:
        UsageError: Which.
    """
    given = [name for name in JOINT_FLAGS if getattr(arguments, name) is not None]
    if given:
        raise UsageError(
            f"--{given[0].replace('_', '-')} is of use with --cluster only; add for example --cluster 8xh100"
        )
