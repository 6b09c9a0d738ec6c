"""Record the learning curves of the assessor benchmark: `python -m tests.benchmarks.assessors.record`.

Networks and linear models learn scikit-learn's digits with random parameters, including bad ones. Each curve is the
accuracy on held-out digits after each of `EPOCHS` epochs. It takes some minutes.
"""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("curves.json")
#: A power of three, so that rungs of successive halving end with the last epoch.
EPOCHS = 27
_CURVES = 120
_LEARNT = 900
_BATCHES = (16, 64, 256)


def main() -> None:
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    order = list(range(len(digits)))
    random.Random(0).shuffle(order)
    learnt, kept = order[:_LEARNT], order[_LEARNT:]
    data = (images[learnt] / 16, digits[learnt], images[kept] / 16, digits[kept])
    curves = []
    for number in range(_CURVES):
        parameters = _drawn(random.Random(number))
        curves.append({"parameters": parameters, "accuracies": _curve(parameters, data)})
    lines = ",\n".join(json.dumps(curve) for curve in curves)
    FILE.write_text(f"[\n{lines}\n]\n")


def _drawn(source: random.Random) -> dict[str, Any]:
    common = {"rate": 10 ** source.uniform(-5, 0), "alpha": 10 ** source.uniform(-6, 0), "seed": source.randrange(1000)}
    if source.random() < 0.3:
        return {"model": "linear", "loss": source.choice(["hinge", "log_loss", "modified_huber"]), **common}
    return {
        "model": "network",
        "width": source.choice([8, 32, 128]),
        "solver": source.choice(["adam", "sgd"]),
        "batch": source.choice(_BATCHES),
        **common,
    }


def _curve(parameters: dict[str, Any], data: Any) -> list[float]:
    images, digits, kept_images, kept_digits = data
    model = _linear(parameters) if parameters["model"] == "linear" else _network(parameters)
    accuracies = []
    for _ in range(EPOCHS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model.partial_fit(images, digits, classes=range(10))
            except ValueError:  # its weights are infinite: it stays as bad as it is
                accuracies.append(accuracies[-1] if accuracies else 0.1)
                continue
        accuracies.append(round(float(model.score(kept_images, kept_digits)), 4))
    return accuracies


def _linear(parameters: dict[str, Any]) -> Any:
    from sklearn.linear_model import SGDClassifier

    return SGDClassifier(
        loss=parameters["loss"],
        alpha=parameters["alpha"],
        learning_rate="constant",
        eta0=parameters["rate"],
        random_state=parameters["seed"],
    )


def _network(parameters: dict[str, Any]) -> Any:
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier(
        hidden_layer_sizes=(parameters["width"],),
        solver=parameters["solver"],
        batch_size=parameters["batch"],
        learning_rate_init=parameters["rate"],
        alpha=parameters["alpha"],
        random_state=parameters["seed"],
    )


if __name__ == "__main__":
    main()
