"""What the flow `reliability` computes, called one after the other: no flow, no server, no thread, nothing kept.

`python bare.py wands`, in a project's folder. Prefect is imported, since its decorators stand on the functions.
"""

from __future__ import annotations

import sys
from pathlib import Path

from flows.reliability import cut, with_calibrators
from tasks.bound import bound
from tasks.calibrate import calibrate
from tasks.compare import compare
from tasks.measure import measure
from tasks.project import project
from tasks.protocol.params import load_params
from tasks.protocol.store import read_base
from tasks.validate import known, unchanged
from tasks.vary import vary
from tasks.write import write_runs


def bare(dataset: str, folder: Path) -> None:
    """Write the same results into `folder`."""
    params = load_params()
    params = with_calibrators(params, params.calibrators)
    base, rivals, few = read_base(dataset), params.rivals.calibrators, params.rivals.rows
    cuts = cut(base, params, None)
    steps = params.rivals.asked(min(len(parts.calibrator_fit) for parts in cuts))
    made = {"gates": [known.fn(dataset)], "projected": [], "metrics": [], "rivals": [], "sensitivity": []}
    for parts in cuts:
        fit, seed = parts.calibrator_fit, parts.seed
        compared = [calibrate.fn(fit, name, seed, few) for name in (*params.calibrators, *rivals)]
        fits = [*compared, *(calibrate.fn(fit, name, seed) for name in params.sensitivity.calibrators)]
        both = [calibrate.fn(parts.both_fits, name, seed, tuple(2 * rows for rows in few)) for name in rivals]
        projected = project.fn(fits, parts, base.test, params, "cpu")
        gated = unchanged.fn(projected, fits, dataset, params.metrics.ece_bins)
        made["projected"].append(gated)
        made["metrics"].append(measure.fn(gated, base.test.labels, params.metrics))
        made["rivals"].append(compare.fn(compared, both, steps, parts, base.test, params, "cpu"))
        made["sensitivity"].append(vary.fn(gated, fits, parts, base.test, params, "cpu"))
    intervals = bound.fn(made["projected"], made["metrics"], base.test, params.calibrators, params.metrics)
    write_runs.fn(base, made | {"intervals": [intervals]}, params, {"device": "cpu"}, folder)


if __name__ == "__main__":
    bare(sys.argv[1], Path("bare") / sys.argv[1])
