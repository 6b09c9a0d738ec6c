"""Runs in the environment of the real nni: verdicts of its loader, schema and converter about configs.

It answers each input line, a JSON list ``[question, config]``, with a line: ``{"error"}`` or ``{"value"}``. Paths are
relative to the current folder.
"""

import gc
import json
import logging
import os
import sys
import warnings

import yaml

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
#: NNI reads its list of algorithms for each config; libyaml's loader gives the same result ten times as fast.
yaml.SafeLoader = yaml.CSafeLoader


def load(config):
    from nni.experiment.config import ExperimentConfig

    ExperimentConfig(**config).validate()


def canonical(config):
    from nni.experiment.config import ExperimentConfig

    return ExperimentConfig(**config).json()


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


QUESTIONS = {"load": load, "canonical": canonical, "schema": schema, "convert": convert, "fields": fields}


def answer(question, config):
    try:
        return {"value": QUESTIONS[question](config)}
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}"}


def answer_all(questions):
    out = os.dup(1)  # nni prints, too; and where a path is a number, it opens and closes that descriptor
    sys.stdout = sys.stderr
    with os.fdopen(out, "w") as answers:
        json.dump([answer(*one) for one in questions], answers)
        answers.write("\n")


def in_a_fork(line):
    """Judge a config in a fork: nni's changes to descriptors end with it, and imports are shared."""
    child = os.fork()
    if not child:
        answer_all(json.loads(line))
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit("a fork of the judge has failed")


if __name__ == "__main__":
    import nni.experiment.config.convert  # noqa: F401
    import nni.tools.nnictl.config_schema  # noqa: F401

    gc.collect()
    gc.freeze()  # what is shared with the forks stays shared
    for line in sys.stdin:
        in_a_fork(line)
