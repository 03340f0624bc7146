"""params.yaml: what it says is what a run gets, and a mistake in it is named."""

from pathlib import Path

import pytest
import yaml

from tasks.calibrators import calibrators_for
from tasks.protocol.errors import BadInput
from tasks.protocol.params import METRIC_DEFAULTS, load_params
from tasks.tables.runs import BOOSTED, PAPER_CALIBRATORS, PAPER_DATASETS

PARAMS = Path(__file__).resolve().parent.parent / "params.yaml"


def written(folder: Path, place: str, value: object) -> Path:
    """Write params.yaml with one place changed into `folder`, and return its path."""
    part = content = yaml.safe_load(PARAMS.read_text())
    *way, last = place.split(".")
    for name in way:
        part = part[name]
    part[last] = value
    (folder / "params.yaml").write_text(yaml.safe_dump(content))
    return folder / "params.yaml"


def test_the_numbers_of_the_paper_are_the_default():
    params = load_params(PARAMS)
    assert params.seeds == (1, 2, 3)
    assert params.metrics == METRIC_DEFAULTS  # those without a params.yaml
    assert (params.projection.knots, params.projection.epochs) == (8, 400)
    assert (params.projection.smoothness, params.projection.learning_rate) == (1e-4, 0.03)
    assert params.protocol.projection_cap == 8000
    assert params.calibrators == PAPER_CALIBRATORS
    assert params.rivals.calibrators == calibrators_for("rival")
    assert params.sensitivity.calibrators == ("uncal", "ts")
    assert set(params.datasets) == {*PAPER_DATASETS, BOOSTED}
    own = {name: entry.calibrators for name, entry in params.datasets.items() if entry.calibrators}
    assert own == {BOOSTED: ("uncal",)}
    with pytest.raises(BadInput, match=r"no data set 'wand'.*wands"):
        params.dataset("wand")
    with pytest.raises(ValueError, match="frozen"):
        params.projection.knots = 9


def test_calibrators_are_compared_up_to_the_first_number_of_rows_that_is_not_there():
    rivals = load_params(PARAMS).rivals
    for there, steps in ((50, 1), (1000, 3), (1001, 4), (20_000, 5)):
        assert rivals.asked(there) == (100, 300, 1000, 3000, 8000)[:steps]


def test_an_alternative_changes_what_it_names_and_nothing_else():
    params = load_params(PARAMS)
    metrics = params.metrics.model_copy(update={"ece_bins": 25})
    assert params.with_alternative("ece_25_bins") == params.model_copy(update={"metrics": metrics})


OTHER, OWN = "sensitivity.alternatives", {"source": "files", "reader": "files", "path": "mine.csv"}
NAMED = OWN | {"split": {"by": "row"}}
WRONG: dict[str, tuple[object, ...]] = {  # place -> values that cannot be there
    **{"seedz": ([1],), "seeds": ([], [-1]), "projection.knotz": (8,), "projection.knots": (2, "eight")},
    **{"protocol.split": ("query",), "protocol.temperature_rows": ("test",), "protocol.projection_cap": (0,)},
    **{"metrics.resamples": (200,), f"{OTHER}.ece_25_bins.metricz": ({},), "engine": ("ray",), "dask.workers": (0,)},
    **{"dask.address": ("ip:8786", "http://ip:8786", "tcp://ip"), "train.members": (0,), "datasets": ({},)},
    **{"train.alternatives": (["member_9"],), "datasets.Bad-Name": (NAMED,), "datasets.wands.source": ("magic",)},
    **{"datasets.wands.preset": ("clean",), "datasets.wands.rows": (5,), "datasets.wands.residual": (-1,)},
    **{"datasets.wands.class_weight": ("heavy",), "datasets.wands.revision": ("main",)},
}


CONTRADICTIONS = (
    ("protocol.parts", [0.5, 0.25, 0.2], "sum to 0.95"),
    (f"{OTHER}.ece_25_bins", {"metrics": {"ece_binz": 25}}, "ece_binz"),
    (f"{OTHER}.ece_25_bins", {"metrics": {"ece_bins": 9}, "simplex": {"off_top_alpha": 0}}, "one of"),
    ("calibrators", ["ts", "matrix"], "matrix is given more than once"),
    ("seeds", [1, 2, 2], "seed 2 is given more than once"),
    ("datasets.wands.rows", None, "needs `rows`"),
    ("datasets.wands.split", {"by": "row"}, "says how the set is split"),
    ("datasets.wands.source", "files", "does not read the source `files`"),
    ("datasets.wands.reader", "files", "readers of your own have none"),
    ("datasets.mine", OWN, "give `split`"),
    ("datasets.mine", OWN | {"split": {"by": "query"}}, "found 'query'"),
    ("datasets.mine", OWN | {"split": {"by": "row", "test": 2}}, "split.test"),
    ("datasets.mine", OWN | {"split": {"by": "row", "validation": 0.6, "test": 0.5}}, "sum to 1.1"),
    ("metrics", {"ties": "expected"}, "ece_bins"),  # a section names each of its choices
    ("projection", {"knots": 8}, "epochs, learning_rate, minimum_rows, smoothness is missing"),
    *((place, value, rf"^  {place}.*\(found ") for place, values in WRONG.items() for value in values),
)


@pytest.mark.parametrize(("place", "value", "words"), CONTRADICTIONS)
def test_what_cannot_be_or_contradicts_itself_is_named_with_its_place_and_what_stood_there(
    tmp_path, place, value, words
):
    with pytest.raises(BadInput, match=rf"(?m)params\.yaml has . mistake\(s\):(.|\n)*{words}"):
        load_params(written(tmp_path, place, value))


@pytest.mark.parametrize(("content", "words"), [("seeds: [1, 2\n  x: ]", "not valid YAML"), (None, "root folder")])
def test_a_file_that_is_no_yaml_or_missing_is_an_error(tmp_path, content, words):
    path = tmp_path / "params.yaml"
    if content:
        path.write_text(content)
    with pytest.raises(BadInput, match=words):
        load_params(path)


@pytest.mark.parametrize("train", [0.6, 0.0])
def test_own_files_need_no_preset_and_train_takes_what_is_left(tmp_path, train):
    entry = OWN | {"split": {"by": "row", "validation": 0.8 - train, "test": 0.2}, "class_weight": "balanced"}
    read = load_params(written(tmp_path, "datasets.mine", entry)).dataset("mine")
    assert read.class_weight == "balanced"
    assert read.split.shares == pytest.approx({"train": train, "validation": 0.8 - train, "test": 0.2})
