#!/usr/bin/env python3
"""Writes the compute plan that Core ML makes for a model on this Mac, as JSON for `milwright plan --import`.

Usage: export_compute_plan.py MODEL [-o PLAN.json] [--units CPU_AND_NE]
MODEL is a .mlpackage, .mlmodel or .mlmodelc. Needs macOS 14.4 or later, Python 3 and coremltools 8 or later
(pip install coremltools). Asking for a plan compiles the model for every unit, which can take minutes and gigabytes.

Not tested by this project, which is developed off a Mac: it is written after the documentation of
coremltools.models.compute_plan. The format is docs/compute-plan.md.
"""
import argparse
import json
import os
import platform
import subprocess
import sys

import coremltools as ct
from coremltools.models.compute_plan import MLComputePlan


def unit_name(device):
    """The format's name of a compute device of coremltools."""
    names = {"MLCPUComputeDevice": "cpu", "MLGPUComputeDevice": "gpu", "MLNeuralEngineComputeDevice": "ane"}
    return names.get(type(device).__name__, "unknown")


def exported(plan, operation):
    """One operation, then those of its nested blocks, in program order."""
    entry = {"op": operation.operator_name, "outputs": [output.name for output in operation.outputs]}
    usage = plan.get_compute_device_usage_for_mlprogram_operation(operation)
    if usage is not None:
        entry["preferred"] = unit_name(usage.preferred_compute_device)
        entry["supported"] = [unit_name(device) for device in usage.supported_compute_devices]
    cost = plan.get_estimated_cost_for_mlprogram_operation(operation)
    if cost is not None:
        entry["cost"] = cost.weight
    yield entry
    for block in operation.blocks:
        for nested in block.operations:
            yield from exported(plan, nested)


def chip():
    """The name of the chip, such as "Apple M4"."""
    result = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=False)
    return result.stdout.strip() or platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("-o", "--output", help="file to write (default: standard output)")
    parser.add_argument("--units", default="CPU_AND_NE", choices=[unit.name for unit in ct.ComputeUnit])
    arguments = parser.parse_args()

    path = arguments.model.rstrip(os.sep)
    compiled = path if path.endswith(".mlmodelc") else ct.models.utils.compile_model(path)
    plan = MLComputePlan.load_from_path(compiled, compute_units=ct.ComputeUnit[arguments.units])
    program = plan.model_structure.program
    if program is None:
        sys.exit(f"{path}: not an ML program; only ML programs have operations to plan")
    document = {
        "format": "milwright-compute-plan",
        "version": 1,
        "environment": {
            "device": chip(),
            "os": f"macOS {platform.mac_ver()[0]}",
            "compute_units": arguments.units,
            "coremltools": ct.__version__,
        },
        "functions": {
            name: [entry for operation in function.block.operations for entry in exported(plan, operation)]
            for name, function in program.functions.items()
        },
    }
    text = json.dumps(document, indent=1) + "\n"
    if arguments.output:
        with open(arguments.output, "w", encoding="utf-8") as file:
            file.write(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
