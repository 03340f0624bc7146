"""Fit a cascade: a reliability map for each model, and thresholds that reach a target accuracy at the least cost.

The labelled rows are divided at random, by groups if there are any. The maps are fitted on one part, whose
reliabilities give the candidates for the thresholds. The candidates are tested on the other part. Each choice of models
is a plan with maps of its own, so that a model that does not pay is not asked; in one plan, a person decides all rows.

The map of a later model also reads the decisions of the models before it, because agreement is informative. It has two
signals for each of these: whether the decisions agree, and the log-odds of the reliability of the earlier decision,
with a minus sign if the decisions differ. If two models err independently and there are two labels, the log-odds of a
decision are those of its own reliability plus this second signal.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from numbers import Real
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.special import expit, log_softmax

from relmap.cascade.document import MAX_MODELS, NO_NAMES, CascadeDocument, CascadeStep, signal_names
from relmap.cascade.identity import describe_identity, find_identity_columns, identify_rows
from relmap.cascade.models import MODEL_FIELDS
from relmap.cascade.policy import (
    NEVER,
    TIE_RANGE,
    CascadeChoice,
    CascadeRows,
    Costs,
    Plan,
    Policy,
    choose_policy,
    describe_missing_policy,
    floor_percent,
    simulate_person,
    tie_breakers,
)
from relmap.cascade.settings import CascadeSettings
from relmap.decisions import FixedDecisions, confidence_logit
from relmap.errors import InputError, naming_model
from relmap.evaluation.sentences import MOSTLY_WRONG
from relmap.evaluation.summary import Summary
from relmap.io.column_layout import WEIGHT_COLUMN, Reading, find_layout
from relmap.io.columns import join_names
from relmap.io.frames import FramePredictions
from relmap.io.unlabelled import find_omitted_rows
from relmap.maps.document import MapDocument
from relmap.maps.fit import fit_map
from relmap.maps.labelled_rows import read_labelled_rows
from relmap.maps.options import FitOptions
from relmap.maps.score import ignore_progress, score_file
from relmap.routing.group_tests import RowGroups

PERSON = "person"
MAX_SUPPORT = 10.0  # log-odds; a reliability closer to 0 or 1 supports no further
MIN_TEST_ROWS = 20
MIN_DIVIDED_SHARE = 0.01  # of the rows; fewer rows with the same reliability are not mentioned


class _ModelRows(NamedTuple):
    """Labelled rows with the decisions of one model, and how its columns are read."""

    reading: Reading
    decision: np.ndarray
    correct: np.ndarray
    stated_confidence: np.ndarray | None


class _LabelledContent(NamedTuple):
    """Content of a file of labelled rows.

    Attributes:
        models: The rows with the decisions of each model, by its name.
        names: Names of the labels, in their order.
        groups: Group of each row, shape (n,); None without groups.
        notes: Sentences on how the file was read.
        are_numbered: Whether the labels are 0..K-1 without names.
    """

    models: dict[str, _ModelRows]
    names: tuple[str, ...]
    groups: np.ndarray | None
    notes: list[str]
    are_numbered: bool


def fit_cascade(
    rows: FramePredictions,
    models: Mapping[str, Reading],
    costs: Mapping[str, float],
    settings: CascadeSettings,
    *,
    labels: Sequence[str] | None = None,
    group: str | None = None,
    id_columns: Sequence[str] | None = None,
) -> tuple[CascadeDocument | None, Summary]:
    """Fit a cascade on labelled rows with the predictions of all models.

    Args:
        rows: The rows.
        models: How the columns of each model are read, by the name of the model, the cheapest model first.
        costs: Cost of one row for each model, and for `person` if a person decides rows that no model decides.
        settings: Target or budget, and further options.
        labels: Names of the labels, in their order; None for 0..K-1.
        group: Column of groups of dependent rows, such as the query.
        id_columns: Columns that identify a row; None for `id` or, without it, all that are neither labels nor
            predictions.

    Returns:
        The cascade, None if no thresholds reach the target; and its description.

    Raises:
        InputError: A row, name, cost or option is invalid.
    """
    step_costs = _check_costs(models, costs, settings)
    if WEIGHT_COLUMN in rows.frame.columns:
        raise InputError(
            f"{rows.path} has sampling weights in {WEIGHT_COLUMN}: a cascade needs rows that were sampled with equal "
            f"probabilities. Give such rows, without the column {WEIGHT_COLUMN}"
        )
    rows, models, notes = _drop_unlabelled(rows, models, labels)
    content = _read_models(rows, models, labels, group, settings.seed)
    read = content.models
    names = content.names
    groups = content.groups
    notes += [*content.notes, *_describe_order(models, costs)]
    identity_columns = find_identity_columns(rows, models, id_columns)
    is_test = _choose_test_rows(len(rows.frame), groups, settings)
    fitted = _fit_maps(rows, read, names, group, is_test, settings.seed)
    pool = _Pool(
        names=identify_rows(rows, identity_columns),
        correct={name: model.correct for name, model in read.items()},
        person=simulate_person(len(is_test), settings.person_accuracy, settings.seed),
        is_test=is_test,
        test_groups=None if groups is None else RowGroups.from_names(groups[is_test], settings.seed),
        costs=step_costs,
        seed=settings.seed,
    )
    scores = {}
    for asked in fitted:
        scores[asked] = [expit(fitted[asked[: k + 1]].logit) for k in range(len(asked))]
    plans = pool.list_plans(scores)
    choice = _choose(plans, settings)
    alternatives = {
        name: _choose(pool.list_plans(scores), settings) for name, scores in _other_scores(read, len(is_test), settings)
    }
    curves = {"the cascade": choice.frontier}
    curves |= {name: alternative.frontier for name, alternative in alternatives.items()}
    single = pool.measure_alone()
    numbers = {
        "rows": len(is_test),
        "test_rows": int(is_test.sum()),
        "target_accuracy": settings.target_accuracy,
        "budget": settings.budget,
        "confidence_level": settings.confidence_level,
        "person_accuracy": settings.person_accuracy,
        "lower_bound": choice.lower_bound,
        "chosen": None if choice.chosen is None else _policy_json(choice.chosen, plans),
        "alternatives": {
            name: None if alternative.chosen is None else _policy_json(alternative.chosen, plans)
            for name, alternative in alternatives.items()
        },
        "alone": {name: {"cost": cost, "accuracy": accuracy} for name, cost, accuracy in single},
        "curves": {
            name: [{"cost": policy.cost, "accuracy": policy.accuracy} for policy in curve]
            for name, curve in curves.items()
        },
    }
    if choice.chosen is None:
        level = 1 - settings.confidence_level
        reason = describe_missing_policy(
            choice, plans, target=settings.target_accuracy, level=level, hold_out=settings.hold_out
        )
        return None, Summary(lines=(f"No thresholds: {reason}.",), notes=tuple(notes), numbers=numbers)
    chosen = choice.chosen
    plan = plans[chosen.plan]
    comparison = _describe_alternatives(alternatives, single)
    if not plan.models:
        lines = [_describe_person_alone(chosen, settings), *comparison]
        return None, Summary(lines=tuple(lines), notes=tuple(notes), numbers=numbers)
    fits = [fitted[plan.models[: k + 1]] for k in range(len(plan.models))]
    lots = _describe_lots(chosen, plan, fits, names, is_test)
    lines = [*_describe(choice, plans, settings), *lots, *comparison, describe_identity(identity_columns)]
    document = _build_document(fits, choice, plan, settings, identity_columns, are_numbered=content.are_numbered)
    return document, Summary(lines=tuple(lines), notes=tuple(notes), numbers=numbers)


def _choose(plans: Sequence[Plan], settings: CascadeSettings) -> CascadeChoice:
    return choose_policy(
        plans, target=settings.target_accuracy, budget=settings.budget, level=1 - settings.confidence_level
    )


def _check_costs(models: Mapping[str, Reading], costs: Mapping[str, float], settings: CascadeSettings) -> Costs:
    """Check the names of the models and their costs."""
    if not 1 <= len(models) <= MAX_MODELS:
        raise InputError(f"there are {len(models)} models; give 1 to {MAX_MODELS}, the cheapest first")
    for name in models:
        if name in NO_NAMES or not name.isidentifier():
            raise InputError(
                f"a model is called {name!r}; use letters, digits and _, and none of {join_names(NO_NAMES)}"
            )
    missing = [name for name in models if name not in costs]
    unknown = [name for name in costs if name not in models and name != PERSON]
    if missing or unknown:
        raise InputError(
            f"costs are given for {join_names(list(costs)) or 'nothing'}; give one for each of the models "
            f"{join_names(list(models))}, and optionally for {PERSON}{_advise_person(unknown)}"
        )
    for name, cost in costs.items():
        if not isinstance(cost, Real) or not 0 <= cost <= 1e30:
            raise InputError(f"the cost of {name} is {cost!r}; give a number of at least 0")
    person = costs.get(PERSON)
    return Costs(
        models=tuple(float(costs[name]) for name in models),
        person=None if person is None else float(person),
        person_accuracy=settings.person_accuracy,
    )


def _advise_person(unknown: Sequence[str]) -> str:
    """Advise, as the end of a message, on names with a cost that are not models."""
    if not unknown:
        return ""
    return f"; {join_names(unknown)} is no model, and people who decide the rest have the cost {PERSON}"


def _describe_order(models: Mapping[str, Reading], costs: Mapping[str, float]) -> list[str]:
    """Note a model that is asked after a more expensive one."""
    names = list(models)
    notes = []
    for before, after in pairwise(names):
        if costs[after] < costs[before]:
            notes.append(
                f"{before}, which costs {costs[before]:g}, is asked before {after}, which costs {costs[after]:g}: "
                "models are asked in the order in which they are given; give the cheapest first."
            )
    return notes


def _drop_unlabelled(
    rows: FramePredictions, models: Mapping[str, Reading], labels: Sequence[str] | None
) -> tuple[FramePredictions, Mapping[str, Reading], list[str]]:
    """Drop rows without a label where this is asked for, once for all models, so that their rows stay the same.

    Returns:
        The rows, readings that accept labelled rows only, and notes.
    """
    reading = next(iter(models.values()))
    if not reading.drop_unlabelled:
        return rows, models, []
    layouts = [find_layout(rows.frame.columns, str(rows.path), labelled=True, reading=each) for each in models.values()]
    omitted = find_omitted_rows(
        rows.frame,
        str(layouts[0].label),
        labels,
        decisions=[layout.decision for layout in layouts if layout.decision is not None],
        scores=layouts[0].columns,
        words=reading.words,
    )
    labelled = replace(rows, frame=rows.frame.filter(~omitted.is_omitted))
    readings = {name: replace(each, drop_unlabelled=False) for name, each in models.items()}
    return labelled, readings, omitted.notes


def _read_models(
    rows: FramePredictions,
    models: Mapping[str, Reading],
    labels: Sequence[str] | None,
    group: str | None,
    seed: int,
) -> _LabelledContent:
    """Read the decisions of all models, the names of the labels and the groups."""
    names = None if labels is None else tuple(labels)
    read: dict[str, _ModelRows] = {}
    notes: list[str] = []
    n_labels = {}
    groups = None
    for name, reading in models.items():
        file = replace(rows, reading=reading)
        with naming_model(name, MODEL_FIELDS):
            labelled = read_labelled_rows(file, FitOptions(group=group, labels=names, seed=seed))
        n_labels[name] = labelled.n_labels
        names = names or labelled.names
        groups = labelled.rows.group
        confidence = _stated_confidence(labelled.rows)
        read[name] = _ModelRows(reading, labelled.rows.decision, labelled.rows.correct, confidence)
        notes += [note for note in labelled.notes if note not in notes]
        accuracy = labelled.rows.correct.mean()
        if accuracy < MOSTLY_WRONG:
            notes.append(
                f"More than half of the decisions of {name} are wrong: {accuracy:.1%} are correct. Check its labels, "
                "or omit this model."
            )
    are_numbered = names is None
    if names is None:
        names = tuple(str(label) for label in range(max(n_labels.values())))
    return _LabelledContent(read, names, groups, notes, are_numbered)


def _stated_confidence(rows: FixedDecisions) -> np.ndarray | None:
    """Return the confidence that a model states, before any calibration; None if it states none."""
    if rows.logits is None:
        return rows.confidence
    return np.asarray(expit(confidence_logit(log_softmax(rows.logits, axis=1), rows.decision)))


def _choose_test_rows(n_rows: int, groups: np.ndarray | None, settings: CascadeSettings) -> np.ndarray:
    """Choose the rows, or whole groups, that test the thresholds; return whether each row is one, shape (n,)."""
    code = np.arange(n_rows) if groups is None else np.unique(groups, return_inverse=True)[1]
    n_units = int(code.max()) + 1
    n_test = round(settings.hold_out * n_units)
    chosen = np.random.default_rng(settings.seed).permutation(n_units)[:n_test]
    is_test = np.isin(code, chosen)
    if min(is_test.sum(), (~is_test).sum()) < MIN_TEST_ROWS:
        unit = "rows" if groups is None else "groups"
        raise InputError(
            f"{n_rows:,} rows in {n_units:,} {unit} are too few: at least {MIN_TEST_ROWS} rows must fit the maps, and "
            f"{MIN_TEST_ROWS} must test the thresholds; label more"
        )
    return is_test


def with_signals(
    frame: pl.DataFrame,
    models: Sequence[str],
    decision: np.ndarray,
    earlier: Sequence[tuple[np.ndarray, np.ndarray]],
) -> pl.DataFrame:
    """Add the signals that the map of a later model reads.

    Args:
        frame: The rows, n of them.
        models: Names of the models before this one.
        decision: Decisions of this model, shape (n,).
        earlier: Decisions and log-odds of the reliability of each model before it, each of shape (n,).

    Returns:
        The rows with further columns.

    Raises:
        InputError: The rows have a column of the same name.
    """
    names = iter(signal_names(list(models)))
    for earlier_decision, logit in earlier:
        agrees = earlier_decision == decision
        support = np.clip(logit, -MAX_SUPPORT, MAX_SUPPORT)
        for name, values in ((next(names), agrees.astype(float)), (next(names), np.where(agrees, support, -support))):
            if name in frame.columns:
                raise InputError(f"the rows have a column {name}, which the cascade computes; rename it")
            frame = frame.with_columns(pl.Series(name, values))
    return frame


class _FittedModel(NamedTuple):
    """A model with the map that it has after certain other models.

    Attributes:
        document: The map.
        decision: Decision of each row, shape (n,).
        logit: Log-odds of the reliability of each row, shape (n,).
        logit_out_of_fold: The same; for fit rows, of models that were fitted without them.
    """

    document: MapDocument
    decision: np.ndarray
    logit: np.ndarray
    logit_out_of_fold: np.ndarray


def _fit_maps(
    rows: FramePredictions,
    read: Mapping[str, _ModelRows],
    names: tuple[str, ...],
    group: str | None,
    is_test: np.ndarray,
    seed: int,
) -> dict[tuple[str, ...], _FittedModel]:
    """Fit a map for the last of each choice of models, on the rows that are not test rows.

    The signals of a later map are computed from out-of-fold reliabilities of the fit rows. The maps then score all rows
    as they will score new ones; so the candidates for the thresholds see slightly optimistic reliabilities, which their
    test corrects.

    Returns:
        Models in their order -> the last of them, whose map reads the decisions of those before.
    """
    fitted: dict[tuple[str, ...], _FittedModel] = {}
    for models in _choices_of_models(list(read)):
        model = read[models[-1]]
        earlier = list(models[:-1])
        for name in earlier:
            _check_agreement(models[-1], model, name, read[name], is_test)
        before = [fitted[models[: k + 1]] for k in range(len(earlier))]
        out_of_fold = [(each.decision, each.logit_out_of_fold) for each in before]
        scored = [(each.decision, each.logit) for each in before]
        frame = with_signals(rows.frame, earlier, model.decision, out_of_fold).filter(~is_test)
        fit_rows = replace(FramePredictions.from_frame(frame), path=rows.path, reading=model.reading)
        # the order of the labels was checked on all rows
        options = FitOptions(
            labels=names, group=group, signals=signal_names(earlier), seed=seed, accept_label_order=True
        )
        fit = fit_map(fit_rows, options)
        all_rows = replace(rows, frame=with_signals(rows.frame, earlier, model.decision, scored), reading=model.reading)
        logit = score_file(fit.document, all_rows, ignore_progress).scores["logit"].to_numpy()
        logit_out_of_fold = logit.copy()
        logit_out_of_fold[~is_test] = fit.scored.logit
        fitted[models] = _FittedModel(fit.document, model.decision, logit, logit_out_of_fold)
    return fitted


def _choices_of_models(models: Sequence[str]) -> list[tuple[str, ...]]:
    """Return each choice of at least one model, in their order; smaller choices come first."""
    return [chosen for size in range(1, len(models) + 1) for chosen in combinations(models, size)]


def _check_agreement(name: str, model: _ModelRows, earlier_name: str, earlier: _ModelRows, is_test: np.ndarray) -> None:
    """Check that two models agree on some rows that fit the maps, and not on all, so that agreement is informative.

    Raises:
        InputError: They agree on all of these rows, or on none.
    """
    agrees = (model.decision == earlier.decision)[~is_test]
    if agrees.all():
        raise InputError(
            f"{earlier_name} and {name} have the same decision in all {len(agrees):,} rows that fit the maps; give "
            "them different columns, omit one of the models, or label more rows"
        )
    if not agrees.any():
        raise InputError(
            f"{earlier_name} and {name} have different decisions in all {len(agrees):,} rows that fit the maps; check "
            "that they use the same names of labels"
        )


class _Pool(NamedTuple):
    """What all plans share.

    Attributes:
        names: Name of each row, n of them, which orders rows with the same score.
        correct: Whether the decision of each model is correct, shape (n,) for each.
        person: Whether the decision of a person is correct, shape (n,).
        is_test: Whether each row tests the thresholds, shape (n,).
        test_groups: Groups of the test rows; None if rows are independent.
        costs: Costs of all models.
        seed: Seed of the order of rows with the same score.
    """

    names: Sequence[object]
    correct: Mapping[str, np.ndarray]
    person: np.ndarray
    is_test: np.ndarray
    test_groups: RowGroups | None
    costs: Costs
    seed: int

    @property
    def cost_of(self) -> dict[str, float]:
        """Cost of each model, by its name."""
        return dict(zip(self.correct, self.costs.models, strict=True))

    def list_plans(self, scores: Mapping[tuple[str, ...], Sequence[np.ndarray]]) -> list[Plan]:
        """List the plans; in the last one, a person decides every row, if the cost of a person is known.

        Args:
            scores: Models that are asked -> score of each row for each of them, shape (n,).

        Returns:
            A plan for each choice of models.
        """
        plans = [self._build_plan(models, columns) for models, columns in scores.items()]
        if self.costs.person is not None:
            plans.append(self._build_plan((), ()))
        return plans

    def _build_plan(self, models: tuple[str, ...], scores: Sequence[np.ndarray]) -> Plan:
        cost_of = self.cost_of
        costs = replace(self.costs, models=tuple(cost_of[name] for name in models))
        columns = [self.correct[name] for name in models]
        if costs.person is not None:
            columns.append(self.person)
        correct = np.column_stack(columns)
        score = np.empty((len(correct), 0))
        if models:
            score = np.column_stack(scores) + tie_breakers(self.names, len(models), self.seed)
        is_test = self.is_test
        return Plan(
            models,
            costs,
            CascadeRows(score[~is_test], correct[~is_test]),
            CascadeRows(score[is_test], correct[is_test], self.test_groups),
        )

    def measure_alone(self) -> list[tuple[str, float, float]]:
        """Return description, mean cost of a row and accuracy of each model alone, and of a person alone."""
        alone = []
        for name, cost in self.cost_of.items():
            alone.append((f"{name} alone", cost, float(self.correct[name][self.is_test].mean())))
        if self.costs.person is not None:
            alone.append(("a person alone", self.costs.person, self.costs.person_accuracy))
        return alone


def _other_scores(
    read: Mapping[str, _ModelRows], n_rows: int, settings: CascadeSettings
) -> Iterator[tuple[str, dict[tuple[str, ...], list[np.ndarray]]]]:
    """Yield random numbers and stated confidences, as scores in place of the reliabilities."""
    generator = np.random.default_rng(settings.seed)
    columns = {"random routing": {name: generator.random(n_rows) for name in read}}
    if any(model.stated_confidence is not None for model in read.values()):
        constant = np.full(n_rows, 0.5)  # of a model that states no confidence: its rows are divided by lot
        columns["thresholds on the confidences"] = {
            name: constant if model.stated_confidence is None else model.stated_confidence
            for name, model in read.items()
        }
    for name, of_model in columns.items():
        scores = {}
        for models in _choices_of_models(list(read)):
            scores[models] = [of_model[model] for model in models]
        yield name, scores


def _policy_json(policy: Policy, plans: Sequence[Plan]) -> dict[str, object]:
    return {
        "models": list(plans[policy.plan].models),
        "thresholds": [None if threshold >= NEVER else threshold for threshold in policy.thresholds],
        "cost": policy.cost,
        "accuracy": policy.accuracy,
        "shares": list(policy.shares),
        "asked": _shares_asked(policy).tolist(),
    }


def _shares_asked(policy: Policy) -> np.ndarray:
    """Return the share of the rows that reach each step, shape (number of steps,)."""
    return np.cumsum(policy.shares[::-1])[::-1]


def _build_document(
    fits: Sequence[_FittedModel],
    choice: CascadeChoice,
    plan: Plan,
    settings: CascadeSettings,
    identity_columns: tuple[str, ...],
    *,
    are_numbered: bool,
) -> CascadeDocument:
    assert choice.chosen is not None
    assert choice.lower_bound is not None
    thresholds = [*choice.chosen.thresholds, 0.0][: len(fits)]  # without a person, the last model decides the rest
    steps = []
    for name, fit, threshold, cost in zip(plan.models, fits, thresholds, plan.costs.models, strict=True):
        stored = None if threshold >= NEVER else threshold
        steps.append(CascadeStep(name=name, cost=cost, threshold=stored, map=fit.document))
    return CascadeDocument(
        steps=tuple(steps),
        person_cost=plan.costs.person,
        person_accuracy=settings.person_accuracy,
        target_accuracy=settings.target_accuracy,
        budget=settings.budget,
        confidence_level=settings.confidence_level,
        lower_bound=choice.lower_bound,
        seed=settings.seed,
        identity_columns=identity_columns,
        are_numbered=are_numbered,
    )


def _describe(choice: CascadeChoice, plans: Sequence[Plan], settings: CascadeSettings) -> list[str]:
    """Describe the thresholds and their guarantee."""
    chosen = choice.chosen
    assert chosen is not None
    assert choice.lower_bound is not None
    plan = plans[chosen.plan]
    tests = plan.tests
    n_rows = len(tests.score)
    unit = "rows" if tests.groups is None else "groups"
    lines = [
        f"{_describe_shares(chosen, plan)}, at a mean cost of {chosen.cost:.4g} per row.",
        f"With {100 * settings.confidence_level:g}% confidence, at least {floor_percent(choice.lower_bound)} of the "
        f"final decisions are correct, if new {unit} are independent and like these. On the {n_rows:,} rows "
        f"that only tested the thresholds, {chosen.accuracy:.1%} are.",
        f"Cost of these {n_rows:,} rows: {_describe_cost(chosen, plan, n_rows)}.",
    ]
    if settings.budget is not None and chosen.cost > settings.budget:
        lines.insert(
            1,
            f"The budget of {settings.budget:.4g} was kept on the rows that chose the thresholds; the cost is that of "
            "the other rows, where it is higher by chance. A lower budget leaves room.",
        )
    all_models = max((each.models for each in plans), key=len)
    unused = [name for name in all_models if name not in plan.models]
    if unused:
        gain = "cheaper" if settings.budget is None else "more accurate"
        lines.append(f"Not asked: {join_names(unused)}; on the rows that chose the plan, it is {gain} without.")
    if plan.costs.person is not None:
        lines.append(f"A person is assumed to be correct in {100 * settings.person_accuracy:g}% of the decisions.")
    return lines


def _list_deciders(plan: Plan) -> list[str]:
    """Return the names of the models, and a person if there is one."""
    return [*plan.models, *([title_of(PERSON)] if plan.costs.person is not None else [])]


def title_of(decider: str) -> str:
    """Return the name of a model, or that of a person with an article.

    Args:
        decider: Name of a model, or `PERSON`.
    """
    return f"a {PERSON}" if decider == PERSON else decider


def _describe_shares(chosen: Policy, plan: Plan) -> str:
    """Describe the shares of the rows that each step is asked and decides."""
    phrases = []
    for number, name in enumerate(_list_deciders(plan)):
        is_person = number == len(plan.models)
        asked = "" if number == 0 or is_person else f"is asked in {_shares_asked(chosen)[number]:.1%} and "
        phrases.append(f"{name} {asked}decides {chosen.shares[number]:.1%}")
    return join_names(phrases)


def _describe_cost(chosen: Policy, plan: Plan, n_rows: int) -> str:
    """Describe the total cost as a sum over the models and a person."""
    costs = [*plan.costs.models, *([plan.costs.person] if plan.costs.person is not None else [])]
    counts = (_shares_asked(chosen) * n_rows).round().astype(int)
    terms = []
    for name, count, cost in zip(_list_deciders(plan), counts, costs, strict=True):
        terms.append(f"{count:,} x {cost:g} ({name})")
    return f"{' + '.join(terms)} = {chosen.cost * n_rows:,.8g}"


def _describe_lots(
    chosen: Policy, plan: Plan, fits: Sequence[_FittedModel], names: Sequence[str], is_test: np.ndarray
) -> list[str]:
    """Describe decisions with the same reliability that are divided at random, if there are many."""
    lines = []
    deciders = _list_deciders(plan)
    step = plan.tests.deciding_step(chosen.thresholds)
    for number, threshold in enumerate(chosen.thresholds):
        reliability = expit(fits[number].logit[is_test])
        is_divided = (step >= number) & (reliability < threshold) & (reliability + TIE_RANGE > threshold)
        if is_divided.sum() < MIN_DIVIDED_SHARE * len(step):
            continue
        labels = [names[label] for label in np.unique(fits[number].decision[is_test][is_divided])]
        lines.append(
            f"The {int(is_divided.sum()):,} decisions {join_names(labels)} of {deciders[number]} with a reliability of "
            f"{reliability[is_divided][0]:.1%} are divided by lot: {(step[is_divided] > number).mean():.0%} go to "
            f"{deciders[number + 1]}."
        )
    return lines


def _describe_person_alone(chosen: Policy, settings: CascadeSettings) -> str:
    """Explain that no cascade is cheaper than a person."""
    advice = "Cheaper or better models, or more labelled rows, can change this."
    if settings.target_accuracy is None:
        return (
            f"No cascade: a person alone costs {chosen.cost:.4g} per row, which is within the budget, and no cascade "
            "is more accurate."
        )
    return (
        f"No cascade reaches {100 * settings.target_accuracy:.4g}% at less than a person alone ({chosen.cost:.4g} per "
        f"row). {advice}"
    )


def _describe_alternatives(
    alternatives: Mapping[str, CascadeChoice], single: Sequence[tuple[str, float, float]]
) -> list[str]:
    """List cost and accuracy of each model alone, of a person alone, and of other ways to choose rows."""
    lines = [f"  {name}: cost {cost:.4g}, accuracy {accuracy:.1%}" for name, cost, accuracy in single]
    for name, alternative in alternatives.items():
        if alternative.chosen is None:
            lines.append(f"  {name}: no thresholds")
            continue
        other = alternative.chosen
        lines.append(f"  {name}, chosen in the same way: cost {other.cost:.4g}, accuracy {other.accuracy:.1%}")
    return lines
