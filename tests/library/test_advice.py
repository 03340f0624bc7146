"""Recommendations and their sentences, at and around every limit."""

import pytest
from relmap.metrics.advice import (
    KEEP,
    MAX_REPORTED_ROWS,
    MIXED,
    SAFE,
    UNKNOWN,
    USE,
    WORSENS,
    ErrorsFound,
    additional_rows_needed,
    advise,
    advise_map,
    describe_evidence,
    describe_insufficient_data,
    describe_insufficient_errors,
    format_change,
    format_rows_needed,
    rarer_outcome,
)

from relmap.metrics import advice

BETTER_LOSS = {"change": -0.02, "low": -0.03, "high": -0.01, "p": 0.01}
WORSE_LOSS = {"change": 0.02, "low": 0.01, "high": 0.03, "p": 0.01}
IRRELEVANT = {"change": 0.0, "low": -0.0005, "high": 0.0005, "p": 0.9}
UNCERTAIN = {"change": -0.01, "low": -0.03, "high": 0.01, "p": 0.4}
UNKNOWN_CHANGE = {"change": None, "low": None, "high": None, "p": None}
SMALLEST = 0.001


def changes(loss: dict, ranking: dict, **others: dict) -> dict:
    """Make changes of log loss and ranking; lower is better for AURC, and AUPR-Error changes by the opposite."""
    opposite = {"change": None, "low": None, "high": None, "p": ranking["p"]}
    if ranking["change"] is not None:
        opposite |= {"change": -ranking["change"], "low": -ranking["high"], "high": -ranking["low"]}
    return {"nll_correct": loss, "aurc": ranking, "aupr_error": opposite} | others


def advise_well_supported(found: dict, function=advise) -> advice.Advice:
    return function(found, rows=500, errors=50, groups=500, smallest=SMALLEST)


@pytest.mark.parametrize(
    ("loss", "ranking", "sentence", "is_undecided"),
    [
        (BETTER_LOSS, BETTER_LOSS, f"{USE}: it predicts and ranks better.", False),
        (BETTER_LOSS, IRRELEVANT, f"{USE}: it predicts better and ranks with no relevant difference.", False),
        (UNCERTAIN, BETTER_LOSS, f"{USE}: it predicts with no significant difference and ranks better.", False),
        (IRRELEVANT, UNCERTAIN, f"{KEEP}: there is no relevant difference.", False),
        (UNCERTAIN, IRRELEVANT, f"{KEEP}: no change is significant.", True),
        (WORSE_LOSS, WORSE_LOSS, f"{WORSENS}: the reliability predicts worse and ranks worse.", False),
        (WORSE_LOSS, UNCERTAIN, f"{WORSENS}: the reliability predicts worse and ranks with no significant", False),
        (BETTER_LOSS, WORSE_LOSS, f"{MIXED}: the reliability predicts better and ranks worse.", False),
        (WORSE_LOSS, BETTER_LOSS, f"{MIXED}: the reliability predicts worse and ranks better.", False),
    ],
)
def test_the_recommendation_follows_from_the_signs_of_prediction_and_ranking(loss, ranking, sentence, is_undecided):
    recommendation = advise_well_supported(changes(loss, ranking))
    assert str(recommendation).startswith(sentence)
    assert recommendation.is_undecided == is_undecided
    if recommendation.answer not in (WORSENS, MIXED):
        assert recommendation.next_steps == ()


@pytest.mark.parametrize(
    ("found", "next_step"),
    [
        (
            changes(BETTER_LOSS, WORSE_LOSS),
            "State the reliability as the probability of a correct decision, and rank reviews by the confidence.",
        ),
        (
            changes(WORSE_LOSS, BETTER_LOSS),
            "State the confidence as the probability of a correct decision, and rank reviews by the reliability.",
        ),
        (
            changes(BETTER_LOSS, BETTER_LOSS, aupr_error=BETTER_LOSS),  # lower is worse for AUPR-Error
            "State the reliability as the probability of a correct decision, and rank reviews by whichever is better "
            "at your own budget.",
        ),
        (changes(WORSE_LOSS, WORSE_LOSS), "Alternatively, fit again on rows like these."),
    ],
)
def test_a_mixed_or_worse_result_names_the_score_for_each_use(found, next_step):
    assert advise_well_supported(found).next_steps == (next_step,)


@pytest.mark.parametrize(
    ("rows", "errors", "groups", "reason"),
    [
        (500, 50, 29, "there are 29 groups; with fewer than 30, a difference may be chance"),
        (29, 14, 29, "there are 29 rows; with fewer than 30, a difference may be chance"),
        (1500, 9, 30, "9 of 1,500 decisions are wrong, and at least 10 are needed"),
        (1500, 1491, 30, "9 of 1,500 decisions are correct, and at least 10 are needed"),
        (500, 10, 30, ""),
        (500, 490, 30, ""),
    ],
)
def test_too_few_rows_groups_or_errors_are_described(rows, errors, groups, reason):
    assert describe_insufficient_data(rows, errors, groups) == reason
    if groups >= 30:
        assert describe_insufficient_errors(rows, errors) == reason
    recommendation = advise(changes(BETTER_LOSS, BETTER_LOSS), rows=rows, errors=errors, groups=groups)
    assert (recommendation.answer, recommendation.reason) == (
        (UNKNOWN, reason) if reason else (USE, "it predicts and ranks better")
    )
    assert advise_map(changes(BETTER_LOSS, BETTER_LOSS), rows=rows, errors=errors, groups=groups) == recommendation


def test_the_rarer_outcome_is_counted_and_named():
    assert rarer_outcome(100, 3) == (3, "wrong")
    assert rarer_outcome(100, 96) == (4, "correct")


