"""A configuration that was found, with the memory of every rank."""

from ..memory_theory import ModelShape, estimate_stages
from .evaluation import Evaluation, Evaluator
from .model import JointConfiguration, JointStage
from .pricing import Pricing


def describe_configuration(
    shape: ModelShape, found: Evaluation, evaluator: Evaluator, pricing: Pricing
) -> JointConfiguration:
    """Return a configuration in full."""
    layout, setup = found.layout, found.candidate.setup
    memory = estimate_stages(shape, layout, setup)
    places = pricing.place(found.candidate.layout, found.order)
    capacities = evaluator.list_capacities(found.candidate.layout, found.order)
    stages = tuple(
        JointStage(
            stage=number,
            layers=memory[number].layers,
            devices=places[number],
            capacity_bytes=capacities[number],
            memory=memory[number],
            compute_s=found.stage_s[number],
        )
        for number in range(layout.pipeline)
    )
    return JointConfiguration(layout=layout, setup=setup, stages=stages, time=found.time)
