"""Runs in the environment of the real nni: what its own loader, schema and converter say of configs.

Reads a JSON list of ``[question, config]`` and writes one of ``{"error"}`` or ``{"value"}``; paths start at the current
folder.
"""

import json
import logging
import os
import sys
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)


def load(config):
    from nni.experiment.config import ExperimentConfig

    ExperimentConfig(**config).validate()


def schema(config):
    from nni.tools.nnictl.config_schema import NNIConfigSchema

    NNIConfigSchema().validate(config)


def convert(config):
    from nni.experiment.config.convert import to_v2

    return to_v2(config)


def fields(of):
    """The fields of a class of NNI's configs, in camelCase."""
    import dataclasses

    from nni.experiment import config

    return [_camel(one.name) for one in dataclasses.fields(getattr(config, of)) if not one.name.startswith("_")]


def _camel(name):
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def answer(question, config):
    try:
        return {"value": {"load": load, "schema": schema, "convert": convert, "fields": fields}[question](config)}
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    questions = json.load(sys.stdin)
    out = os.dup(1)  # nni prints, too; and where a path is a number, it opens and closes that descriptor
    sys.stdout = sys.stderr
    with os.fdopen(out, "w") as answers:
        json.dump([answer(*one) for one in questions], answers)
