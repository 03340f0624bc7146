"""Adam (Kingma and Ba, 2015) for calibrators with a handful of parameters, where starting torch outlasts the fit."""

from dataclasses import dataclass

import numpy as np


@dataclass
class Adam:
    """The memory of one descent, with the published decay rates."""

    learning_rate: float
    count: int = 0
    first: np.ndarray | float = 0.0  # running mean of the gradient
    second: np.ndarray | float = 0.0  # and of its square

    def step(self, gradient: np.ndarray) -> np.ndarray:
        """Slope of the loss in the parameters to what to add to them, of that shape."""
        self.count += 1
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.999 * self.second + 0.001 * gradient**2
        spread = np.sqrt(self.second / (1 - 0.999**self.count)) + 1e-8
        return np.asarray(-self.learning_rate * self.first / (1 - 0.9**self.count) / spread)
