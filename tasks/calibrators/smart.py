"""SMART (Guo et al., 2025): each row's own temperature, a small network of the margin between its two top logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import log_softmax

from tasks.calibrators.adam import Adam
from tasks.calibrators.margin_losses import log_loss, soft_ece
from tasks.calibrators.margin_net import first_parameters, margin_nets, temperature_of
from tasks.calibrators.temperature import Temperature, fit_temperature

Objective = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]  # temperatures (N,) to losses (B,) and slope (N,)


@dataclass(frozen=True)
class SmartSettings:
    """As published."""

    hidden: int = 16
    learning_rate: float = 0.005
    epochs: int = 2000
    minimum_rows: int = 100  # ours: fewer take one temperature


@dataclass(frozen=True, eq=False)
class Smart:
    """`softmax(z / T(margin))` with T > 0.1: the order within a row is kept.

    That of the rows is not, not even for K = 2: nothing makes margin / T(margin) rise.
    """

    mean: float  # of the margins it was fitted on
    deviation: float  # theirs; > 0
    parameters: np.ndarray  # (3 H + 1,) float64, of `margin_net`

    def __post_init__(self) -> None:
        frozen = np.array(self.parameters, dtype=np.float64)
        frozen.flags.writeable = False
        object.__setattr__(self, "parameters", frozen)

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Logits `(n, K)` to log-probabilities `(n, K)` float64."""
        logits = np.asarray(logits, dtype=np.float64)
        temperature = temperature_of(self.parameters, (_margin(logits) - self.mean) / self.deviation)
        return np.asarray(log_softmax(logits / temperature[:, None], axis=1))


def fit_smart(
    logits: np.ndarray, labels: np.ndarray, *, seed: int, settings: SmartSettings | None = None
) -> Smart | Temperature:
    """Logits `(n, K)` and labels `(n,)` 0..K-1 to the network of the epoch with the lowest mean log loss.

    The log loss, not the published soft calibration error, which leaves the order of rows to chance (see
    `fit_smart_soft_ece`): the paper's SMART keeps the binary ranking and has the lowest log loss of its calibrators,
    but not a low calibration error, as a network trained so would. Fewer than 100 rows, or margins that are all
    equal, give one temperature.
    """
    return fit_smart_on_first(logits, labels, [len(labels)], seed=seed, settings=settings)[0]


def fit_smart_on_first(
    logits: np.ndarray, labels: np.ndarray, rows: Sequence[int], *, seed: int, settings: SmartSettings | None = None
) -> list[Smart | Temperature]:
    """`fit_smart` on so many of the first rows, for each of `rows`; bit for bit, in less time than one by one."""
    return _fit(logits, labels, rows, _log_loss, seed, settings or SmartSettings())


def fit_smart_soft_ece(
    logits: np.ndarray, labels: np.ndarray, *, seed: int, settings: SmartSettings | None = None
) -> Smart | Temperature:
    """`fit_smart` with the published loss, whose low values say nothing about which rows are the better ones."""
    return fit_smart_soft_ece_on_first(logits, labels, [len(labels)], seed=seed, settings=settings)[0]


def fit_smart_soft_ece_on_first(
    logits: np.ndarray, labels: np.ndarray, rows: Sequence[int], *, seed: int, settings: SmartSettings | None = None
) -> list[Smart | Temperature]:
    """`fit_smart_soft_ece` on so many of the first rows, for each of `rows`."""
    return _fit(logits, labels, rows, _soft_ece, seed, settings or SmartSettings())


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of one fit in the order of their margin, so that those between two kinks are a slice."""

    logits: np.ndarray  # (n, K) float64
    labels: np.ndarray  # (n,)
    margin: np.ndarray  # (n,) float64, rising
    mean: float  # of the margin
    deviation: float

    @property
    def margins_differ(self) -> bool:
        """Whether the margins differ by more than rounding."""
        return self.deviation > 1e-8 * max(1.0, abs(self.mean))


def _by_margin(logits: np.ndarray, labels: np.ndarray) -> _Rows:
    logits = np.asarray(logits, dtype=np.float64)
    margin = _margin(logits)
    order = np.argsort(margin, kind="stable")
    margin = margin[order]
    return _Rows(logits[order], np.asarray(labels)[order], margin, float(margin.mean()), float(margin.std()))


def _fit(
    logits: np.ndarray,
    labels: np.ndarray,
    rows: Sequence[int],
    objective: Callable[[list[_Rows]], Objective],
    seed: int,
    settings: SmartSettings,
) -> list[Smart | Temperature]:
    fits = [_by_margin(logits[:n], labels[:n]) for n in rows]
    trained = [fit for fit in fits if fit.margins_differ and len(fit.margin) >= settings.minimum_rows]
    best = iter(_descended(trained, objective(trained), seed, settings) if trained else [])
    return [
        Smart(fit.mean, fit.deviation, next(best))
        if fit in trained
        else fit_temperature(fit.logits, fit.labels, seed=seed)
        for fit in fits
    ]


def _descended(fits: list[_Rows], objective: Objective, seed: int, settings: SmartSettings) -> np.ndarray:
    """The parameters `(B, 3 H + 1)` of the best epoch of each fit; all start from the seed's."""
    margin = np.concatenate([(fit.margin - fit.mean) / fit.deviation for fit in fits])
    rows = _numbers(fits)
    parameters = np.tile(first_parameters(settings.hidden, seed), (len(fits), 1))
    best, lowest = parameters.copy(), np.full(len(fits), np.inf)
    adam = Adam(settings.learning_rate)
    for _ in range(settings.epochs + 1):
        temperature, backwards = margin_nets(parameters, margin, rows)
        losses, slope = objective(temperature)
        lower = losses < lowest
        best[lower], lowest[lower] = parameters[lower], losses[lower]
        parameters = parameters + adam.step(backwards(slope))
    return best


def _log_loss(fits: list[_Rows]) -> Objective:
    of_label = [fit.logits[np.arange(len(fit.labels)), fit.labels] - fit.logits.max(axis=1) for fit in fits]
    return partial(log_loss, below=_below_top(fits), of_label=np.concatenate(of_label), rows=_numbers(fits))


def _soft_ece(fits: list[_Rows]) -> Objective:
    correct = [np.argmax(fit.logits, axis=1) == fit.labels for fit in fits]
    return partial(soft_ece, below=_below_top(fits), correct=np.concatenate(correct), rows=_numbers(fits))


def _numbers(fits: list[_Rows]) -> np.ndarray:
    return np.array([len(fit.margin) for fit in fits])


def _below_top(fits: list[_Rows]) -> np.ndarray:
    """All logits but the top one of each row, minus that; `(K - 1, N)`, at most 0."""
    ordered = np.sort(np.concatenate([fit.logits for fit in fits]), axis=1)
    return np.ascontiguousarray((ordered[:, :-1] - ordered[:, -1:]).T)


def _margin(logits: np.ndarray) -> np.ndarray:
    """Logits `(n, K)` to the top one minus the next, `(n,)`."""
    top = np.partition(logits, -2, axis=1)
    return np.asarray(top[:, -1] - top[:, -2])
