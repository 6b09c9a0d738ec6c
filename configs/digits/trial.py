"""Trains a small neural network on the hand-written digits that come with scikit-learn; a second or two per trial."""

import os

# One thread per trial, so that trials at once do not fight over cores. Has to stand before numpy is imported.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import nni
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

EPOCHS = 15
DEFAULTS = {
    "learning_rate": 0.001,
    "hidden_size": 32,
    "alpha": 0.0001,
    "activation": "relu",
    "batch_size": 32,
}


def main():
    parameters = {**DEFAULTS, **nni.get_next_parameter()}
    train_x, test_x, train_y, test_y = load_data()
    model = build_model(parameters)
    accuracy = 0.0
    for _ in range(EPOCHS):
        model.partial_fit(train_x, train_y, classes=np.arange(10))
        accuracy = model.score(test_x, test_y)
        nni.report_intermediate_result(accuracy)
    nni.report_final_result(accuracy)


def load_data():
    """Images as rows of 64 numbers from 0 to 1, and their digits; a third is kept for validation."""
    images, digits = load_digits(return_X_y=True)
    return train_test_split(images / 16, digits, test_size=1 / 3, random_state=0, stratify=digits)


def build_model(parameters):
    return MLPClassifier(
        hidden_layer_sizes=(int(parameters["hidden_size"]),),
        activation=parameters["activation"],
        learning_rate_init=parameters["learning_rate"],
        alpha=parameters["alpha"],
        batch_size=int(parameters["batch_size"]),
        random_state=0,
    )


if __name__ == "__main__":
    main()
