"""The stand-in compared with NNI 3.0: public names, parameters, canonical configs, and helpers for tuners."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nni_manager.platform_kit.payload import STAND_IN
from tests.upstream.made_configs import EXAMPLES, made
from tests.upstream.test_upstream_configs import SECOND, Judge, judge

__all__ = ["judge"]

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(240)]

NAMES = str(Path(__file__).parent / "public_names.py")
#: NNI packages that the stand-in omits → why.
PACKAGES = {
    "nni.algorithms": "nni-manager has tuners and assessors of its own; to extend NNI's, install nni",
    "nni.compression": "model compression is not supported",
    "nni.contrib": "distillation, and a training service of NNI's",
    "nni.feature_engineering": "feature engineering is not supported",
    "nni.mutable": "neural architecture search is not supported",
    "nni.nas": "neural architecture search is not supported",
    "nni.tools": "the programs of NNI itself",
}
_SEARCH = "neural architecture search is not supported"
_INSIDE = "the inside of NNI's manager, trial or tuner process"
#: Omitted modules and names, alone or with everything below → why.
LEFT_OUT = {
    **{f"nni.{name}": _SEARCH for name in ("choice", "uniform", "quniform", "loguniform", "qloguniform", "normal")},
    **{f"nni.{name}": _SEARCH for name in ("qnormal", "trace", "training_update", "shortcut_module")},
    **{f"nni.{name}": _SEARCH for name in ("shortcut_framework", "get_default_framework", "set_default_framework")},
    "nni.common.blob_utils": _SEARCH,
    "nni.common.device": _SEARCH,
    "nni.common.framework": _SEARCH,
    "nni.common.is_traceable": _SEARCH,
    "nni.common.nas_utils": _SEARCH,
    "nni.common.serializer": _SEARCH,
    "nni.common.trace": _SEARCH,
    "nni.common.version": "the versions of torch",
    "nni.experiment.config.convert": "`nnictl config convert` does this",
    "nni.experiment.config.utils": "types of fields, and the search for classes",
    "nni.experiment.experiment": _INSIDE,
    "nni.experiment.launcher": _INSIDE,
    "nni.experiment.management.create_experiment_directory": "the daemon makes the folder",
    "nni.experiment.pipe": _INSIDE,
    "nni.experiment.rest": _INSIDE,
    "nni.runtime.command_channel": _INSIDE,
    "nni.runtime.config": _INSIDE,
    "nni.runtime.msg_dispatcher": _INSIDE,
    "nni.runtime.msg_dispatcher_base": _INSIDE,
    "nni.runtime.trial_command_channel": _INSIDE,
    "nni.runtime.tuner_command_channel": _INSIDE,
}
#: Required names, regardless of the table.
NEEDED = (
    "nni.Experiment.resume",
    "nni.Experiment.view",
    "nni.common.hpo_utils.Deduplicator",
    "nni.common.hpo_utils.format_search_space",
    "nni.enable_global_logging",
    "nni.experiment.config.base.ConfigBase",
    "nni.experiment.config.ExperimentConfig.canonical_copy",
    "nni.runtime.msg_dispatcher_base.MsgDispatcherBase.send",
    "nni.runtime.tuner_command_channel.CommandType",
    "nni.silence_stdout",
    "nni.typehint.SearchSpace",
)


def test_public_names_of_nni_are_in_the_stand_in(nni3: Path, tmp_path: Path) -> None:
    theirs = _run([str(nni3), NAMES, "walk", *PACKAGES], tmp_path, {})
    names = {f"{module}.{name}" for module, found in theirs.items() for name in found}
    methods = {
        f"{module}.{name}.{method}"
        for module, found in theirs.items()
        for name, value in found.items()
        for method in (value if isinstance(value, dict) else ())
    }
    assert set(NEEDED) <= names | methods
    found = _run([sys.executable, NAMES, "look"], tmp_path, {"PYTHONPATH": STAND_IN}, theirs)
    differing = [*found["missing"], *found["different"]]
    assert [name for name in differing if not _reasons(name)] == []
    assert set(differing).isdisjoint(NEEDED)
    assert {reason for name in differing for reason in _reasons(name)} == LEFT_OUT.keys(), "an entry is obsolete"


def _reasons(name: str) -> list[str]:
    return [entry for entry in LEFT_OUT if name == entry or name.startswith(entry + ".")]


CANONICAL = """
import json, sys
from nni.experiment.config import ExperimentConfig

found = []
for config in json.load(sys.stdin):
    try:
        found.append(ExperimentConfig(**config).json())
    except Exception as error:
        found.append(repr(error))
