"""The gates for what comes in: released files before training, judged pairs before anything is calibrated on them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from tasks.expectations.check import Check, expect, pass_gate
from tasks.records.splits import SPLITS

REMEDY = "Mend the source of these rows, its reader, or `split` in params.yaml; nothing was calibrated or reported."
CONTRACT_REMEDY = (
    "These raw files are not those that the data set declares, or its reader misreads them: delete its folder in "
    "data/raw and run the download stage again. Nothing was trained on them."
)

# The probability with which a class mix drawn by chance may close the gate, for each class and split.
CHANCE = 1e-9


def check_contract(pairs: pl.DataFrame, *, n_labels: int, coordinates: Mapping[str, object]) -> dict[str, Any]:
    """Hold what a reader made of released files against what is declared; return the gate's record.

    Args:
        pairs: judged pairs as the reader returns them.
        n_labels: K; each of 0..K-1 must occur, and no other label.

    Raises:
        GateFailed: names the data set and each count that is not as it must be.
    """
    known = pairs.filter(pl.col("label").is_between(0, n_labels - 1))["label"]
    rows = [
        ("labels that occur", n_labels, known.n_unique()),
        ("rows of no such label", 0, len(pairs) - len(known)),
        ("pairs that stand in one row", len(pairs), pairs["pair"].n_unique()),
    ]
    frame = pl.DataFrame(rows, schema=("count", "declared", "found"), orient="row")
    declared = expect("equal", "declared", "found", description="the released files hold what is declared of them")
    return pass_gate("contract", coordinates, [Check("contract", frame, [declared], "count")], CONTRACT_REMEDY)


def outline(frame: pl.DataFrame) -> pl.DataFrame:
    """Judged pairs as a reader returns them, `split` filled in, to all that the gate needs to know of each.

    `pair, split, group, label`, and of texts their length, of features and logits whether all are finite: little enough
    to keep beside the logits. Polars only, so that whoever trains need not load Great Expectations.
    """
    if "text" in frame.columns:
        length = pl.col("text").str.strip_chars().str.len_chars()
        return frame.select("pair", "split", "group", "label", text_length=length)
    (inputs,) = {"features", "logits"} & set(frame.columns)
    finite = pl.Series(np.isfinite(frame[inputs].to_numpy()).all(axis=1))
    return frame.select("pair", "split", "group", "label", finite.alias(f"{inputs}_finite"))


def check_pairs(
    frame: pl.DataFrame,
    *,
    n_labels: int,
    groups_stay_together: bool,
    coordinates: Mapping[str, object],
    drawn: Sequence[str] = (),
) -> dict[str, Any]:
    """Check the judged pairs of a data set; return the records of its checks.

    Labels are known, texts are there (features finite), pairs are distinct, every split holds every class, no group
    straddles splits where groups stay together, and splits that were drawn have the class mix of the whole.

    What a class mix tells: labels coded differently in one source file, a filter or a join that lost rows of one
    class in one split, a draw in file order. What it cannot tell: labels shuffled over all the rows, or a mistake
    that is the same in every split; those keep the mix, and show only in the accuracy of what is trained on them.

    Args:
        frame: what `outline` returns.
        n_labels: K; labels are 0..K-1.
        groups_stay_together: the splits are by group. It also says what a draw moved as one: a group, or else a row.
        drawn: the splits that were drawn at random from one pool, such as train and validation; none where the source
            fixes them all, for then their mixes may differ for good reasons.

    Raises:
        GateFailed: names the data set, the pairs, groups or classes, and what was found.
    """

    def checks() -> Iterator[Check]:
        yield Check("pairs", frame, _of_rows(n_labels, frame.columns), "pair")
        of_classes = [
            expect("between", "rows_of_split", min_value=1, description="no split is empty"),
            expect("between", "rows", min_value=1, description="every split has rows of every class"),
        ]
        yield Check("pairs: classes", _classes(frame, n_labels), of_classes, "class")
        if groups_stay_together:
            splits = pl.col("split").unique(maintain_order=True).str.join(" and ")
            groups = frame.group_by("group", maintain_order=True).agg(splits=splits)
            together = expect("in set", "splits", value_set=list(SPLITS), description="a group falls in one split only")
            yield Check("pairs: groups", groups, [together], "group")
        if drawn:
            mix = class_mix(frame, n_labels, drawn, by_group=groups_stay_together)
            sentence = "the share of a class in a drawn split is no {} than chance lets it be"
            sides = ("share", "lowest_share", "smaller"), ("highest_share", "share", "larger")
            of_mix = [
                expect("at least", most, least, or_equal=True, description=sentence.format(than))
                for most, least, than in sides
            ]
            yield Check("pairs: class mix", mix, of_mix, "class")

    return pass_gate("pairs", coordinates, checks(), REMEDY)


def _of_rows(n_labels: int, columns: Sequence[str]) -> list[Any]:
    known = ("pair", "group", "label", "split")
    expected = [expect("unique", "pair", description="a pair stands in one row only")]
    expected += [expect("not null", column, description=f"{column} is never null") for column in known]
    for column, values in (("label", range(n_labels)), ("split", SPLITS)):
        sentence = f"{column} is one of {', '.join(map(str, values))}"
        expected.append(expect("in set", column, value_set=list(values), description=sentence))
    for inputs in [column for column in columns if column.endswith("_finite")]:
        sentence = f"the {inputs.removesuffix('_finite')} of a row are finite numbers"
        expected.append(expect("in set", inputs, value_set=[True], description=sentence))
    if "text_length" in columns:
        expected.append(expect("not null", "text_length", description="a text is never null"))
        expected.append(expect("between", "text_length", min_value=1, description="a text is more than blanks"))
    return expected


def _classes(frame: pl.DataFrame, n_labels: int) -> pl.DataFrame:
    """A row for each split and label, with the rows there, be it none."""
    there = SPLITS[1:] if "logits_finite" in frame.columns else SPLITS  # nothing was trained on saved logits
    cells = pl.DataFrame({"split": there}).join(pl.DataFrame({"label": range(n_labels)}), how="cross")
    counts = frame.group_by("split", pl.col("label").cast(pl.Int64)).agg(rows=pl.len().cast(pl.Int64))
    cells = cells.join(counts, on=["split", "label"], how="left", maintain_order="left").fill_null(0)
    named = pl.format("{} in {}", "label", "split").alias("class")
    return cells.with_columns(named, rows_of_split=pl.col("rows").sum().over("split"))


def class_mix(frame: pl.DataFrame, n_labels: int, drawn: Sequence[str], *, by_group: bool) -> pl.DataFrame:
    """A row for each drawn split and label: its share, and the lowest and highest share that chance allows.

    Bernstein's inequality, which holds for draws without replacement too (Hoeffding, 1963, section 6): over `m` units
    drawn from a pool, a sum of numbers of mean 0, mean square `v` and at most `b` in size exceeds `t` in size with
    probability at most 2 exp(-t^2 / (2 m v + 2 b t / 3)). The numbers are how many more rows of the class a unit has
    than its size lets expect. A unit is what was drawn as one, so groups of one class widen the bound by themselves.
    """
    pool = frame.filter(pl.col("split").is_in(list(drawn)))
    unit = pool["group"].rank("dense").to_numpy().astype(np.int64) - 1 if by_group else np.arange(len(pool))
    counts = np.bincount(unit * n_labels + pool["label"].to_numpy(), minlength=(unit.max() + 1) * n_labels)
    counts = counts.reshape(-1, n_labels)
    sizes, share_of_pool = counts.sum(axis=1), counts.sum(axis=0) / len(pool)
    excess = counts - sizes[:, None] * share_of_pool
    split = np.empty(len(counts), dtype=object)
    split[unit] = pool["split"].to_list()
    bits = np.log(2 / CHANCE)
    linear = np.abs(excess).max(axis=0) * bits / 3
    mixes = []
    for name in drawn:
        inside = split == name
        bound = linear + np.sqrt(linear**2 + 2 * inside.sum() * np.mean(excess**2, axis=0) * bits)
        bound /= sizes[inside].sum()
        mix = {
            "class": [f"{label} in {name}" for label in range(n_labels)],
            "share": counts[inside].sum(axis=0) / sizes[inside].sum(),
            "lowest_share": share_of_pool - bound,
            "highest_share": share_of_pool + bound,
        }
        mixes.append(pl.DataFrame(mix))
    return pl.concat(mixes)
