"""Values that stages pass on are frozen dataclasses or models; some of them are compared by identity."""

import pytest
from pydantic import BaseModel

from tasks.datasets import OwnReader
from tasks.datasets.base import LabelledPairs
from tasks.datasets.logits import SplitArrays
from tasks.datasets.own import FilesOptions, HubOptions, LookupTable, OwnOptions, PairTables
from tasks.datasets.raw import RepositoryRows
from tasks.expectations.check import Check
from tasks.expectations.invariants import CheckedRun
from tasks.predictors import Predictor, PredictorType
from tasks.predictors.boosted import BoostedPredictor, BoostedSettings
from tasks.predictors.linear import (
    LinearPredictor,
    MultinomialFeatureSettings,
    MultinomialTextSettings,
    SgdFeatureSettings,
    SgdTextSettings,
    TermSettings,
)
from tasks.provenance.dvc_stages import DvcStage
from tasks.results.bootstrap import _Estimates
from tasks.results.values import ProjectedDecisions, SeedResults
from tasks.settings.dataset_params import DatasetParams, SplitParams
from tasks.settings.params import Alternative, DaskParams, Params
from tasks.tables.display import FormattedTable
from tasks.tables.overview import _Losses
from tasks.tables.runs import Runs, Table
from tasks.train import PredictorChoice

OTHER_VALUES = (
    BoostedPredictor,
    DvcStage,
    FormattedTable,
    LabelledPairs,
    OwnReader,
    PredictorChoice,
    PredictorType,
    ProjectedDecisions,
    RepositoryRows,
    Runs,
    SeedResults,
    SplitArrays,
    Table,
    _Losses,
)
COMPARED_BY_IDENTITY = (Check, CheckedRun, LinearPredictor, Predictor, _Estimates)
MODELS = (
    Alternative,
    BoostedSettings,
    DaskParams,
    DatasetParams,
    FilesOptions,
    HubOptions,
    LookupTable,
    MultinomialFeatureSettings,
    MultinomialTextSettings,
    OwnOptions,
    PairTables,
    Params,
    SgdFeatureSettings,
    SgdTextSettings,
    SplitParams,
    TermSettings,
)


@pytest.mark.parametrize("value_type", [*COMPARED_BY_IDENTITY, *OTHER_VALUES])
def test_values_cannot_be_changed(value_type: type):
    value = object.__new__(value_type)
    with pytest.raises(AttributeError, match=r"assign to .*'any_field'"):
        value.any_field = "other"


@pytest.mark.parametrize("value_type", COMPARED_BY_IDENTITY)
def test_some_values_are_compared_by_identity(value_type: type):
    assert value_type.__eq__ is object.__eq__
    assert value_type.__hash__ is object.__hash__


@pytest.mark.parametrize("model", MODELS)
def test_models_cannot_be_changed_and_reject_unknown_fields(model: type[BaseModel]):
    assert model.model_config["frozen"] is True
    assert model.model_config["extra"] == "forbid"
