"""Runs and judgments of TREC are read whatever their spacing and order, and nobody's judgment is made up."""

import gzip
import json
import re
from html import unescape

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relmap import InputError, cli
from relmap.io.column_layout import TrecFiles
from relmap.io.trec import JudgedRun, check_grade_order, is_run, open_run, read_judged_run
from relmap.maps.folds import split_folds
from relmap.routing.thresholds import suggest_hold_out

RUN = ["7 Q0 a 1 3.5 bm25", "7 Q0 b 2 2.5 bm25", "7 Q0 c 3 1.5 bm25", "8 Q0 a 1 -4e-1 bm25", "9 Q0 z 1 0 bm25"]
QRELS = ["7 0 a 3", "7 0 b 1", "7 0 x 2", "7 0 c -1", "8 0 a 0", "8 0 b 3", "10 0 z 3"]


def read(folder, run=RUN, qrels=QRELS, *, all_grades=False, **options) -> JudgedRun:
    (folder / "my.run").write_text("\n".join(run) + "\n")
    (folder / "qrels.txt").write_text("\n".join(qrels) + "\n")
    files = TrecFiles(folder / "my.run", folder / "qrels.txt", **options)
    return read_judged_run(files, all_grades=all_grades)


def labels_of(judged: JudgedRun) -> dict[tuple[str, str], object]:
    return {(row["query"], row["document"]): row["label"] for row in judged.rows.frame.iter_rows(named=True)}


def test_grades_from_the_lowest_relevant_one_on_are_relevant(tmp_path):
    expected = {("7", "a"): "relevant", ("7", "b"): "irrelevant", ("8", "a"): "irrelevant"}
    assert labels_of(read(tmp_path, relevant_from=2)) == expected
    assert labels_of(read(tmp_path, relevant_from=1)) == expected | {("7", "b"): "relevant"}


def test_grades_can_be_the_labels(tmp_path):
    judged = read(tmp_path, all_grades=True)
    assert labels_of(judged) == {("7", "a"): 3, ("7", "b"): 1, ("8", "a"): 0}
    assert judged.rows.reading.positive is None


def test_grades_as_labels_are_counted_by_grade(tmp_path):
    judged = read(tmp_path, all_grades=True)
    by_grade, missing = judged.notes[-2:]
    assert by_grade == "Documents by grade: 0 (1), 1 (1), 3 (1)."
    assert re.fullmatch(rf"2 of 4 .*grade 1 .*\bnot .*{re.escape(str(tmp_path / 'my.run'))}: .*recall .*", missing)


def test_grades_0_and_1_need_no_option(tmp_path):
    judged = read(tmp_path, qrels=["7 0 a 1", "7 0 b 0"])
    assert labels_of(judged) == {("7", "a"): "relevant", ("7", "b"): "irrelevant"}
    assert judged.rows.reading.positive == "relevant"


def test_scores_are_those_of_the_run(tmp_path):
    frame = read(tmp_path, relevant_from=2).rows.frame
    assert frame.select("query", "document", "score").rows() == [("7", "a", 3.5), ("7", "b", 2.5), ("8", "a", -0.4)]


def test_documents_without_a_judgment_are_counted_and_omitted_or_irrelevant_on_request(tmp_path):
    omitted = read(tmp_path, relevant_from=2)
    assert re.match(r"2 of 5 .*\(40\.0%\) .*\bomitted; --unjudged", omitted.notes[0])
    counted = read(tmp_path, relevant_from=2, unjudged="irrelevant")
    assert labels_of(counted) == labels_of(omitted) | {("7", "c"): "irrelevant", ("9", "z"): "irrelevant"}
    assert "count as irrelevant" in counted.notes[0]
    for judged in (omitted, counted):
        assert re.search(r"\bQueries [^:]*: 1\. .*\bnegative [^:]*: 1\b", judged.notes[0])


def test_a_fully_judged_run_has_no_note_on_judgments(tmp_path):
    judged = read(tmp_path, run=RUN[:2], qrels=QRELS[:2], relevant_from=2)
    (note,) = judged.notes
    assert re.fullmatch(r"1 of 2 .*\brelevant \(grade 2 .*\)\.", note)


