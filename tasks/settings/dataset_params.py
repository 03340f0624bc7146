"""The data sets of params.yaml: where each comes from, and how it is split, weighted and read."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from relmap.settings import Section, Share

OWN_READERS = {"files": ("files",), "logits": ("files",), "hub": ("hub",)}  # of one's own sets, and their sources


class SplitParams(Section):
    """Shares of the rows (or groups) whose split the source leaves open; what is left over is train."""

    by: Literal["row", "group"]
    validation: Share | None = None
    test: Share | None = None

    @property
    def shares(self) -> dict[str, float]:
        """Splits to draw, with their shares; they sum to one."""
        drawn = {name: share for name, share in (("validation", self.validation), ("test", self.test)) if share}
        return {"train": 1 - sum(drawn.values()), **drawn}

    @model_validator(mode="after")
    def _at_most_all_rows_are_drawn(self) -> "SplitParams":
        if self.shares["train"] < -1e-9:  # 0 is for a source that names its train rows
            raise ValueError(f"validation and test sum to {1 - self.shares['train']:g}, more than all the rows")
        return self


class DatasetParams(Section):
    """One data set of a run: where it comes from, and, for one's own, how it is split, weighted and read."""

    source: Literal["simulated", "hub", "files"]
    path: str  # what on this machine the raw files are made from: the code of a twin or of a reader, or one's own files
    reader: str | None = None  # of the paper's sets, by default that of the entry's name; `files`, `hub`, `logits`: own
    rows: Annotated[int, Field(ge=100)] | None = None
    residual: Annotated[float, Field(ge=0)] | None = None
    seed: int = 0  # of the twin and of drawn splits
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None  # of the paper's sets: another commit
    calibrators: tuple[str, ...] | None = None  # of this set, in place of those that all have
    preset: Literal["paper"] | None = None  # as tasks/datasets declares the set of the paper
    split: SplitParams | None = None
    class_weight: Literal["none", "balanced"] = "none"
    predictor: Literal["linear", "boosted"] = "linear"
    settings: Mapping[str, Any] = Field(default_factory=dict)  # of the predictor
    options: Mapping[str, Any] = Field(default_factory=dict)  # the reader's own

    @model_validator(mode="after")
    def _consistent(self) -> "DatasetParams":
        own = self.reader in OWN_READERS
        if self.reader and not own and self.preset is None:
            raise ValueError(f"no reader of your own is {self.reader!r}; there are {', '.join(OWN_READERS)}")
        if own == (self.preset is not None):
            raise ValueError("`preset: paper` is for the paper's sets, and they need it; readers of your own have none")
        if self.preset and (self.split or self.options or self.class_weight != "none"):
            raise ValueError("`preset: paper` says how the set is split, weighted and read")
        if own and self.reader != "logits" and self.split is None:
            raise ValueError("say how it is split: give `split`")
        if self.source == "simulated" and (self.rows is None or self.residual is None):
            raise ValueError("a simulated set needs `rows` and `residual`")
        if self.source not in OWN_READERS.get(self.reader or "", ("simulated", "hub")):
            raise ValueError(f"reader {self.reader!r} does not read the source `{self.source}`")
        return self
