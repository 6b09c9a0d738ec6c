"""Train the digits example at every point of a grid and write `digits.json`: `python -m …tuners.record_digits`.

Takes ten minutes on one processor; the benchmark only reads the file.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
TABLE = Path(__file__).with_name("digits.json")
#: The recorded points: every combination. The example's own search space lies between them.
GRID: dict[str, list[Any]] = {
    "learning_rate": [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1],
    "hidden_size": [8, 16, 24, 32, 48, 64],
    "alpha": [0.000001, 0.001, 0.1],
    "activation": ["relu", "tanh", "logistic"],
    "batch_size": [16, 32, 64, 128],
}


def main() -> None:
    example = _example()
    accuracies = []
    for point in itertools.product(*GRID.values()):
        accuracies.append(round(_accuracy(example, dict(zip(GRID, point, strict=True))), 6))
    TABLE.write_text(json.dumps({"grid": GRID, "accuracy": accuracies}, separators=(",", ":")) + "\n")


def _example() -> Any:
    """The example's module, with `nni` replaced by `_accuracy`."""
    sys.modules["nni"] = types.ModuleType("nni")
    spec = importlib.util.spec_from_file_location("digits_trial", ROOT / "configs/digits/trial.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _accuracy(example: Any, parameters: dict[str, Any]) -> float:
    """The final result of the example's trial."""
    results: list[float] = []
    nni: Any = sys.modules["nni"]
    nni.get_next_parameter = lambda: parameters
    nni.report_intermediate_result = lambda value: None
    nni.report_final_result = results.append
    example.main()
    return results[-1]


if __name__ == "__main__":
    main()