def test_other_scores_of_documents_without_a_judgment_are_reported(tmp_path):
    run = [f"1 Q0 d{k} {k} {-k} t" for k in range(100)]
    qrels = [f"1 0 d{k} {k % 2}" for k in range(40)]
    assert any("clearly other scores" in note for note in read(tmp_path, run, qrels).notes)
    qrels = [f"1 0 d{k} {k % 4 // 2}" for k in range(0, 100, 2)]
    notes = read(tmp_path, run, qrels).notes
    assert any("judged documents only" in note for note in notes)
    assert not any("other scores" in note for note in notes)


def test_relevant_documents_that_are_not_retrieved_are_counted(tmp_path):
    """Document x of query 7 and b of query 8; query 10 is not in the run."""
    assert re.match(r"2 of 3 relevant .*\bnot in ", read(tmp_path, relevant_from=2).notes[-1])


@pytest.mark.parametrize(
    "write",
    [
        lambda text: text.replace(" ", "\t").encode(),
        lambda text: text.replace(" ", "   ").encode(),
        lambda text: text.replace("\n", " \r\n").encode(),
        lambda text: ("\ufeff" + text + "\n\n").encode(),
        lambda text: (text + text).encode(),  # as if files were joined
    ],
)
def test_spacing_line_ends_blank_and_repeated_lines_do_not_matter(write, tmp_path):
    expected = read(tmp_path, relevant_from=2)
    for name in ("my.run", "qrels.txt"):
        path = tmp_path / name
        path.write_bytes(write(path.read_text()))
    judged = read_judged_run(TrecFiles(tmp_path / "my.run", tmp_path / "qrels.txt", 2))
    assert judged.rows.frame.equals(expected.rows.frame)
    assert judged.notes == expected.notes


@pytest.mark.parametrize(
    ("name", "first_line", "expected"),
    [
        ("run", "q1 Q0 d1 1 2.5 tag", True),
        ("run.trec", "q1\tQ0\td1\t1\t2.5\ttag", True),
        ("run", f"{'q' * 300} Q0 {'d' * 900} 1 2.5 {'t' * 300}", True),
        ("run", "q1 0 d1 1 2.5 tag", False),
        ("run", "q1 Q0 d1 1 2.5", False),
        ("run", "q1 Q0 d1 1 2.5 tag further", False),
        ("run", "", False),
        ("run.csv", "q1 Q0 d1 1 2.5 tag", False),
    ],
)
def test_a_file_is_a_run_if_its_first_line_has_the_fields_of_one(name, first_line, expected, tmp_path):
    (tmp_path / name).write_text(f"{first_line}\nq1 Q0 d2 2 1.5 tag\n")
    assert is_run(tmp_path / name) == expected
    assert not is_run(tmp_path / "missing")


def test_gzipped_files_are_read(tmp_path):
    expected = read(tmp_path, relevant_from=2)
    for name in ("my.run", "qrels.txt"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    judged = read_judged_run(TrecFiles(tmp_path / "my.run.gz", tmp_path / "qrels.txt.gz", 2))
    assert judged.rows.frame.equals(expected.rows.frame)


IDS = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=4)
SCORES = st.floats(allow_nan=False, allow_infinity=False)
DOCUMENTS = st.dictionaries(st.tuples(IDS, IDS), st.tuples(SCORES, st.integers(0, 3) | st.none()), min_size=2)


