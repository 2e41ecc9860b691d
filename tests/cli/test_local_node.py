"""Without an agent this process assesses for itself, and says so in the same words."""

from vramscope.cli.local_node import LocalNode
from vramscope.engine.agent.analyzer_host import AnalyzerHost

from ..bus.assessors import UsedAssessor
from ..bus.hubs import make_sample


def test_the_newest_assessment_of_each_device_is_told_until_it_is_gone() -> None:
    node = LocalNode(interval_s=1.0, memory_interval_s=0.1)
    node._host = AnalyzerHost([UsedAssessor()])
    first, second = (node._describe(make_sample(seq, used_gib=gib)) for seq, gib in ((1, 20.0), (2, 60.0)))
    again = node._describe(make_sample(3, used_gib=61.0))
    assert [a.level for a in first.assessments] == ["low"]
    assert [a.level for a in second.assessments] == ["high"]
    assert again.assessments == second.assessments
    assert node._describe(make_sample(100, uuid="GPU-b")).assessments[0].device_uuid == "GPU-b"
