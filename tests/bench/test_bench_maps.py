"""A user's own predictions: from file to map and verdict, and from file to scored file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import maps
import numpy as np
import polars as pl
import pytest
from conftest import Race  # type: ignore[attr-defined]
from scipy.special import softmax

from flows import rerank
