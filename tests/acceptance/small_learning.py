"""Replacement of numpy and scikit-learn for the digits example: same duration, without computation.

Importing scikit-learn takes most of the time of an example trial. Accuracies depend on parameters and epoch.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

#: Seconds per epoch; a trial has fifteen.
_EPOCH_S = 0.1
arange = range
for _part in ("datasets", "model_selection", "neural_network"):
    sys.modules[f"sklearn.{_part}"] = sys.modules[__name__]


class _Images:
    def __truediv__(self, most: float) -> _Images:
        return self


def load_digits(**_: object) -> tuple[_Images, list[int]]:
    return _Images(), []


def train_test_split(*_: object, **__: object) -> tuple[list[int], ...]:
    return [], [], [], []


class MLPClassifier:
    def __init__(self, **parameters: Any) -> None:
        self._chance = random.Random(repr(sorted(parameters.items())))

    def partial_fit(self, *_: object, **__: object) -> None:
        time.sleep(_EPOCH_S)

    def score(self, *_: object) -> float:
        return self._chance.random()