print(json.dumps(found))
"""


def test_canonical_config_is_that_of_nni(judge: Judge) -> None:
    configs = [one.config for one in made(SECOND, 500, seed=7)]
    theirs = judge.judged("canonical", configs)
    ours = _run([sys.executable, "-c", CANONICAL], EXAMPLES, {"PYTHONPATH": STAND_IN}, configs)
    compared = [(their["value"], our) for their, our in zip(theirs, ours, strict=True) if "value" in their]
    assert len(compared) > 100
    assert [pair for pair in compared if pair[0] != pair[1]] == []


#: Draws of every type of dimension, in flat form and back; run by both. NNI fails with a choice inside a nested one.
HELPERS = """
import json, random, sys
from nni.common.hpo_utils import *

names = "uniform quniform loguniform qloguniform normal qnormal lognormal qlognormal randint choice".split()
chance = random.Random(5)

def dimension(depth=0):
    kind = chance.choice([*names, "choice" if depth else "nested"])
    if kind == "nested":
        inner = [{"_name": str(i), **space(depth + 1)} for i in range(chance.randint(1, 3))]
        return {"_type": "choice", "_value": inner}
    if kind == "choice":
        return {"_type": kind, "_value": chance.sample(["a", 1, 2.5, {"x": 1}, {"x": 2}], chance.randint(1, 5))}
    if kind == "randint":
        return {"_type": kind, "_value": [chance.randint(-5, 2), chance.randint(3, 9)]}
    step = [chance.choice([0.3, 1, 2])] if kind[0] == "q" else []
    return {"_type": kind, "_value": [chance.uniform(0.1, 2), chance.uniform(2, 9), *step]}

def space(depth=0):
    return {"p%d" % number: dimension(depth) for number in range(chance.randint(0 if depth else 1, 3))}

def draw(formatted):
    flat = {}
    for key, spec in formatted.items():
        if spec.is_activated_in(flat):
            center = spec.mu if spec.normal_distributed else spec.low
            flat[key] = chance.randrange(spec.size) if spec.categorical else center + chance.random()
    return flat

seen = []
for _ in range(200):
    formatted = format_search_space(space())
    flat = draw(formatted)
    made = deformat_parameters(flat, formatted)
    back = format_parameters(made, formatted)
    seen.append([[[str(key), *spec] for key, spec in formatted.items()], made, sorted(map(str, back.items()))])

values = [[0, 1], [1, 2], [2, 1], [1, 2, 3], [0.5, 1.5], [0.5, 1.5, 0.1], ["a"], [None], [{"_name": "a"}], "ab", [0, 0]]
spaces = [{"x": {"_type": kind, "_value": value}} for kind in [*names, "other"] for value in [*values, [-1, 1, 1]]]
verdicts = [validate_search_space(one) for one in (*spaces, {}, "x", {"x": 1}, {"x": {"_type": "choice"}})]

import nni
finite = format_search_space({
    "x": {"_type": "choice", "_value": [{"_name": "a", "n": {"_type": "randint", "_value": [0, 3]}}, {"_name": "b"}]},
    "y": {"_type": "quniform", "_value": [0, 1, 0.6]}, "z": {"_type": "normal", "_value": [1, 0]}})
deduplicator, proposed = Deduplicator(finite), []
first = {("x",): 0, ("x", 0, "n"): 1, ("y",): 0.5, ("z",): 1.0}
try:
    while True:
        proposed.append(json.dumps(deformat_parameters(deduplicator(first), finite), sort_keys=True))
except nni.NoMoreTrialError:
    assert len(proposed) == len(set(proposed)) == 12
endless = format_search_space({
    "x": {"_type": "choice", "_value": [{"_name": "a", "n": {"_type": "lognormal", "_value": [0, 1]}}, {"_name": "b"}]},
    "q": {"_type": "qnormal", "_value": [0, 1, 0.5]}})
deduplicator, first = Deduplicator(endless), {("x",): 1, ("q",): 0.0}
others = [json.dumps(deformat_parameters(deduplicator(first), endless)) for _ in range(60)]
assert len(set(others)) == 60
free = format_search_space({"x": {"_type": "uniform", "_value": [0, 1]}})
same = {("x",): 0.5}
assert all(Deduplicator(free)(same) is same for _ in range(2))
json.dump([seen, verdicts, sorted(proposed)], sys.stdout)
"""


def test_helpers_for_tuners_give_what_nni_gives(nni3: Path, tmp_path: Path) -> None:
    theirs = _run([str(nni3), "-c", HELPERS], tmp_path, {"NNI_PLATFORM": "unittest"})
    ours = _run([sys.executable, "-c", HELPERS], tmp_path, {"PYTHONPATH": STAND_IN})
    assert ours == theirs


def _run(command: list[str], folder: Path, more: dict[str, str], given: object = None) -> Any:
    """JSON output of a program."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more
    done = subprocess.run(command, cwd=folder, env=environment, input=json.dumps(given), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
