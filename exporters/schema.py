"""The JSON Schemas of what is printed as JSON, made from the structs themselves."""

import json
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import msgspec

from ..engine.model import NodeStatus, finding
from ..engine.model import finding as assessment
from ..engine.model import finding as status
from ..engine.model import sample as device
from ..engine.model import sample as host
from ..engine.model import sample as rank
from .field_docs import read_field_docs

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_STATUS_MODULES = (assessment, device, finding, host, rank, status)


def build_status_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of `vramscope.status/1`.

    Every field is required because every field is always printed; what was not measured is null. A
    reader must accept fields it does not know: later versions may add some.
    """
    return _build(NodeStatus, "vramscope.status/1", _STATUS_MODULES)


def build_difference_schema() -> dict[str, Any]:
    """Return the JSON Schema of `vramscope.difference/1`; as of the status, every field is required."""
    from ..analyzers.comparison import RunDifference, model

    return _build(RunDifference, model.DIFFERENCE_SCHEMA, (model,))


def build_sweep_schema() -> dict[str, Any]:
    """Return the JSON Schema of `vramscope.sweep/1`; every field is required, what is unknown is null."""
    from .sweep import index_report as sweep_index_report
    from .sweep import report as sweep_report

    return _build(
        sweep_index_report.IndexReport, sweep_index_report.SCHEMA, (sweep_index_report, sweep_report)
    )


def build_estimate_schema() -> dict[str, Any]:
    """Return the JSON Schema of `vramscope.estimate/1`; every field is required, what is unknown is null."""
    from ..analyzers.planning.theory import calibration, shape
    from ..analyzers.planning.theory import estimate as rank_memory
    from ..analyzers.planning.theory import shape as layout
    from ..analyzers.planning.theory import shape as training
    from ..analyzers.planning.theory.configs import cases as fitting_changes
    from ..analyzers.planning.theory.configs import flags as run
    from .estimates import report as estimate_report

    modules = (calibration, fitting_changes, layout, rank_memory, run, shape, training, estimate_report)
    return _build(estimate_report.EstimateReport, estimate_report.SCHEMA, modules)


def build_calibration_schema() -> dict[str, Any]:
    """Return the JSON Schema of `vramscope.calibration/1`, the file that `vramscope calibrate` keeps."""
    from ..analyzers.planning.theory import calibration

    return _build(calibration.Calibration, calibration.SCHEMA, (calibration,))


def build_feedback_schema() -> dict[str, Any]:
    """Return the JSON Schema of `vramscope.plan-feedback/1`; every field is required."""
    from ..analyzers.planning import feedback as model

    return _build(model.PlanFeedback, model.FEEDBACK_SCHEMA, (model,))


def build_joint_plan_schema() -> dict[str, Any]:
    """Return the JSON Schema of `vramscope.joint-plan/1`; every field is required."""
    from ..analyzers.planning import joint as joint_plan
    from ..analyzers.planning import theory as memory_theory
    from .plan import joint_report as joint_plan_report

    modules = (memory_theory, memory_theory.shape, joint_plan, joint_plan_report)
    return _build(joint_plan_report.JointPlanReport, joint_plan.JOINT_PLAN_SCHEMA, modules)


def build_plan_schema() -> dict[str, Any]:
    """Return the JSON Schema of `vramscope.plan/1`; every field is required."""
    from ..analyzers.planning.partition import plan, result

    return _build(plan.Plan, plan.PLAN_SCHEMA, (plan, result))


def build_phases_schema() -> dict[str, Any]:
    """Return the JSON Schema of `vramscope.phases/1`; every field is required, what is unmeasured is null."""
    from ..analyzers.planning.phases import model
    from ..engine.model import phase_memory
    from .phases import report as phase_report

    return _build(phase_report.PhaseReport, phase_report.SCHEMA, (phase_memory, model, phase_report))


def build_lengths_schema() -> dict[str, Any]:
    """Return the JSON Schema of `vramscope.seqlen/1`; every field is required, what is unmeasured is null."""
    from ..analyzers.planning import lengths as law
    from ..analyzers.planning import lengths as peaks
    from ..engine.model import length_memory, phase_memory
    from .lengths import report as length_report

    modules = (phase_memory, length_memory, law, peaks, length_report)
    return _build(length_report.LengthReport, length_report.SCHEMA, modules)


def build_phase_records_schema() -> dict[str, Any]:
    """Return the JSON Schema of `vramscope.phase-records/1`; every field is required."""
    from ..engine.model import phase_memory
    from ..engine.model import phase_memory as phase_record
    from .phases import record_report as phase_record_report

    return _build(
        phase_record_report.PhaseRecordReport,
        phase_record_report.SCHEMA,
        (phase_memory, phase_record, phase_record_report),
    )


def build_factory_estimate_schema() -> dict[str, Any]:
    """Return the JSON Schema of `vramscope.factory-estimate/1`; every field is required."""
    from ..analyzers.planning.steps import model

    return _build(model.StepEstimate, model.SCHEMA, (model,))


def build_guard_schema() -> dict[str, Any]:
    """Return the JSON Schema of `vramscope.guard/1`, a line of `vramscope guard --json`."""
    from ..analyzers.cluster_state import model
    from .status import guard, job_over_nodes

    return _build(guard.GuardLine, guard.GUARD_SCHEMA, (finding, model, job_over_nodes, guard))


def render_schema(schema: dict[str, Any]) -> str:
    """Return a schema as the text of its file in `docs/`."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def render_status_schema() -> str:
    """Return the schema as the text of `docs/status.schema.json`."""
    return render_schema(build_status_schema())


