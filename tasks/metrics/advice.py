"""What to do with the fixed decisions of a data set: an answer by intervals, and the numbers that stand beside it.

The stage of one data set, the report of all, and the commands on one's own predictions give both by this code.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from tasks.metrics.intervals import BETTER, NOT_CERTAIN, WORSE, behind_number, found_per_1000, sign_of, together
from tasks.metrics.registry import COMPARED, METRICS
from tasks.protocol.results import AVERAGE

USE, MIXED, KEEP, UNKNOWN = "Use the reliability", "Mixed", "Keep your confidence", "Too little to tell"
WORSENS = "Worse, so keep your confidence"
RANKS = ("aupr_error", "aurc")
FEW_GROUPS = 30  # resampled, fewer give intervals that are too short
FEWEST_ERRORS = 10  # or right decisions
KEPT_TENTHS = 7  # of the decisions, as by selacc_70; the others are reviewed
HARDLY = 0.02  # of the test rows: a base predictor that gains no more over the commonest label has learnt little
MEANS = {  # column -> variant and metric
    "accuracy": ("confidence", "accuracy"),
    "aurc_conf": ("confidence", "aurc"),
    "aurc_mrp": ("mrp", "aurc"),
    "kept_conf": ("confidence", "selacc_70"),
    "kept_mrp": ("mrp", "selacc_70"),
    "label_spread_pp": ("confidence", "label_spread"),
    "random_p95_pp": ("confidence", "label_spread_null_p95"),
}


Changes = Mapping[str, Mapping[str, float | None]]  # by metric: `change`, `low`, `high` and `p`; None is not known


@dataclass(frozen=True)
class Advice:
    """What to do with the fixed decisions of a data set."""

    answer: str  # USE, MIXED, WORSENS, KEEP or UNKNOWN
    because: str
    then: tuple[str, ...] = ()  # what else to do, in sentences

    def __str__(self) -> str:
        return f"{self.answer}: {self.because}."


def advise(changes: Changes, *, rows: int, errors: int, groups: int) -> Advice:
    """Return what to do, by the `changes` of three metrics: of the one that predicts and the two that rank.

    Nothing is advised where there are fewer than 30 groups, or fewer than 10 wrong or 10 right decisions.

    Args:
        changes: of each of these metrics, by reliability less by confidence: the ends of its 95% interval and the
            p-value of no change, corrected where other data sets are tested too.
        rows: how many decisions there are.
        errors: how many of them are wrong.
        groups: how many groups of rows stand and fall together; as many as rows where each stands by itself.
    """
    if few := too_few(rows, errors, groups):
        return Advice(UNKNOWN, few)
    ends = {key: [changes[key][name] for name in ("low", "high", "p")] for key in ("nll_correct", *RANKS)}
    signs = {key: sign_of(METRICS[key].direction, *of) for key, of in ends.items()}
    predicts, ranks = signs["nll_correct"], together(signs[metric] for metric in RANKS)
    if predicts == ranks == BETTER:
        return Advice(USE, "it predicts and ranks better")
    if predicts == ranks == NOT_CERTAIN:
        return Advice(KEEP, "nothing is certain to change")
    because = f"the reliability predicts {predicts} and ranks {ranks}"
    if {predicts, ranks} <= {WORSE, NOT_CERTAIN}:
        return Advice(WORSENS, because, ("Or fit again, on rows like these.",))
    by = {WORSE: "the confidence", BETTER: "the reliability", NOT_CERTAIN: "the reliability"}
    review = by.get(ranks, "whichever is better at your own budget")
    then = f"State {by[predicts]} as the probability of being right, and choose what to review by {review}."
    return Advice(MIXED, because, (then,))


def rarer_of(rows: int, errors: int) -> tuple[int, str]:
    """Return how many decisions are wrong, or right, whichever are fewer, and which of both they are."""
    return min((errors, "wrong"), (rows - errors, "right"))


def too_few(rows: int, errors: int, groups: int) -> str:
    """Return what there is too little of to advise anything, arguments as in `advise`; empty if there is enough."""
    if groups < FEW_GROUPS:
        units = "groups" if groups < rows else "rows"
        return f"there are {groups} {units}, and a difference among fewer than {FEW_GROUPS} may be chance"
    return too_few_errors(rows, errors)


def too_few_errors(rows: int, errors: int) -> str:
    """Return whether wrong or right decisions are too few to advise or to choose by; empty if neither are."""
    rarer, which = rarer_of(rows, errors)
    if rarer >= FEWEST_ERRORS:
        return ""
    return f"{rarer} of {rows:,} decisions are {which}, and it takes {FEWEST_ERRORS} to judge by"


def numbers(metrics: pl.DataFrame, intervals: pl.DataFrame, facts: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return a row for each data set: means over seeds and then over calibrators, and intervals of two changes.

    `found_per_1000_conf` and `found_per_1000_mrp` are the wrong decisions among 1,000 reviewed, where all are but the
    most reliable 70%; `_low` and `_high` bound their difference. `low` and `high` bound `nll_correct_delta`, both at
    95%. `commonest_label` is the accuracy of always deciding the label that most test rows have. `calibrators` and
    `seeds` are what is meant over. What is not known is null.

    Args:
        metrics: long, as in metrics.parquet, of the calibrators that count.
        intervals: as in intervals.parquet.
        facts: the base.json of each data set.
    """
    means = {name: pl.col("value").filter(variant=of, metric=metric).mean() for name, (of, metric) in MEANS.items()}
    cells = metrics.group_by("dataset", "source", "calibrator", maintain_order=True).agg(
        **means, seeds=pl.col("seed").n_unique()
    )
    rows = cells.group_by("dataset", "source", maintain_order=True).agg(
        pl.col(*MEANS).fill_nan(None).mean(), pl.col("seeds").max(), calibrators=pl.len()
    )
    changes = intervals.filter(calibrator=AVERAGE, quantity="delta")
    for metric, prefix in (("nll_correct", ""), ("selacc_70", "kept_")):
        bounds = changes.filter(metric=metric).select("dataset", pl.col("value", "low", "high").name.prefix(prefix))
        rows = rows.join(bounds, on="dataset", how="left", maintain_order="left")
    counts = {fact["dataset"]: fact.get("class_counts", {}).get("test") for fact in facts}
    shares = {name: max(labels) / sum(labels) for name, labels in counts.items() if labels and sum(labels)}
    n = test_rows(facts)
    kept = (KEPT_TENTHS * n + 9) // 10  # as many as selacc_70 keeps
    errors, reviews = (1 - pl.col("accuracy")) * n, pl.when(n > kept).then(n - kept)
    columns = {way: found_per_1000(errors, (1 - pl.col(f"kept_{way}")) * kept, reviews) for way in ("conf", "mrp")}
    columns |= {end: found_per_1000(pl.col(f"kept_{end}") * kept, 0, reviews) for end in ("low", "high")}
    return rows.with_columns(
        *(number.alias(f"found_per_1000_{name}") for name, number in columns.items()),
        pl.col("label_spread_pp", "random_p95_pp") * 100,
        commonest_label=pl.col("dataset").replace_strict(shares, default=None, return_dtype=pl.Float64),
        rows=n,
        errors=errors.round().cast(pl.Int64),
        nll_correct_delta="value",
    ).fill_nan(None)