@given(documents=DOCUMENTS, random=st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_order_of_lines_does_not_matter_and_no_number_changes(documents, random, tmp_path_factory):
    (first, (score, _)), (second, (other, _)), *rest = documents.items()
    documents = {first: (score, 0), second: (other, 2), **dict(rest)}  # both labels occur
    run = [f"{query} Q0 {name} 1 {score!r} t" for (query, name), (score, _) in documents.items()]
    qrels = [f"{query} 0 {name} {grade}" for (query, name), (_, grade) in documents.items() if grade is not None]
    folder = tmp_path_factory.mktemp("trec")
    judged = read(folder, run, qrels, relevant_from=2)
    random.shuffle(run)
    random.shuffle(qrels)
    shuffled = read(folder, run, qrels, relevant_from=2)

    assert shuffled.rows.frame.equals(judged.rows.frame)
    assert shuffled.rows.sha256 == judged.rows.sha256
    assert shuffled.notes == judged.notes
    found = {(query, name): (score, grade) for query, name, score, grade, _ in judged.rows.frame.rows()}
    assert found == {key: value for key, value in documents.items() if value[1] is not None}


RANKED_QUERIES = st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(-3, 3)), min_size=1), min_size=1)


@given(queries=RANKED_QUERIES)
@settings(max_examples=100, deadline=None)
def test_a_run_is_refused_if_the_first_rank_has_a_lower_score_than_the_last_in_most_queries(queries, tmp_path_factory):
    path = tmp_path_factory.mktemp("ranks") / "my.run"
    lines = []
    n_compared = 0
    n_contradicting = 0
    for query, documents in enumerate(queries):
        lines += [f"{query} Q0 d{k} {rank} {score}.5 t" for k, (rank, score) in enumerate(documents)]
        ranks = [rank for rank, _ in documents]
        first = [score for rank, score in documents if rank == min(ranks)]
        last = [score for rank, score in documents if rank == max(ranks)]
        n_compared += min(ranks) < max(ranks)
        # "-0.5" and "0.5" have the order of 0 and 0, so the numbers are those of the texts
        n_contradicting += max(float(f"{score}.5") for score in first) < min(float(f"{score}.5") for score in last)
    path.write_text("\n".join(lines))
    if 2 * n_contradicting > n_compared:
        with pytest.raises(InputError, match="change the sign"):
            open_run(path)
    else:
        assert len(open_run(path).frame) == len(lines)


@pytest.mark.parametrize("first_rank", [0, 1])
def test_a_run_whose_scores_and_ranks_are_exchanged_is_refused(first_rank, tmp_path):
    lines = [f"1 Q0 d{k} {9.5 - k} {first_rank + k} t" for k in range(3)]
    (tmp_path / "my.run").write_text("\n".join(lines))
    with pytest.raises(InputError, match=rf"exchanged.*rank 9\.5 and score {first_rank};.*rank, score"):
        open_run(tmp_path / "my.run")


@pytest.mark.parametrize("rank", ["0", "-", "1.0"])
def test_ranks_are_not_needed(rank, tmp_path):
    (tmp_path / "my.run").write_text(f"1 Q0 a {rank} 1 t\n1 Q0 b {rank} 2 t\n")
    assert len(open_run(tmp_path / "my.run").frame) == 2


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Make a run of 60 queries with 20 documents, its judgments, and the same rows as a csv file."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    grade = rng.integers(0, 4, (60, 20))
    score = (2 * grade + rng.normal(size=grade.shape)).round(3)
    rows = [(f"q{i}", f"d{j}", score[i, j], grade[i, j]) for i in range(60) for j in range(20)]
    (tmp_path / "my.run").write_text("".join(f"{query} Q0 {name} 1 {score} t\n" for query, name, score, _ in rows))
    (tmp_path / "qrels.txt").write_text("".join(f"{query} 0 {name} {grade}\n" for query, name, _, grade in rows))
    frame = pl.DataFrame(rows, schema=["query", "document", "score", "grade"], orient="row").sort("query", "document")
    label = pl.when(pl.col("grade") >= 2).then(pl.lit("relevant")).otherwise(pl.lit("irrelevant"))
    frame.with_columns(label=label).write_csv("rows.csv")
    return tmp_path


def run_command(text: str) -> list[str]:
    return cli.app(text.split(), standalone_mode=False)


def judge_the_first_documents_only(folder) -> None:
    """Omit the judgments of documents 12 to 19 of each query."""
    lines = (folder / "qrels.txt").read_text().splitlines(keepends=True)
    (folder / "qrels.txt").write_text("".join(line for line in lines if int(line.split()[2][1:]) < 12))