def build_fleet_schema() -> dict[str, Any]:
    """Return the JSON Schema of `vramscope.fleet/1`, what the fleet screen exports."""
    from ..analyzers.fleet import model
    from .status import fleet_export

    return _build(fleet_export.FleetExport, fleet_export.FLEET_SCHEMA, (finding, model, fleet_export))


def render_fleet_schema() -> str:
    """Return the schema as the text of `docs/fleet.schema.json`."""
    return render_schema(build_fleet_schema())


def render_guard_schema() -> str:
    """Return the schema as the text of `docs/guard.schema.json`."""
    return render_schema(build_guard_schema())


def render_difference_schema() -> str:
    """Return the schema as the text of `docs/difference.schema.json`."""
    return render_schema(build_difference_schema())


def render_estimate_schema() -> str:
    """Return the schema as the text of `docs/estimate.schema.json`."""
    return render_schema(build_estimate_schema())


def render_factory_estimate_schema() -> str:
    """Return the schema as the text of `docs/factory-estimate.schema.json`."""
    return render_schema(build_factory_estimate_schema())


def render_calibration_schema() -> str:
    """Return the schema as the text of `docs/calibration.schema.json`."""
    return render_schema(build_calibration_schema())


def render_feedback_schema() -> str:
    """Return the schema as the text of `docs/plan-feedback.schema.json`."""
    return render_schema(build_feedback_schema())


def render_joint_plan_schema() -> str:
    """Return the schema as the text of `docs/joint-plan.schema.json`."""
    return render_schema(build_joint_plan_schema())


def render_lengths_schema() -> str:
    """Return the schema as the text of `docs/seqlen.schema.json`."""
    return render_schema(build_lengths_schema())


def render_phases_schema() -> str:
    """Return the schema as the text of `docs/phases.schema.json`."""
    return render_schema(build_phases_schema())


def render_phase_records_schema() -> str:
    """Return the schema as the text of `docs/phase-records.schema.json`."""
    return render_schema(build_phase_records_schema())


def render_plan_schema() -> str:
    """Return the schema as the text of `docs/plan.schema.json`."""
    return render_schema(build_plan_schema())


def render_sweep_schema() -> str:
    """Return the schema as the text of `docs/sweep.schema.json`."""
    return render_schema(build_sweep_schema())


def _build(root: type[msgspec.Struct], title: str, modules: Sequence[ModuleType]) -> dict[str, Any]:
    structs = {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, msgspec.Struct)
    }
    schema = msgspec.json.schema(root)
    definitions: dict[str, dict[str, Any]] = schema.pop("$defs")
    for name, definition in definitions.items():
        _complete(definition, read_field_docs(structs[name]))
    return {
        "$schema": _DRAFT,
        "title": title,
        "$ref": schema["$ref"],
        "$defs": dict(sorted(definitions.items())),
    }


def _complete(definition: dict[str, Any], docs: dict[str, str]) -> None:
    """Require every field and describe it."""
    properties: dict[str, dict[str, Any]] = definition["properties"]
    definition["required"] = list(properties)
    for field, field_schema in properties.items():
        field_schema.pop("default", None)
        if field in docs:
            field_schema["description"] = docs[field]
