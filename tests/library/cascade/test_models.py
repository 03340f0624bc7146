"""How the columns of each model of a cascade are read."""

import pytest

from relmap.cascade.models import MODEL_FIELDS, parse_costs, parse_model, parse_number, read_models
from relmap.errors import InputError, naming
from relmap.io.column_layout import Reading
from tests.texts import numbers_in


def read_model(given: object, *, id_columns: list[str] | None = None, **options: object) -> Reading:
    """Return the reading of a single model, called a."""
    options = {"label": None, "drop_unlabelled": False} | options
    return read_models({"a": given}, id_columns=id_columns, **options)["a"]


# Fields


def test_fields_of_a_model_are_those_of_a_reading_without_those_of_rows():
    columns = ["decision", "confidence", "logits", "probabilities", "probability", "score"]
    assert sorted(MODEL_FIELDS) == sorted([*columns, "confidence_words", "percent", "border", "positive"])


def test_models_keep_their_order_and_share_the_fields_of_rows():
    given = {"b": {"decision": "x"}, "a": {"probability": "y", "positive": "yes"}}
    readings = read_models(given, label="truth", id_columns=["key"], drop_unlabelled=True)
    assert list(readings) == ["b", "a"]
    assert readings["b"] == Reading(decision="x", label="truth", id="key", drop_unlabelled=True)
    assert readings["a"] == Reading(probability="y", positive="yes", label="truth", id="key", drop_unlabelled=True)


@pytest.mark.parametrize(
    ("id_columns", "expected"), [(None, None), ([], None), (["key"], "key"), (["key", "other"], None)]
)
def test_only_a_single_column_of_ids_identifies_fit_rows(id_columns, expected):
    assert read_model({"decision": "x"}, id_columns=id_columns).id == expected


@pytest.mark.parametrize("values", [["p", "q"], ("p", "q"), "p,q"])
@pytest.mark.parametrize("field", ["probabilities", "logits"])
def test_a_list_of_columns_is_read_as_the_option_is(field, values):
    assert read_model({field: values}) == Reading(**{field: "p,q"})


@pytest.mark.parametrize(
    ("border", "expected"), [([0.5, 1.5], (0.5, 1.5)), ("0.5,1.5", (0.5, 1.5)), (0, (0.0,)), (None, ())]
)
def test_a_list_of_borders_is_read_as_the_option_is(border, expected):
    assert read_model({"score": "s", "border": border}).borders == expected


@pytest.mark.parametrize("words", [{"low": 0.3, "high": 0.9}, "low=.3,high=.9", None])
def test_words_of_the_confidence_are_a_mapping_or_a_text(words):
    reading = read_model({"decision": "x", "confidence": "sure", "confidence_words": words})
    assert reading.words == ({} if words is None else {"low": 0.3, "high": 0.9})


def test_given_fields_are_not_changed():
    given = {"probabilities": ["p", "q"], "confidence_words": None}
    read_model(given)
    assert given == {"probabilities": ["p", "q"], "confidence_words": None}


@pytest.mark.parametrize("field", ["decision", "probabilities", "logits", "probability", "score"])
def test_each_column_of_predictions_suffices(field):
    assert getattr(read_model({field: "x"}), field) == "x"


@pytest.mark.parametrize("given", [{}, {"confidence": "x"}, {"decision": None}, {"decision": "", "percent": True}])
def test_a_model_without_predictions_is_refused(given):
    with naming("python"), pytest.raises(InputError, match=r"model a .*probabilities.*\{'decision': 'COLUMN'\}$"):
        read_model(given)
    with pytest.raises(InputError, match=r"--model 'a decision=COLUMN'$"):
        read_model(given)


@pytest.mark.parametrize("field", ["label", "id", "drop_unlabelled", "column"])
def test_fields_that_a_model_does_not_have_are_named(field):
    with pytest.raises(InputError, match=rf"model a has {field}; use decision, .*positive$"):
        read_model({"decision": "x", field: "y"})


@pytest.mark.parametrize("given", ["x", b"x", ["decision"], None, 3])
def test_a_model_without_named_fields_is_refused(given):
    with pytest.raises(InputError, match=r"model a is .*\{'decision': 'column'\}"):
        read_model(given)


# The command line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", ("a", {})),
        ("a decision=x", ("a", {"decision": "x"})),
        ("a decision=x confidence='my column'", ("a", {"decision": "x", "confidence": "my column"})),
        ("a confidence_words=low=.3,high=.9", ("a", {"confidence_words": "low=.3,high=.9"})),
    ],
)
def test_a_model_is_parsed(text, expected):
    assert parse_model(text) == expected


@pytest.mark.parametrize(
    ("word", "expected"), [("true", True), ("yes", True), ("1", True), ("false", False), ("no", False), ("0", False)]
)
def test_each_word_for_percent_has_its_meaning(word, expected):
    for text in (word, word.upper()):
        assert parse_model(f"a percent={text}") == ("a", {"percent": expected})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "'' has no name"),
        ("a 'open", "open quote"),
        ("a decision", "'decision' is not one field"),
        ("a decision=", "'decision=' is not one field"),
        ("a decision=x decision=y", "'decision=y' is not one field"),
        ("a percent=maybe", "percent is 'maybe'; say true or false"),
    ],
)
def test_an_unclear_model_is_refused(text, reason):
    with pytest.raises(InputError, match=reason):
        parse_model(text)


def test_an_example_of_a_model_can_be_parsed():
    with pytest.raises(InputError, match=r"such as --model '.*'$") as refusal:
        parse_model("")
    example = str(refusal.value).rpartition("--model '")[2].removesuffix("'")
    name, given = parse_model(example)
    assert read_models({name: given}, label=None, id_columns=None, drop_unlabelled=False)[name].decision == "label_1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a=1", {"a": 1.0}), (" a = 1, person=2.5 ", {"a": 1.0, "person": 2.5}), ("a=0,b=1e3", {"a": 0.0, "b": 1000.0})],
)
def test_costs_are_parsed(text, expected):
    assert parse_costs(text) == expected


@pytest.mark.parametrize("text", ["", "a", "a=1,", "a=1,a=2", "a=1 , a = 2"])
def test_unclear_costs_are_refused(text):
    with pytest.raises(InputError, match=r"^--cost .*one cost") as refusal:
        parse_costs(text)
    assert numbers_in(str(refusal.value))[-3:] == ["1", "20", "100"]


def test_a_cost_that_is_no_number_is_named():
    with pytest.raises(InputError, match=r"^the cost of b is 'x'"):
        parse_costs("a=1,b=x")
    with pytest.raises(InputError, match=r"^the size is ''"):
        parse_number("", "the size")
    assert parse_number("2.5", "the size") == 2.5
