"""Entries of `datasets` in params.yaml: source, split, class weights and reader of each data set."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from relmap.settings import PartialShare, Section

# Readers of data sets that are not in the paper -> sources that they read.
OWN_READERS = {"files": ("files",), "logits": ("files",), "hub": ("hub",)}


class SplitParams(Section):
    """Shares of validation and test among the rows (or groups) without a given split; the others are train."""

    by: Literal["row", "group"]
    validation: PartialShare | None = None
    test: PartialShare | None = None

    @property
    def shares(self) -> dict[str, float]:
        """Splits to draw -> share; the shares sum to one."""
        held_out = {"validation": self.validation, "test": self.test}
        drawn = {split: share for split, share in held_out.items() if share is not None}
        return {"train": 1 - sum(drawn.values()), **drawn}

    @model_validator(mode="after")
    def _require_shares_below_one(self) -> "SplitParams":
        held_out_share = 1 - self.shares["train"]
        if held_out_share > 1 + 1e-9:  # 1 is valid: a source may name its train rows
            raise ValueError(f"validation and test sum to {held_out_share:g}, which is more than 1")
        return self


class TwinParams(Section):
    """Parameters of a simulated twin, chosen by `benchmarks/choose_twin.py`.

    Attributes:
        label_shares: Share of each label in the files; if candidates are capped, before the cap.
        strength: Standard deviation of the evidence for a label, in logits. It sets the attainable accuracy.
        log_sharpness: Logarithm of the sharpness of the most frequent label at residual 1, as in
            `relmap.simulation.judgements.Difficulty`.
        noise: Share of the labels that are drawn uniformly, independent of the evidence.
        phrases: Number of values of each property of a text. With more of them, each is in fewer training rows, and
            the base predictor is less confident.
        stock_phrases: Number of phrases in a text that do not depend on its label. With more of them, the base
            predictor memorizes more, and is more confident than correct.
        varying_features: Number of features of MSLR-WEB10K that vary; the others are constant. With more of them, the
            decision values of the base predictor are noisier.
        ordered: Share of the variance of the evidence in MSLR-WEB10K that is due to one relevance score, which favors
            the labels in their order. The rest is independent for each label.
    """

    label_shares: Annotated[tuple[PartialShare, ...], Field(min_length=2)]
    strength: Annotated[float, Field(gt=0)]
    log_sharpness: float
    noise: Annotated[float, Field(ge=0, lt=1)] = 0.0
    phrases: Annotated[int, Field(ge=2)] = 6
    stock_phrases: Annotated[int, Field(ge=1)] = 2
    varying_features: Annotated[int, Field(ge=1, le=136)] = 136
    ordered: Annotated[float, Field(ge=0, le=1)] = 0.0

    @model_validator(mode="after")
    def _require_shares_of_one(self) -> "TwinParams":
        if abs(sum(self.label_shares) - 1) > 1e-9:
            raise ValueError(f"the label shares sum to {sum(self.label_shares):g}, not to 1")
        return self


class DatasetParams(Section):
    """One data set.

    Attributes:
        source: Origin of the raw files.
        path: Local file or folder that the raw files are made from: code of a simulation or reader, or a user's files.
        reader: Reader. By default the one of the paper's data set with the same key; `files`, `hub` or `logits` for
            other data sets.
        rows: Number of rows to simulate.
        residual: Strength of the simulated label-dependent reliability; 0 for none.
        twin: Other parameters of the simulation.
        seed: Seed of the simulation and of drawn splits.
        revision: Another commit of a data set of the paper.
        calibrators: Calibrators of this data set, instead of the common list.
        preset: `paper` for the data sets of the paper, whose split, weights and options are declared in
            `tasks/datasets`.
        split: How rows without a given split are split.
        class_weight: Class weights of the base predictor.
        predictor: Base predictor.
        settings: Settings of the base predictor.
        options: Options of the reader.
    """

    source: Literal["simulated", "hub", "files"]
    path: str
    reader: str | None = None
    rows: Annotated[int, Field(ge=100)] | None = None
    residual: Annotated[float, Field(ge=0)] | None = None
    twin: TwinParams | None = None
    seed: int = 0
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    calibrators: tuple[str, ...] | None = None
    preset: Literal["paper"] | None = None
    split: SplitParams | None = None
    class_weight: Literal["none", "balanced"] = "none"
    predictor: Literal["linear", "boosted"] = "linear"
    settings: Mapping[str, Any] = Field(default_factory=dict)
    options: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _require_consistent_fields(self) -> "DatasetParams":
        is_own = self.reader in OWN_READERS
        if self.reader and not is_own and self.preset is None:
            raise ValueError(f"unknown reader {self.reader!r}; readers of your own data are {', '.join(OWN_READERS)}")
        if is_own == (self.preset is not None):
            raise ValueError(
                "the paper's data sets need `preset: paper`; data sets with the reader files, logits or hub must not "
                "have it"
            )
        if self.preset and (self.split or self.options or self.class_weight != "none"):
            raise ValueError("`preset: paper` defines split, class weights and options; remove these keys")
        if is_own and self.reader != "logits" and self.split is None:
            raise ValueError("`split` is missing")
        if self.source == "simulated" and (self.rows is None or self.residual is None or self.twin is None):
            raise ValueError("a simulated data set needs `rows`, `residual` and `twin`")
        if self.source not in OWN_READERS.get(self.reader or "", ("simulated", "hub")):
            raise ValueError(f"reader {self.reader!r} does not read the source `{self.source}`")
        return self
