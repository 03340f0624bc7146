"""SMART's network of the margin (Guo et al., 2025), one hidden layer, for several fits at once.

The rows of the fits follow one another, those of each in the order of its margin. A rectifier of one number is off on
one side of its kink, so between kinks the network is a line: 16 units cost no more than one, and the rows between two
kinks are a slice. No sum runs over two fits, so none depends on which others it is trained with.

Shapes: B fits of H hidden units on N rows together. Parameters `(B, 3 H + 1)` are hidden weights, hidden biases,
output weights and output bias.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

LOWEST_TEMPERATURE = 0.1
STRAIGHT_FROM = 40.0  # from here on log(1 + exp(x)) rounds to x


def first_parameters(hidden: int, seed: int) -> np.ndarray:
    """A start `(3 H + 1,)`: uniform within 1 / sqrt(inputs of the layer), PyTorch's default, which they used."""
    reach = np.repeat([1.0, 1 / np.sqrt(hidden)], [2 * hidden, hidden + 1])
    return np.random.default_rng(seed).uniform(-reach, reach)


@dataclass(frozen=True, eq=False)
class Lines:
    """Networks before their last rectifier: a line left of the first kink, and one right of each."""

    units: np.ndarray  # (B, 3, H) float64: weights, biases and output weights
    kinks: np.ndarray  # (B, H) float64, rising
    on: np.ndarray  # (B, H, H + 1) float64, 1 where a unit is on, in the order of `units` and `kinks`
    slopes: np.ndarray  # (B, H + 1) float64
    heights: np.ndarray  # (B, H + 1) float64, at a margin of 0


def lines(parameters: np.ndarray) -> Lines:
    """Parameters `(B, 3 H + 1)` to lines: at its kink a unit of positive weight goes on, one of negative weight off."""
    units = parameters[:, :-1].reshape(len(parameters), 3, -1)
    kinks = units[:, 1] / -units[:, 0]
    lefts = np.empty((len(kinks), kinks.shape[1] + 1))
    lefts[:, 0] = -np.inf
    lefts[:, 1:] = kinks
    lefts.sort(axis=1)
    on = ((kinks[:, :, None] <= lefts[:, None]) == (units[:, 0, :, None] > 0)).astype(np.float64)
    slopes_heights = (units[:, :2] * units[:, 2:]) @ on
    slopes_heights[:, 1] += parameters[:, -1:]
    return Lines(units, lefts[:, 1:], on, slopes_heights[:, 0], slopes_heights[:, 1])


def temperature_of(parameters: np.ndarray, margin: np.ndarray) -> np.ndarray:
    """Parameters `(3 H + 1,)` of one network and standardised margins `(n,)`, in any order, to temperatures `(n,)`."""
    net = lines(parameters[None])
    place = np.searchsorted(net.kinks[0], margin)
    return _rectified(net.slopes[0].take(place) * margin + net.heights[0].take(place))[0]


def margin_nets(
    parameters: np.ndarray, margin: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Parameters `(B, 3 H + 1)` and standardised margins `(N,)` to the temperatures `(N,)`, above 0.1.

    The first `rows[0]` margins, rising, are those of the first fit, and so on. With the temperatures comes the way
    back: a loss's slope in them `(N,)` to its slope in the parameters.
    """
    net = lines(parameters)
    starts, lengths = _stretches(net.kinks, margin, rows)
    raw = net.slopes.ravel().repeat(lengths)
    raw *= margin
    raw += net.heights.ravel().repeat(lengths)
    temperature, rise = _rectified(raw)

    def backwards(slope: np.ndarray) -> np.ndarray:
        moments = np.empty((2, len(slope)))
        np.multiply(slope, rise, out=moments[1])
        np.multiply(moments[1], margin, out=moments[0])
        held = lengths.nonzero()[0]
        sums = np.zeros((2, len(lengths)))
        sums[:, held] = np.add.reduceat(moments, starts[held], axis=1)  # of each stretch
        by_fit = sums.reshape(2, *net.slopes.shape).swapaxes(0, 1)
        where_on = by_fit @ net.on.swapaxes(1, 2)  # (B, 2, H)
        in_parameters = np.empty(parameters.shape)
        in_units = in_parameters[:, :-1].reshape(net.units.shape)
        np.multiply(where_on, net.units[:, 2:], out=in_units[:, :2])
        np.add.reduce(where_on * net.units[:, :2], axis=1, out=in_units[:, 2])
        np.add.reduce(by_fit[:, 1], axis=1, out=in_parameters[:, -1])
        return in_parameters

    return temperature, backwards


def _stretches(kinks: np.ndarray, margin: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first row `(B (H + 1),)` of every stretch between kinks `(B, H)`, and its number of rows, maybe 0."""
    bounds = np.empty((len(kinks), kinks.shape[1] + 2), dtype=np.int64)
    bounds[:, 0], bounds[:, -1] = 0, rows
    ends = rows.cumsum()
    for fit, (first, last) in enumerate(pairwise([0, *ends.tolist()])):
        bounds[fit, 1:-1] = margin[first:last].searchsorted(kinks[fit], "right")
    bounds += (ends - rows)[:, None]
    return bounds[:, :-1].ravel(), (bounds[:, 1:] - bounds[:, :-1]).ravel()


def _rectified(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outputs `(n,)` to the temperature `softplus + 0.1` and its slope in them, within [0, 1]."""
    growth = np.minimum(raw, STRAIGHT_FROM)
    np.exp(growth, out=growth)
    whole = growth + 1
    temperature = np.log(whole)
    np.maximum(temperature, raw, out=temperature)
    temperature += LOWEST_TEMPERATURE
    growth /= whole
    return temperature, growth