@pytest.mark.parametrize(
    ("change", "answer", "reason"),
    [
        # of 500 rows: 500 * (0.03 / 0.02)^2 = 1,125 rows in total
        ({"change": -0.02, "low": -0.05, "high": 0.01}, SAFE, "about 620 more labelled rows would suffice"),
        # 500 * (0.04 / 0.001)^2 = 800,000 in total, since 0.001 is the smallest relevant change
        ({"change": 0.0009, "low": -0.0391, "high": 0.0409}, SAFE, "about 800,000 more labelled rows would suffice"),
        (
            {"change": 0.001, "low": -0.05, "high": 0.06},
            KEEP,
            "the map raises the log loss by 0.0010 here, which may be chance",
        ),
        ({"change": -0.02, "low": -0.05, "high": None}, KEEP, "no change is significant"),
        ({"change": -0.02, "low": None, "high": 0.01}, KEEP, "no change is significant"),
        ({"change": None, "low": -0.05, "high": 0.01}, KEEP, "no change is significant"),
    ],
)
def test_an_uncertain_gain_of_a_map_names_the_rows_that_would_make_it_certain(change, answer, reason):
    recommendation = advise_well_supported(changes(change | {"p": 0.4}, UNCERTAIN), advise_map)
    assert (recommendation.answer, recommendation.reason) == (answer, reason)


@pytest.mark.parametrize(
    ("rows", "change", "half_width", "smallest", "expected"),
    [
        (100, 0.02, 0.05, 0.001, 525),  # 100 * (5 / 2)^2 = 625 rows in total
        (100, -0.02, 0.05, 0.001, 525),
        (100, 0.001, 0.05, 0.02, 525),  # the smallest relevant change replaces a smaller change
        (100, 0.07, 0.05, 0.02, 1),  # already certain
        (7, 0.03, 0.05, 0.001, 13),  # 19.4 rows, rounded up
        (100, 1e-12, 1.0, 1e-12, 10**15 - 100),  # limited to 10^15 rows in total
    ],
)
def test_additional_rows_are_computed_from_the_width_of_the_interval(rows, change, half_width, smallest, expected):
    assert additional_rows_needed(rows, change, half_width, smallest) == expected


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "about 1 more labelled rows would suffice"),
        (9, "about 9 more labelled rows would suffice"),
        (10, "about 10 more labelled rows would suffice"),
        (99, "about 99 more labelled rows would suffice"),
        (101, "about 100 more labelled rows would suffice"),
        (12_345, "about 12,000 more labelled rows would suffice"),
        (MAX_REPORTED_ROWS, "about 1,000,000 more labelled rows would suffice"),
        (MAX_REPORTED_ROWS + 1, "even 1,000,000 more labelled rows might not suffice"),
    ],
)
def test_numbers_of_rows_are_rounded_to_two_digits_up_to_a_million(count, text):
    assert format_rows_needed(count) == text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (-0.01, "It lowers the log loss by 0.0100 (x)."),
        (0.01, "It raises the log loss by 0.0100 (x)."),
        (0.0099, "No relevant difference in the log loss was found: it changes by less than 0.01 (x)."),
        (-0.0099, "No relevant difference in the log loss was found: it changes by less than 0.01 (x)."),
    ],
)
def test_a_change_is_described_without_a_sign(change, text):
    assert format_change("the log loss", change, " (x)", 0.01) == text


def test_the_evidence_lists_errors_found_and_relevant_and_irrelevant_changes():
    found = {
        "nll_correct": {"change": -0.02, "low": -0.03, "high": 0.0, "p": 0.01},
        "aupr_error": {"change": 0.001, "low": None, "high": None, "p": None},
        "aurc": {"change": 0.00099, "low": -0.1, "high": 0.1, "p": 0.01},
    }
    assert list(describe_evidence(ErrorsFound(100.4, 110.6, 2.0, 20.0), found, SMALLEST)) == [
        "1,000 reviews of the least reliable 30% find 111 errors; 1,000 reviews of the least confident 30% find 100. "
        "The change is +11 (95% interval +2 to +20).",
        "It changes the correctness log loss by -0.0200 (95% interval -0.0300 to +0.0000), AUPR-Error by +0.0010.",
        "There is no relevant difference (below 0.001) in AURC.",
    ]


def test_the_evidence_omits_unknown_changes_only():
    found = {
        "nll_correct": UNKNOWN_CHANGE,
        "aupr_error": {"change": 0.0, "low": None, "high": None, "p": None},
        "aurc": {"change": 0.25, "low": None, "high": 0.1, "p": None},
    }
    assert list(describe_evidence(ErrorsFound(None, None, None, None), found, SMALLEST)) == [
        "It changes AURC by +0.2500.",
        "There is no relevant difference (below 0.001) in AUPR-Error.",
    ]


@pytest.mark.parametrize(
    ("errors_found", "sentence"),
    [
        ((100.4, 99.6, None, None), "find 100 errors, as many as 1,000 reviews of the least confident 30%."),
        (
            (110.6, 100.4, -20.0, -2.0),
            "the least confident 30% find 111. The change is -11 (95% interval -20",
        ),
        ((None, 100.4, None, None), None),
        ((100.4, None, None, None), None),
    ],
)
def test_numbers_of_errors_are_compared_after_rounding(errors_found, sentence):
    sentences = list(describe_evidence(ErrorsFound(*errors_found), changes(UNKNOWN_CHANGE, UNKNOWN_CHANGE)))
    assert len(sentences) == (sentence is not None)
    if sentence is not None:
        assert sentence in sentences[0]