@pytest.mark.parametrize("unjudged", ["omit", "irrelevant"])
@pytest.mark.parametrize("grades", ["--relevant-from 2", ""])
def test_thresholds_of_a_run_state_how_many_documents_on_their_side_nobody_judged(folder, unjudged, grades):
    judge_the_first_documents_only(folder)
    judged_run = f"--run my.run --qrels qrels.txt {grades} --unjudged {unjudged}"
    printed = run_command(f"thresholds {judged_run} --precision 0.3 --npv 0.3 --out t.json")
    content = json.loads((folder / "t.json").read_text())
    assert content["run"] == {
        "qrels": "qrels.txt",
        "relevant_from": 2 if grades else None,
        "unjudged": unjudged,
        "n_retrieved": 1200,
        "n_unjudged": 480,
    }
    rows = pl.read_csv("rows.csv").with_columns(is_unjudged=pl.col("document").str.slice(1).cast(int) >= 12)
    expected: dict[str, list[str]] = {"precision": [], "npv": []}
    for border in content.get("borders", [content]):
        for item in border["thresholds"]:
            is_npv = item["metric"] == "npv"
            threshold = item["threshold"]
            if threshold is None:
                continue
            side = rows.filter((pl.col("score") < threshold) if is_npv else (pl.col("score") >= threshold))
            text = (
                f"{side['is_unjudged'].sum():,} of {len(side):,} {'below' if is_npv else 'at or above'} {threshold:g}"
            )
            if text not in expected[item["metric"]]:
                expected[item["metric"]].append(text)
    parts = [*expected["precision"], *expected["npv"]]
    assert re.fullmatch(rf"[^:]*\bjudgment: {re.escape(', '.join(parts))}\.", printed[-1])


def test_thresholds_of_a_fully_judged_run_say_nothing_of_judgments(folder):
    printed = run_command(f"thresholds {JUDGED_RUN} --precision 0.8 --out t.json")
    assert not any("judgment" in line for line in printed)
    assert json.loads((folder / "t.json").read_text())["run"]["n_unjudged"] == 0


def test_a_border_of_a_run_needs_no_name_of_its_score(folder):
    for name in ("", "--score score "):
        run_command(f"fit {JUDGED_RUN} {name}--border 3 --out map.json --force")
        stored = json.loads((folder / "map.json").read_text())
        assert stored["reading"] == {"score": "score", "border": 3.0, "positive": "relevant"}
    with pytest.raises(InputError, match="--border needs --score"):
        run_command("fit --predictions rows.csv --border 3 --out other.json")


@pytest.mark.parametrize("hold_out", ["", " --hold-out 0.4"])
def test_without_a_border_as_many_documents_of_the_fit_are_above_it_as_are_relevant(folder, hold_out):
    printed = run_command(f"fit {JUDGED_RUN} --out map.json{hold_out}")
    stored = json.loads((folder / "map.json").read_text())
    border = stored["reading"]["border"]
    assert any(f"--border {border:g} " in line for line in printed)
    rows = pl.read_csv("rows.csv")
    if hold_out:
        held_out = split_folds(len(rows), rows["query"].to_numpy(), 1, hold_out=0.4).held_out
        rows = rows.with_row_index().filter(~pl.col("index").is_in(held_out))
    assert (rows["score"] > border).sum() == pytest.approx((rows["label"] == "relevant").sum(), abs=1)


def test_fit_prints_the_held_out_rows_and_a_command_that_uses_only_them(folder):
    printed = run_command(f"fit {JUDGED_RUN} --hold-out 0.4 --out map.json")
    (line,) = [line for line in printed if "are held out" in line]
    assert re.match(r"480 rows .*\b24 groups ", line)
    command = line.split("`")[1]
    used = run_command(f"{command.removeprefix('relmap ')} --out t.json")
    assert any(re.search(r"\bonly .*\b480 rows .*held out", line) for line in used)
    content = json.loads((folder / "t.json").read_text())
    assert (content["groups"], content["guaranteed"]) == (24, True)
    share = suggest_hold_out(60, 0.9, 0.05, is_grouped=True)
    assert any(line.endswith(f"least --hold-out {share}.") for line in used)


