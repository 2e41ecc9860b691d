"""Write the pages and schemas that are made from the program itself: run `python docs/generate.py`."""

from pathlib import Path

from vramscope.exporters.schema import (
    render_calibration_schema,
    render_difference_schema,
    render_estimate_schema,
    render_factory_estimate_schema,
    render_feedback_schema,
    render_fleet_schema,
    render_guard_schema,
    render_joint_plan_schema,
    render_lengths_schema,
    render_phase_records_schema,
    render_phases_schema,
    render_plan_schema,
    render_status_schema,
    render_sweep_schema,
)
from vramscope.exporters.settings_page import render_settings_page

DOCS = Path(__file__).resolve().parent

if __name__ == "__main__":
    for name, text in {
        "calibration.schema.json": render_calibration_schema(),
        "difference.schema.json": render_difference_schema(),
        "estimate.schema.json": render_estimate_schema(),
        "factory-estimate.schema.json": render_factory_estimate_schema(),
        "fleet.schema.json": render_fleet_schema(),
        "guard.schema.json": render_guard_schema(),
        "joint-plan.schema.json": render_joint_plan_schema(),
        "phase-records.schema.json": render_phase_records_schema(),
        "phases.schema.json": render_phases_schema(),
        "plan-feedback.schema.json": render_feedback_schema(),
        "plan.schema.json": render_plan_schema(),
        "seqlen.schema.json": render_lengths_schema(),
        "status.schema.json": render_status_schema(),
        "sweep.schema.json": render_sweep_schema(),
        "settings.md": render_settings_page(),
    }.items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(DOCS / name)
