"""The made-up files of the pages on other tools have the documented shape of these tools, and become rows.

Sources of the shapes: promptfoo, `EvaluateSummaryV3` and `EvaluateResult` in src/types; deepeval, `LLMApiTestCase` and
`MetricData`; ragas, `EvaluationResult.to_pandas`; langfuse, the batch export of scores; Label Studio, "JSON format of
annotated tasks"; the chat completions of the OpenAI API.
"""

import csv
import json
import sys
from pathlib import Path

import polars as pl
import pytest
from jsonschema import Draft202012Validator

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs/_ext"))

from page_code import PART  # noqa: E402 - needs the path above


def record(**properties: object) -> dict[str, object]:
    """Return the JSON schema of an object with these properties, of which others may exist."""
    return {"type": "object", "required": [*properties], "properties": properties}


def array(items: object) -> dict[str, object]:
    return {"type": "array", "items": items, "minItems": 1}


TEXT = {"type": "string"}
NUMBER = {"type": "number"}
WHOLE = {"type": "integer"}
TRUTH = {"type": "boolean"}
GRADE = {"pass": TRUTH, "score": NUMBER, "reason": TEXT}
PROMPTFOO_RESULT = record(
    promptIdx=WHOLE,
    testIdx=WHOLE,
    vars={"type": "object"},
    provider=record(id=TEXT),
    response=record(output=TEXT),
    success=TRUTH,
    score=NUMBER,
    failureReason={"enum": [0, 1, 2]},
    namedScores={"type": "object"},
    latencyMs=NUMBER,
    gradingResult={
        "anyOf": [
            {"type": "null"},  # after an error
            record(**GRADE, componentResults=array(record(**GRADE, assertion=record(type=TEXT)))),
        ]
    },
)
DEEPEVAL_METRIC = {
    **record(name=TEXT, threshold=NUMBER, success=TRUTH, strictMode=TRUTH),
    "anyOf": [record(score=NUMBER, reason=TEXT, evaluationModel=TEXT), record(error=TEXT)],
}
CHOICE = record(
    id=TEXT,
    from_name=TEXT,
    to_name=TEXT,
    type={"const": "choices"},
    value={
        "type": "object",
        "required": ["choices"],
        "properties": {"choices": array(TEXT)},
        "additionalProperties": False,
    },
)
LABEL_STUDIO_TASK = record(
    id=WHOLE,
    project=WHOLE,
    data={"type": "object"},
    created_at=TEXT,
    annotations=array(
        record(
            id=WHOLE,
            result=array(CHOICE),
            was_cancelled=TRUTH,
            ground_truth=TRUTH,
            completed_by=WHOLE,
            lead_time=NUMBER,
        )
    ),
    predictions=array(record(model_version=TEXT, score=NUMBER, result=array(CHOICE))),
)
TOKEN = {"token": TEXT, "logprob": {"type": "number", "maximum": 0}, "bytes": array(WHOLE)}
COMPLETION = record(
    object={"const": "chat.completion"},
    choices=array(
        record(
            index=WHOLE,
            message=record(role=TEXT, content=TEXT),
            logprobs=record(content=array(record(**TOKEN, top_logprobs=array(record(**TOKEN))))),
        )
    ),
)
JSON_FILES = {
    "results.json": record(
        evalId=TEXT,
        config={"type": "object"},
        shareableUrl={},
        results=record(version={"const": 3}, timestamp=TEXT, prompts={}, stats={}, results=array(PROMPTFOO_RESULT)),
    ),
    "test_run.json": record(
        testCases=array(
            record(
                name=TEXT, input=TEXT, actualOutput=TEXT, success=TRUTH, metricsData=array(DEEPEVAL_METRIC), order=WHOLE
            )
        )
    ),
    "label_studio.json": array(LABEL_STUDIO_TASK),
}
CSV_COLUMNS = {
    "ragas.csv": ["user_input", "retrieved_contexts", "response", "reference", "faithfulness"],
    "scores.csv": [
        "id", "traceId", "sessionId", "datasetRunId", "timestamp", "source", "name", "dataType", "value", "stringValue",
        "comment", "metadata", "observationId", "traceName", "userId", "traceTags", "environment", "authorUserName",
    ],
}  # fmt: skip
ROWS = {  # file of the page -> columns that relmap reads
    "promptfoo.csv": {"id", "test", "decision", "margin", "label"},
    "deepeval.csv": {"name", "decision", "margin", "label"},
    "faithfulness.csv": {"faithfulness", "label"},
    "langfuse.csv": {"traceId", "sessionId", "decision", "label"},
    "judge.csv": {"id", "p_no", "p_yes", "listed", "label"},
    "agreed.csv": {"id", "query", "decision", "confidence", "label"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Run the Python code of the pages, without the commands; `make docs` runs all of it."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("use-evaluation-tools", "use-annotations"):
            namespace: dict[str, object] = {}
            for part in PART.finditer((ROOT / f"docs/how-to/{name}.md").read_text(encoding="utf-8")):
                if part["setup"] or part["language"] == "python":
                    exec(part["setup"] or part["code"], namespace)
    return folder


@pytest.mark.parametrize("name", JSON_FILES)
def test_files_of_json_have_the_documented_shape(name, folder):
    content = json.loads((folder / name).read_text())
    Draft202012Validator(JSON_FILES[name]).validate(content)


def test_responses_with_log_probabilities_have_the_documented_shape(folder):
    for line in (folder / "answers.jsonl").read_text().splitlines():
        Draft202012Validator(COMPLETION).validate(json.loads(line)["response"])


@pytest.mark.parametrize("name", CSV_COLUMNS)
def test_csv_files_have_the_documented_columns(name, folder):
    with (folder / name).open(newline="") as file:
        assert next(csv.reader(file)) == CSV_COLUMNS[name]


def test_sources_of_langfuse_and_types_of_promptfoo_are_the_documented_ones(folder):
    assert set(pl.read_csv(folder / "scores.csv")["source"]) == {"EVAL", "ANNOTATION"}
    results = json.loads((folder / "results.json").read_text())["results"]["results"]
    graded = [result["gradingResult"] for result in results if result["gradingResult"]]
    parts = [part for grading in graded for part in grading["componentResults"]]
    assert {part["assertion"]["type"] for part in parts} == {"llm-rubric", "human"}


@pytest.mark.parametrize("name", ROWS)
def test_exports_become_rows_with_a_prediction_and_a_label(name, folder):
    rows = pl.read_csv(folder / name)
    assert set(rows.columns) >= ROWS[name]
    assert len(rows) >= 390
    assert rows["label"].n_unique() == 2 + (rows["label"].null_count() > 0)


def test_probabilities_of_labels_sum_to_1_and_none_is_0(folder):
    rows = pl.read_csv(folder / "judge.csv")
    assert ((rows["p_no"] + rows["p_yes"] - 1).abs() < 1e-12).all()
    assert rows.select(pl.min_horizontal("p_no", "p_yes", "listed")).min().item() > 0


def test_better_annotators_agree_more_often_with_the_combined_labels(folder):
    tasks = json.loads((folder / "label_studio.json").read_text())
    votes = [(task["id"], each) for task in tasks for each in task["annotations"]]
    rows = [(task, each["completed_by"], each["result"][0]["value"]["choices"][0]) for task, each in votes]
    frame = pl.DataFrame(rows, schema=["id", "annotator", "vote"], orient="row")
    agreed = frame.join(pl.read_csv(folder / "agreed.csv").select("id", "label"), on="id")
    shares = agreed.group_by("annotator").agg((pl.col("vote") == pl.col("label")).mean()).sort("annotator")
    assert shares["vote"].to_list() == sorted(shares["vote"], reverse=True)  # annotators are ordered by accuracy
