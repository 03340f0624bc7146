"""What the README and the pages beside the code tell people to type is typed here."""

import json
import re
import shlex
import sys
from pathlib import Path
from subprocess import STDOUT
from types import SimpleNamespace

import lightgbm
import maps
import numpy as np
import polars as pl
import pytest
import yaml
from sklearn.linear_model import LogisticRegression

from relmap import cli as rerank
from relmap import demo
from relmap.maps.map_file import load_map, save_map
from tasks.datasets import dataset_named
from tasks.settings.dataset_params import DatasetParams

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("tasks/*/README.md")),
    ROOT / "relmap/README.md",
    ROOT / "tests/bench/README.md",
]
README = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def block(part: str) -> str:
    """The one block of Python with `part` in it."""
    (code,) = [code for code in BLOCKS if part in code]
    return code


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def judged(n: int = 900, n_labels: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels."""
    made = maps.predictions(n, n_labels, seed=3)
    return np.array(made["logits"].to_list()), made["label"].to_numpy()


def routed(folder: Path) -> pl.DataFrame:
    rows = pl.read_parquet(folder / "routed.parquet")
    assert (rows["route"] == "automatic").sum() == int(0.7 * len(rows))
    return rows


def test_a_classifier_of_scikit_learn_is_routed(folder):
    features, label = judged(1200, 3)
    model = LogisticRegression().fit(features[:300], label[:300])
    names = {"model": model, "X_val": features[300:], "y_val": label[300:], "X_new": features[:100]}
    exec(block("predict_proba"), names)
    assert names["routed"]["decision"].tolist() == model.predict(features[:100]).tolist()
    assert sum(names["routed"]["route"] == "automatic") == 70


def test_the_saved_logits_of_a_cross_encoder_are_routed(folder):
    logits, label = judged(900, 3)
    np.save("val_logits.npy", logits)
    np.save("new_logits.npy", logits[:50].astype(np.float32))
    exec(block("val_logits.npy"), {"queries": [f"q{row // 9}" for row in range(900)], "labels": label})
    assert routed(folder)["decision"].to_list() == logits[:50].argmax(axis=1).tolist()


def test_a_ranker_of_lightgbm_is_routed(folder):
    features, label = judged(1200)
    settings = {"n_estimators": 20, "min_child_samples": 5, "verbose": -1}
    ranker = lightgbm.LGBMRanker(**settings).fit(features[:300], label[:300], group=[10] * 30)
    names = {"ranker": ranker, "border": 0.0, "X_val": features[300:], "X_new": features[:80]}
    exec(block("ranker.predict"), names | {"relevant_val": label[300:]})
    assert routed(folder)["decision"].to_list() == (ranker.predict(features[:80]) > 0).astype(int).tolist()


def test_the_labels_and_confidences_of_a_judge_are_routed(folder):
    confidence_only = maps.confidence_only(900, 2).with_columns(
        pl.col("decision", "label").replace_strict({0: "irrelevant", 1: "relevant"})
    )
    confidence_only.write_ndjson("val.jsonl")
    confidence_only.drop("label").head(60).write_ndjson("new.jsonl")
    exec(block("val.jsonl"), {})
    assert json.loads(Path("evaluation.json").read_text())["rows"] == 900
    assert routed(folder)["decision"].to_list() == confidence_only["decision"].head(60).to_list()


def test_a_judge_of_labels_alone_is_routed_with_its_criteria(folder):
    made = maps.judged_with_signals(900).rename({"agreement": "exactness", "group": "query"})
    made = made.with_columns(topicality=pl.int_range(900) % 4, query=pl.col("query").cast(pl.String))
    made.write_ndjson("judge.jsonl")
    made.drop("label").head(60).write_ndjson("new.jsonl")
    exec(block("judge.jsonl"), {})
    assert routed(folder)["reliability"].n_unique() > 10


@pytest.mark.parametrize("corrected", [False, True])
def test_the_lines_of_numpy_give_what_apply_gives(folder, corrected):
    maps.predictions(900).write_parquet("val.parquet")
    rerank.fit(Path("val.parquet"), Path("map.json"), variant="mrp")
    if corrected:
        save_map(maps.with_correction(load_map(Path("map.json"))), Path("map.json"))
    rerank.apply(Path("map.json"), Path("val.parquet"), Path("routed.parquet"), coverage="0.7")
    scored = routed(folder)
    names = {name: scored[name].to_numpy() for name in ("decision", "confidence")}
    exec(block("np.interp"), names)
    np.testing.assert_allclose(names["reliability"], scored["reliability"], rtol=0, atol=1e-12)


def test_every_command_of_rerank_in_the_readme_runs_in_its_order(folder, capsys):
    for seed, name in enumerate(("val", "test", "new")):
        made = maps.predictions(900, shift=2.0, seed=seed)
        (made.drop("label") if name == "new" else made).write_parquet(f"{name}.parquet")
    score = np.linspace(-4, 4, 900)
    label = np.where(np.random.default_rng(0).random(900) < 1 / (1 + np.exp(-3 * score)), "relevant", "other")
    pl.DataFrame({"s": score, "label": label}).write_csv("scores.csv")
    commands = re.findall(r"^relmap (.*)$", README, flags=re.MULTILINE)
    every = {command.callback.__name__ for command in rerank.app.registered_commands}
    assert {shlex.split(each, comments=True)[0] for each in commands} == every
    for command in commands:
        if not command.startswith("demo"):  # a test of its own
            rerank.app(shlex.split(command), standalone_mode=False)
    assert "CASE" in capsys.readouterr().out


def test_every_entry_of_params_yaml_on_these_pages_is_a_sound_one():
    entries = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", README, re.DOTALL | re.MULTILINE)]
    params = {name: DatasetParams.model_validate(entry) for some in entries for name, entry in some.items()}
    assert {entry.reader for entry in params.values()} == {None, "files", "hub", "logits"}
    for name, entry in params.items():
        dataset_named(name, entry.reader, entry.options)


ON_DASK = "system/test_dask.py"
TYPED = {  # each command of the README that is none of `relmap.cli`: what a test file holds that types it
    "dvc repro": ("pipeline/test_end_to_end.py", '["repro"]'),
    "dvc repro reliability@wands": ("pipeline/test_end_to_end.py", '["repro", "reliability@wands"]'),
    "dvc repro --downstream train@wands": ("pipeline/test_end_to_end.py", '["repro", "--downstream", "train@wands"]'),
    "dvc metrics diff": ("pipeline/test_page.py", '"metrics"'),
    "dvc plots diff": ("pipeline/test_page.py", '"diff"'),
    "dvc plots show": ("pipeline/test_page.py", '"show"'),
    "dvc push": ("pipeline/test_end_to_end.py", '["push"]'),
    "dvc --version": ("bench/test_bench_orchestration.py", "dvc"),
    "python -m flows.serve": ("system/served.py", '"flows.serve"'),
    "python -m flows.refresh": ("pipeline/test_end_to_end.py", '"flows.refresh"'),
    "python -m flows.reliability wands --seed 2 --calibrator smart": (ON_DASK, '"flows.reliability", "wands"'),
    "python -m flows.report --only my_products": ("pipeline/test_end_to_end.py", "report.main(['mine'])"),
    "dvc metrics show": ("pipeline/test_end_to_end.py", '["metrics", "show"]'),
    "python -m flows.verify": ("pipeline/test_end_to_end.py", '"flows.verify"'),
}


def commands() -> set[str]:
    """Every command in the README, in a line or a block, without its comment."""
    spans = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", README)
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    lines = [line for language, block in blocks if not language for line in block.splitlines()]
    typed = (text.split(" #")[0].strip() for text in (*spans, *lines))
    return {text for text in typed if re.match(r"([A-Z_]+=\S+ )?(make|dvc|python -m) ", text)}


def test_every_command_of_the_readme_is_typed_by_a_test():
    others = {text for text in commands() if not text.startswith(("make ", "relmap "))}
    assert others == set(TYPED)
    for command, (file, text) in TYPED.items():
        assert text in (ROOT / "tests" / file).read_text(encoding="utf-8"), command


def test_every_target_of_the_readme_is_one_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    assert {text.split()[1] for text in commands() if text.startswith("make ")} <= targets


def test_the_demo_ends_in_the_verdict_that_stands_in_the_readme(folder, monkeypatch, capsys):
    def run(words: list[str], *, stderr: int, **_: object) -> SimpleNamespace:
        assert [*words[:3], stderr] == [sys.executable, "-m", "relmap", STDOUT]  # one stream for people
        rerank.app(words[3:], standalone_mode=False)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr("subprocess.run", run)
    demo.run_demo(Path("data/demo"))
    shown = "".join(capsys.readouterr())
    assert shown.startswith("Simulated predictions")
    (verdict,) = re.findall(r"verdict, after .*?```\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert verdict in shown


@pytest.mark.parametrize("page", [*PAGES, ROOT / "flows/README.md"], ids=lambda page: page.parent.name)
def test_what_a_page_links_to_is_there(page):
    places = re.findall(r"\]\(([\w./-]+)\)", page.read_text(encoding="utf-8"))
    assert not [place for place in places if not (page.parent / place).exists()]
