"""Which processes of several nodes are one job."""

import time

import pytest

from vramscope.analyzers.cluster_state import ClusterRank, RankKey
from vramscope.analyzers.cluster_state.jobs import find_jobs


def _ranks(
    node: str, job: str | None, numbers: range, world: int | None, age_s: float = 100.0
) -> list[ClusterRank]:
    return [
        ClusterRank(
            RankKey(node, 100 + it, 1.0), job, f"GPU-{it}", "GPU 0", age_s=age_s, rank=it, world_size=world
        )
        for it in numbers
    ]


FIRST, SECOND = range(2), range(2, 4)


@pytest.mark.parametrize(
    ("ranks", "jobs"),
    [
        pytest.param(
            _ranks("a", "x", FIRST, 4) + _ranks("b", "y", SECOND, 4), {"x": 4}, id="a run on each node"
        ),
        pytest.param(
            _ranks("a", "x", range(1), 2) + _ranks("b", "y", range(1, 2), 2), {"x": 2}, id="a run a rank"
        ),
        pytest.param(
            _ranks("a", "x", FIRST, 4) + _ranks("b", "y", SECOND, 4, age_s=9000),
            {"x": 2, "y": 2},
            id="begun at other times",
        ),
        pytest.param(
            _ranks("a", "x", FIRST, 4) + _ranks("b", "y", FIRST, 4), {"x": 2, "y": 2}, id="the same ranks"
        ),
        pytest.param(
            _ranks("a", "x", FIRST, 2) + _ranks("b", "x", FIRST, 2),
            {"x on a": 2, "x on b": 2},
            id="one name, two jobs",
        ),
        pytest.param(
            _ranks("a", "x", FIRST, 8) + _ranks("b", "x", SECOND, 8, age_s=9000), {"x": 4}, id="one name"
        ),
        pytest.param(
            _ranks("a", None, FIRST, 4) + _ranks("b", None, SECOND, 4), {"world of 4": 4}, id="attached to"
        ),
        pytest.param(_ranks("a", "x", range(1), 1) + _ranks("b", "y", range(1), None), {}, id="alone"),
    ],
)
def test_parts_of_a_job_are_joined_and_jobs_are_told_apart(
    ranks: list[ClusterRank], jobs: dict[str, int]
) -> None:
    assert {it.key: len(it.members) for it in find_jobs(ranks)} == jobs
    assert find_jobs(reversed(ranks)) == find_jobs(ranks)


def test_thousands_of_parts_do_not_take_the_square_of_them() -> None:
    # A node reports as many runs as it likes, each a part of a job that is never whole.
    names = [f"run-{it}" for it in range(50_000)]
    ranks = [it for name in names for it in _ranks("a", name, range(1), 8)]
    started_s = time.process_time()
    assert find_jobs(ranks) == ()  # all of them claim rank 0
    assert time.process_time() - started_s < 5.0
