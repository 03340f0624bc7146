"""Loading of the results that the report shows."""

from pathlib import Path

import polars as pl
import pytest
import yaml

from relmap.io.atomic import write_json
from tasks.records.store import base_folder, runs_folder
from tasks.report import load_runs
from tasks.settings.params import Params

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def params() -> Params:
    content = yaml.safe_load((ROOT / "params.yaml").read_text())
    content["calibrators"] = ["uncal", "ts"]
    names = list(content["datasets"])[:3]
    content["datasets"] = {name: content["datasets"][name] for name in names}
    content["datasets"][names[1]]["calibrators"] = ["ts", "diag"]
    return Params.model_validate(content)


def test_results_are_loaded_in_the_order_of_the_settings_without_missing_data_sets(params, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second, third = params.datasets
    for number, dataset in enumerate((third, first)):
        for table in ("metrics", "intervals", "rivals", "sensitivity"):
            path = runs_folder(dataset) / f"{table}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pl.DataFrame({"dataset": [dataset], "table": [table]}).write_parquet(path)
        base_folder(dataset).mkdir(parents=True)
        write_json(base_folder(dataset) / "base.json", {"number": number})

    runs = load_runs.fn(params, [second])

    for table in ("metrics", "intervals", "rivals", "sensitivity"):
        assert getattr(runs, table).rows() == [(first, table), (third, table)]
    assert [facts["number"] for facts in runs.facts] == [1, 0]
    assert runs.missing == (second,)
    assert runs.calibrators == ("uncal", "ts")
    assert runs.calibrators_by_dataset == {second: ("ts", "diag")}