def test_rows(facts: Sequence[Mapping[str, Any]]) -> pl.Expr:
    """Return the number of test rows of the set in the column `dataset`; null where its `facts` do not say it."""
    sizes = {fact["dataset"]: fact.get("rows", {}).get("test") for fact in facts}
    return pl.col("dataset").replace_strict(sizes, default=None, return_dtype=pl.Int64)


def advice_on(row: Mapping[str, Any], averages: pl.DataFrame) -> Advice:
    """Return what to do with a data set, from its row of `numbers` and the rows of its `averages` in intervals.parquet.

    These are the changes of means over calibrators; their `p` may be corrected for the number of data sets.
    """
    sizes = {name: row[name] for name in ("rows", "errors")}
    return advise(_changes(averages), **sizes, groups=averages["groups"][0])


def _changes(averages: pl.DataFrame) -> Changes:
    rows = averages.select(pl.exclude("value"), change="value").fill_nan(None).iter_rows(named=True)
    return {row["metric"]: row for row in rows}


def remarks(advice: Advice | None, row: Mapping[str, Any]) -> list[str]:
    """Return what a row of `numbers` says against its data set, or against the `advice` on it."""
    both, said = (row["found_per_1000_conf"], row["found_per_1000_mrp"]), []
    if advice is not None and advice.answer == USE and None not in both and abs(both[1] - both[0]) < 1:
        said.append("Where 30% are reviewed, it finds no more errors.")
    accuracy, commonest = row["accuracy"], row["commonest_label"]
    if None not in (accuracy, commonest) and accuracy < commonest + HARDLY:
        hardly = "no better" if accuracy <= commonest else "hardly better"
        said.append(
            f"The base predictor is {hardly} than always deciding the commonest label: {accuracy:.1%} of its decisions "
            f"are right, and {commonest:.1%} would be. Mend it first."
        )
    return said


def in_words(row: Mapping[str, Any], intervals: pl.DataFrame) -> list[str]:
    """Return the verdict on one data set, the answer first, from its row of `numbers` and its `intervals`."""
    averages = intervals.filter(calibrator=AVERAGE, quantity="delta")
    advice = advice_on(row, averages)
    found = [row[f"found_per_1000_{name}"] for name in ("conf", "mrp", "low", "high")]
    return [
        str(advice),
        *advice.then,
        *remarks(advice, row),
        *behind(found, _changes(averages)),
        f"These are means over the calibrators that ran ({row['calibrators']}) and protocol seeds ({row['seeds']}); "
        "the report of several data sets also corrects for their number.",
    ]


def behind(found: Sequence[float | None], changes: Changes) -> Iterator[str]:
    """Yield the numbers behind an advice, in sentences: the `changes`, and before them what reviews find.

    `found` are the errors that 1,000 reviews of the least reliable 30% find, by confidence and by reliability, and the
    ends of the 95% interval of their difference.
    """
    before, after, low, high = found
    if before is not None and after is not None:
        yield (
            f"1,000 reviews of the least reliable 30% find {after:.0f} errors, and {before:.0f} where the confidence "
            f"chooses, a change of {after - before:+.0f}{behind_number(low, high, '+.0f')}."
        )
    names = {metric: METRICS[metric].title for metric in COMPARED} | {"nll_correct": "the log loss of being right"}
    known = {names[metric]: changes[metric] for metric in COMPARED if changes[metric]["change"] is not None}
    said = [
        f"{name} by {of['change']:+.4f}{behind_number(of['low'], of['high'], '+.4f')}" for name, of in known.items()
    ]
    yield f"It changes {', '.join(said)}."