def test_the_page_of_a_run_has_commands_that_read_runs(folder):
    run_command(f"report {JUDGED_RUN} --out page.html")
    page = unescape((folder / "page.html").read_text())
    assert "relmap apply --map page.map.json --run new.run --out scored.csv" in page
    assert "--run other.run --qrels other_qrels.txt --relevant-from 2 --cut " in page
    assert "--predictions" not in page


@pytest.mark.parametrize("cut", ["0.7712", "0.5", "0.123456789"])
def test_apply_prints_the_cut_that_was_given(folder, cut):
    run_command(f"fit {JUDGED_RUN} --border 3 --out map.json")
    printed = run_command(f"apply --map map.json --run my.run --cut {cut} --out routed.csv")
    assert any(re.search(rf"\breliability .*at least {re.escape(cut)} ", line) for line in printed)


def test_apply_prints_the_threshold_of_the_map_as_fit_does(folder):
    fitted = run_command(f"fit {JUDGED_RUN} --border 3 --out map.json")
    applied = run_command("apply --map map.json --run my.run --out routed.csv")
    (threshold,) = re.findall(r"reliability of (0\.\d+) or", " ".join(fitted))
    assert any(re.search(rf"\breliability .*at least {re.escape(threshold)} ", line) for line in applied)


def test_the_accuracy_of_all_documents_of_a_run_is_estimated_from_a_sample_that_label_took(folder):
    run_command(f"fit {JUDGED_RUN} --border 3 --out map.json")
    run_command("label --map map.json --run my.run --rows 60 --out sample.csv")
    sample = pl.read_csv("sample.csv", schema_overrides={"label": pl.String})
    assert sample.columns == ["query", "document", "score", "label", "inverse_probability"]
    labels = pl.read_csv("rows.csv").select("query", "document", true="label")
    sample.join(labels, on=["query", "document"]).with_columns(label="true").drop("true").write_csv("judged.csv")
    pl.read_csv("rows.csv").select("query", "document", "score").write_csv("all.csv")
    of_run = run_command("evaluate --map map.json --predictions judged.csv --unlabelled my.run --out of_run.json")
    of_rows = run_command("evaluate --map map.json --predictions judged.csv --unlabelled all.csv --out of_rows.json")
    assert of_run == of_rows
    assert any("Accuracy" in line and "on 1,200 rows" in line for line in of_run)


def test_thresholds_on_a_score_are_not_taken_for_thresholds_on_a_reliability(folder):
    run_command(f"fit {JUDGED_RUN} --border 3 --out map.json")
    for grades in ("--relevant-from 2", ""):
        run_command(f"thresholds --run my.run --qrels qrels.txt {grades} --precision 0.5 --out t.json --force")
        content = json.loads((folder / "t.json").read_text())
        for border in content.get("borders", [content]):
            (found,) = border["thresholds"]
            limit = f"{found['threshold']:g}" + (f" for grade {border['at_least']}" if grades == "" else "")
            with pytest.raises(InputError, match=rf"\bscore .*least .*{re.escape(limit)}"):
                run_command("apply --map map.json --run my.run --cuts t.json --out routed.csv")
        with pytest.raises(InputError, match=r"\bscore, not .*reliability"):
            run_command("apply --map map.json --run my.run --cuts t.json --out routed.csv")


@pytest.mark.parametrize("grades", ["--relevant-from 2 --border -3", ""])
def test_a_run_with_ascending_scores_needs_another_sign_and_no_other_names(folder, grades):
    lines = [line.split() for line in (folder / "my.run").read_text().splitlines()]
    (folder / "my.run").write_text("".join(f"{q} Q0 {d} 0 {-float(s)} t\n" for q, _, d, _, s, _ in lines))
    with pytest.raises(InputError, match="change the sign") as error:
        run_command(f"fit --run my.run --qrels qrels.txt {grades} --out map.json")
    assert not {"--labels", "--positive"} & set(str(error.value).split())
    printed = run_command(f"thresholds --run my.run --qrels qrels.txt {grades[:17]} --precision 0.5 --out t.json")
    (note,) = [line for line in printed if "change the sign" in line]
    assert "--" not in note


