"""SMART (Guo et al., 2025): a temperature for each row, from a small network of the margin of its top two logits."""

from typing import Annotated, NamedTuple

import numpy as np
import scipy

from relmap.calibrators.identity import floored_log_softmax, log_softmax
from relmap.calibrators.linear import transform_rows
from relmap.calibrators.optimizers import Adam
from relmap.io.serialization import Axes, Number, Positive, Value

N_HIDDEN = 16  # units of each of two hidden layers
MIN_TEMPERATURE = 0.1
MIN_DECREASE = 1e-7  # of the loss, for an epoch to count as better
# Rows of a matrix product. Products of more rows are split among threads, which takes more time than it saves.
CHUNK_ROWS = 512


class SmartSettings(NamedTuple):
    """Settings of the fit; the defaults are from the code of the authors of MRP.

    Attributes:
        learning_rate: Learning rate of Adam.
        epochs: Maximal number of epochs.
        patience: The fit ends after this number of epochs in a row whose loss is not lower by more than MIN_DECREASE.
    """

    learning_rate: float = 0.005
    epochs: int = 120
    patience: int = 28


class Smart(Value, kind="smart"):
    """`softmax(z / T(margin))` with T > 0.1. The order of labels within a row does not change.

    The order of rows can change, even for K = 2, because margin / T(margin) is not always increasing.

    Attributes:
        mean: Mean of the margins in the fit.
        deviation: Standard deviation of the margins in the fit.
        parameters: Weights and biases of each layer in turn, shape (P,); P = H² + 4 H + 1 for H hidden units.
    """

    mean: Number
    deviation: Positive
    parameters: Annotated[np.ndarray, Axes("P")]

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Calibrate logits.

        Args:
            logits: Shape (n, K).

        Returns:
            Log-probabilities, shape (n, K), float64.
        """
        log_p = floored_log_softmax(logits)
        standardized = (_margin(log_p) - self.mean) / self.deviation
        layers = _split_layers(self.parameters)
        chunks = np.split(standardized, range(CHUNK_ROWS, len(standardized), CHUNK_ROWS))
        output = np.concatenate([_score_margins(layers, chunk) for chunk in chunks])
        return log_softmax(log_p / _temperature(output)[:, None])

    def _content_violations(self) -> list[str]:
        count = len(self.parameters)
        n_hidden = np.sqrt(count + 3) - 2  # H² + 4 H + 1 = (H + 2)² - 3
        if n_hidden >= 1 and n_hidden % 1 == 0:
            return []
        return [f"the network has {count} parameters, which is not H^2 + 4 H + 1"]


class TrainingRows(NamedTuple):
    """Up to CHUNK_ROWS rows that the network is trained on.

    Attributes:
        margin: Standardized margin, shape (n,).
        relative_logits: Log-probability of each label minus the largest of the row, shape (K, n).
        label_logit: Relative logit of the true label, shape (n,).
    """

    margin: np.ndarray
    relative_logits: np.ndarray
    label_logit: np.ndarray


def fit_smart(logits: np.ndarray, labels: np.ndarray, *, seed: int, settings: SmartSettings | None = None) -> Smart:
    """Fit the network by Adam and return the network after the step of the epoch with the lowest mean log loss.

    The fit follows the code of the authors of MRP. The loss is the log loss; Guo et al. minimize a soft calibration
    error. Each epoch is one step on all rows. The loss of an epoch is that before its step, but the network after its
    step is returned.

    Args:
        logits: Shape (n, K).
        labels: True labels 0..K-1, shape (n,).
        seed: Seed of the initial parameters.
        settings: Settings of the fit; None for the defaults.

    Returns:
        The fitted calibrator.
    """
    settings = settings or SmartSettings()
    log_p = floored_log_softmax(logits)
    margin = _margin(log_p)
    mean = float(margin.mean())
    deviation = max(float(margin.std(ddof=min(1, len(margin) - 1))), 1e-8)
    standardized = (margin - mean) / deviation
    chunks = _split_rows(standardized, log_p, np.asarray(labels))
    n_rows = len(margin)
    parameters = initial_parameters(seed)
    adam = Adam(settings.learning_rate)
    best = parameters
    lowest_loss = np.inf
    n_stale_epochs = 0
    for _ in range(settings.epochs):
        chunk_losses = [_summed_loss(parameters, chunk) for chunk in chunks]
        loss = sum(chunk_loss.loss for chunk_loss in chunk_losses) / n_rows
        gradient = np.sum([chunk_loss.gradient for chunk_loss in chunk_losses], axis=0) / n_rows
        parameters = parameters + adam.step(gradient)
        if loss < lowest_loss - MIN_DECREASE:
            best = parameters
            lowest_loss = loss
            n_stale_epochs = 0
        else:
            n_stale_epochs += 1
            if n_stale_epochs == settings.patience:
                break
    return Smart(mean, deviation, best)


def _split_rows(margin: np.ndarray, log_p: np.ndarray, labels: np.ndarray) -> list[TrainingRows]:
    """Split rows into chunks of CHUNK_ROWS."""
    highest = log_p.max(axis=1)
    label_logit = np.take_along_axis(log_p, labels[:, None], axis=1)[:, 0] - highest
    relative_logits = np.ascontiguousarray((log_p - highest[:, None]).T)  # sums over labels then add long rows
    starts = range(CHUNK_ROWS, len(margin), CHUNK_ROWS)
    margins = np.split(margin, starts)
    relative_parts = np.split(relative_logits, starts, axis=1)
    label_parts = np.split(label_logit, starts)
    parts = zip(margins, relative_parts, label_parts, strict=True)
    return [TrainingRows(*part) for part in parts]


class Layers(NamedTuple):
    """Weights and biases of the network, as views of its parameters.

    Attributes:
        weight_1: Shape (H,).
        bias_1: Shape (H,).
        weight_2: Shape (H, H).
        bias_2: Shape (H,).
        weight_3: Shape (H,).
        bias_3: Shape (1,).
    """

    weight_1: np.ndarray
    bias_1: np.ndarray
    weight_2: np.ndarray
    bias_2: np.ndarray
    weight_3: np.ndarray
    bias_3: np.ndarray


class Activations(NamedTuple):
    """Activations of the network: hidden layers of shape (H, n) and output of shape (n,)."""

    hidden_1: np.ndarray
    hidden_2: np.ndarray
    output: np.ndarray


class SummedLoss(NamedTuple):
    """Log loss summed over rows, and its gradient, shape (P,)."""

    loss: float
    gradient: np.ndarray


def _summed_loss(parameters: np.ndarray, rows: TrainingRows) -> SummedLoss:
    """Compute the loss and its gradient by backpropagation.

    With relative logits z, temperature T and true label y, the loss of a row is log(sum_k exp(z_k / T)) - z_y / T. Its
    derivative with respect to T is (z_y - sum_k p_k z_k) / T², where p = softmax(z / T). The derivative of T with
    respect to the output of the network is expit(output).

    Args:
        parameters: Shape (P,).
        rows: Rows to sum over.

    Returns:
        The loss and its gradient.
    """
    layers = _split_layers(parameters)
    hidden_1, hidden_2, output = _run_network(layers, rows.margin)
    temperature = _temperature(output)
    odds = np.exp(rows.relative_logits / temperature)
    total = odds.sum(axis=0)
    loss = float((np.log(total) - rows.label_logit / temperature).sum())
    weighted_logits = np.multiply(odds, rows.relative_logits, out=odds)  # in the memory of `odds`
    mean_logit = weighted_logits.sum(axis=0) / total
    temperature_gradient = (rows.label_logit - mean_logit) / temperature**2
    output_gradient = temperature_gradient * scipy.special.expit(output)
    hidden_2_gradient = np.multiply.outer(layers.weight_3, output_gradient)
    hidden_2_gradient *= hidden_2 > 0
    hidden_1_gradient = layers.weight_2.T @ hidden_2_gradient
    hidden_1_gradient *= hidden_1 > 0
    gradient = Layers(
        weight_1=np.einsum("hn,n->h", hidden_1_gradient, rows.margin),
        bias_1=hidden_1_gradient.sum(axis=1),
        weight_2=(hidden_2_gradient @ hidden_1.T).ravel(),
        bias_2=hidden_2_gradient.sum(axis=1),
        weight_3=np.einsum("hn,n->h", hidden_2, output_gradient),
        bias_3=output_gradient.sum(keepdims=True),
    )
    return SummedLoss(loss, np.concatenate(gradient))


def initial_parameters(seed: int) -> np.ndarray:
    """Draw initial parameters uniformly within ± 1 / sqrt(number of inputs of the layer), as PyTorch does by default.

    Args:
        seed: Seed of the draw.

    Returns:
        Parameters, shape (P,).
    """
    first_layer = np.ones(2 * N_HIDDEN)  # one input
    other_layers = np.full(N_HIDDEN**2 + 2 * N_HIDDEN + 1, 1 / np.sqrt(N_HIDDEN))
    bound = np.concatenate([first_layer, other_layers])
    return np.random.default_rng(seed).uniform(-bound, bound)


def _split_layers(parameters: np.ndarray) -> Layers:
    n_hidden = round(np.sqrt(len(parameters) + 3)) - 2
    ends = np.cumsum([n_hidden, n_hidden, n_hidden**2, n_hidden, n_hidden])
    weight_1, bias_1, weight_2, bias_2, weight_3, bias_3 = np.split(parameters, ends)
    return Layers(weight_1, bias_1, weight_2.reshape(n_hidden, n_hidden), bias_2, weight_3, bias_3)


def _run_network(layers: Layers, margin: np.ndarray) -> Activations:
    """Evaluate the network at standardized margins, shape (n,)."""
    hidden_1 = np.multiply.outer(layers.weight_1, margin)
    hidden_1 += layers.bias_1[:, None]
    np.maximum(hidden_1, 0, out=hidden_1)
    hidden_2 = layers.weight_2 @ hidden_1
    hidden_2 += layers.bias_2[:, None]
    np.maximum(hidden_2, 0, out=hidden_2)
    return Activations(hidden_1, hidden_2, layers.weight_3 @ hidden_2 + layers.bias_3)


def _score_margins(layers: Layers, margin: np.ndarray) -> np.ndarray:
    """Compute the output of the network, shape (n,); rounding errors of a row do not depend on the other rows."""
    hidden_1 = np.maximum(np.multiply.outer(margin, layers.weight_1) + layers.bias_1, 0)
    hidden_2 = np.maximum(transform_rows(hidden_1, layers.weight_2) + layers.bias_2, 0)
    return np.asarray(transform_rows(hidden_2, layers.weight_3[None])[:, 0] + layers.bias_3)


def _temperature(output: np.ndarray) -> np.ndarray:
    return np.asarray(np.logaddexp(0, output) + MIN_TEMPERATURE)


def _margin(logits: np.ndarray) -> np.ndarray:
    """Compute the largest minus the second largest logit of each row, shape (n,)."""
    largest = np.full(len(logits), -np.inf)
    second = largest
    for column in logits.T:
        second = np.maximum(second, np.minimum(largest, column))
        largest = np.maximum(largest, column)
    return np.asarray(largest - second)