JUDGED_RUN = "--run my.run --qrels qrels.txt --relevant-from 2"
SAME_ROWS = "--predictions rows.csv --score score --positive relevant --group query"


def assert_same_but_for_the_run(folder, name: str) -> None:
    of_run = json.loads((folder / "of_run.json").read_text())
    assert of_run.pop("run")["qrels"] == "qrels.txt"
    assert of_run | {"predictions": name} == json.loads((folder / "of_rows.json").read_text())


def test_thresholds_of_a_run_are_those_of_its_rows_grouped_by_query(folder):
    of_run = run_command(f"thresholds {JUDGED_RUN} --precision 0.8 --out of_run.json")
    of_rows = run_command(f"thresholds {SAME_ROWS} --precision 0.8 --out of_rows.json")
    assert of_run == of_rows
    assert of_run[0].startswith("Threshold ")
    assert_same_but_for_the_run(folder, "rows.csv")


def test_a_map_of_a_run_scores_the_next_run(folder):
    printed = run_command(f"fit {JUDGED_RUN} --score score --border 3 --out map.json")
    assert "relmap apply --map map.json --run FILE --out FILE" in printed[-1]
    of_rows = run_command(f"fit {SAME_ROWS} --border 3 --out of_rows.json")
    assert printed[:-1] == of_rows[:-1]
    run_command("apply --map map.json --run my.run --out routed.csv")
    routed = pl.read_csv("routed.csv")
    assert routed.columns[:3] == ["query", "document", "score"]
    np.testing.assert_array_equal(routed["score"], open_run(folder / "my.run").frame["score"])
    assert routed["decision_name"].to_list() == ["relevant" if score > 3 else "irrelevant" for score in routed["score"]]
    evaluated = run_command(f"evaluate --map map.json {JUDGED_RUN} --out evaluated.json")
    of_rows = run_command("evaluate --map map.json --predictions rows.csv --group query --out rows.json")
    assert [line.replace("my.run", "rows.csv") for line in evaluated] == of_rows
    run_command(f"thresholds --map map.json {JUDGED_RUN} --target-accuracy 0.8 --out cuts.json")
    run_command("apply --map map.json --run my.run --cuts cuts.json --out routed_by_cuts.csv")
    of_run = run_command("watch --map map.json --run my.run")
    assert of_run == run_command("watch --map map.json --predictions rows.csv --group query")


def test_grades_of_a_run_have_thresholds_at_each_border_and_a_map(folder):
    frame = pl.read_csv("rows.csv")
    frame.with_columns(label="grade").write_csv("grades.csv")
    of_run = run_command("thresholds --run my.run --qrels qrels.txt --precision 0.6 --out of_run.json")
    of_rows = run_command(
        "thresholds --predictions grades.csv --score score --group query --precision 0.6 --out of_rows.json"
    )
    assert of_run == of_rows
    assert_same_but_for_the_run(folder, "grades.csv")
    run_command("fit --run my.run --qrels qrels.txt --out graded.json")
    run_command("report --run my.run --qrels qrels.txt --out graded.html")
    assert (folder / "graded.html").exists()
    run_command("evaluate --map graded.json --run my.run --qrels qrels.txt --out evaluated.json")
    run_command(
        "thresholds --map graded.json --run my.run --qrels qrels.txt --target-accuracy 0.5 --label 0 --out one.json"
    )
    run_command("apply --map graded.json --run my.run --out graded.csv")
    assert pl.read_csv("graded.csv")["decision"].n_unique() == frame["grade"].n_unique()


def test_numbers_of_grades_are_accepted_in_ascending_order_only():
    check_grade_order(["0", "1", "2", "10"])
    with pytest.raises(InputError, match=r"0,1,2,10"):
        check_grade_order(["0", "10", "1", "2"])


def test_a_run_needs_judgments(tmp_path):
    with pytest.raises(InputError, match="relevance judgments"):
        read_judged_run(TrecFiles(run=tmp_path / "run.txt"))
