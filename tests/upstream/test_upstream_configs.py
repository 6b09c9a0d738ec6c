"""Our config reader compared with NNI 3.0's loader, its schema of the first format, and its converter."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import yaml

from nni_manager.config.experiment_file import convert_file, load
from nni_manager.domain.errors import ConfigInvalid
from tests.config.test_dialect_v1 import NNI_FIELDS
from tests.upstream.made_configs import EXAMPLES, Made, made

pytestmark = pytest.mark.upstream

COUNT = 500
SECOND = [
    "v2-aml.yml",
    "v2-custom-tuner.yml",
    "v2-dlc-resource.yml",
    "v2-frameworkcontroller.yml",
    "v2-kubeflow-tf.yml",
    "v2-local-inline.yml",
    "v2-local.yml",
    "v2-openpai.yml",
    "v2-remote.yml",
    "v2-sharedstorage-azureblob.yml",
    "v2-sharedstorage-nfs.yml",
]
FIRST = [
    "seed-kubeflow-azure.yml",
    "seed-kubeflow-pytorch.yml",
    "seed-kubeflow-tf.yml",
    "v1-aml.yml",
    "v1-dlts.yml",
    "v1-frameworkcontroller.yml",
    "v1-frameworkcontroller-template.yml",
    "v1-hybrid.yml",
    "v1-kubeflow-azure.yml",
    "v1-pai.yml",
    "v1-pai-password-jobfile.yml",
    "v1-remote.yml",
]

#: Pattern of our refusals that NNI lacks → why.
STRICTER = {
    r"cannot find (tuner|assessor)|must name a module": "NNI finds out when the dispatcher starts",
    r"is not in this version yet": "an algorithm of NNI's that we do not have",
    r"must be a whole number|must be text, not (true|a whole)": "booleans are numbers, and numbers paths, to Python",
    r"must not be empty": "an empty name is none",
    r"must be (above|at least) -?\d": "NNI finds out from the platform",
    r"must be an absolute path in the container": "NNI enters a relative one wherever the container starts",
    r"must be an amount of memory": "NNI's manager finds out, when the experiment runs",
    r"^sharedStorage": "NNI's manager finds out, when the experiment runs",
    r"jobType: must be|must be one of (nfs|NFS)": "NNI's manager finds out, when the experiment runs",
    r"must match \^": "NNI's second loader leaves it to Azure; its first schema looks at a part of the name",
    r"must consist of lower case letters, digits and hyphens": "NNI finds out from the cluster",
    r"like another role": "NNI's manager finds out, when a trial is submitted",
    r"is the name in NNI's other|placeholder": "NNI takes it as a name",
    r"^trainingService\.storage\.\w+: is required": "NNI's manager finds out, when the experiment runs",
    r"apiVersion: must be 'v1alpha2'": "NNI's manager finds out, when the experiment runs",
    r"is an empty list|list at least one platform": "NNI's manager finds out, when the experiment runs",
    r"^paiConfig: is required": "optional in the schema; nothing can be submitted without it",
    r"is required and not set; add it, or add a job config": "optional in hybrid's schema; PAI takes no job without it",
    r"useActiveGpu: must be true or false": "the first schema lets it out; the second loader refuses it, as we do",
    r"must be an address such as": "NNI finds out from the platform",
    r"names 1 GPU, and a trial needs": "no trial of it could ever begin",
    r"has a meaning only when trial": "the first schema lets it out; the second loader refuses it, as we do",
}
#: Pattern of NNI's refusals that we lack → why.
LAXER = {
    r"(virtual_cluster|service_account_name|workspace_id|code_directory) is not set": "optional in NNI's own pages",
    r"gpu_number is not set": "0, as with Kubeflow",
    r"\(None\) is not|^AssertionError: $": "null is what is not set",
    r"authorName|description": "nothing comes of it",
    r"Missing key: '(useAnnotation|experimentName)'": "NNI's own published examples have none",
    r"should be in range of \(\d,99999\)": "larger numbers are fine in the second format",
    r"maxExecDuration|maxTrialDuration": "the second format's durations are taken in the first, too",
    r"remoteConfig' error: Missing key: 'reuse'": "it has a default",
    r"Wrong key|Missing keys?: '(passwd|sshKeyPath)'": "a password and a key may both be there; the key has a default",
    r"cpuNum": "it has a default",
    r"either provide password or a valid SSH key|sshKeyPath path not exist": "ssh's own keys and the agent will do",
    r"Key '(kubeflow|frameworkcontroller)Config' error:\n?Or\(": "storage may be left out: results come another way",
    r"got multiple|unexpected keyword": "another spelling of the same field",
}


class Judge:
    """The environment of the real nni, with what it needs imported."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def judged(self, question: str, configs: list[Any]) -> list[dict[str, Any]]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([[question, config] for config in configs]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "it has ended, and said why on its standard error"
        answers: list[dict[str, Any]] = json.loads(line)
        return answers


@pytest.fixture(scope="module")
def judge(nni3: Path) -> Iterator[Judge]:
    """One for all tests, because importing `nni` takes two seconds."""
    command = [str(nni3), str(Path(__file__).parent / "config_judge.py")]
    with subprocess.Popen(command, cwd=EXAMPLES, stdin=PIPE, stdout=PIPE, text=True) as process:
        yield Judge(process)
    assert process.returncode == 0


def our_refusal(config: object) -> list[str]:
    try:
        load(json.dumps(config), directory=EXAMPLES)
    except ConfigInvalid as error:
        return [f"{problem.field}: {problem.message}" for problem in error.problems]
    return []


def unexplained(one: Made, ours: list[str], theirs: str) -> str:
    """The difference of two verdicts; empty: equal, or listed."""
    if bool(ours) == bool(theirs):
        return ""
    listed, words = (STRICTER, " | ".join(ours)) if ours else (LAXER, theirs)
    said = ours or [theirs]
    return (
        "" if any(re.search(rule, text) for rule in listed for text in said) else f"{one.base} {one.changes}: {words}"
    )


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("question", "names"), [("load", SECOND), ("schema", FIRST)], ids=["second", "first"])
def test_generated_configs_get_nnis_verdict_except_listed(judge: Judge, question: str, names: list[str]) -> None:
    configs = list(made(names, COUNT, seed=12))
    answers = judge.judged(question, [one.config for one in configs])
    refusals = [our_refusal(one.config) for one in configs]
    theirs = [answer.get("error", "") for answer in answers]
    strange = [unexplained(one, ours, their) for one, ours, their in zip(configs, refusals, theirs, strict=True)]
    assert "\n".join(filter(None, strange)) == ""
    agreed = [(not ours, not their) for ours, their in zip(refusals, theirs, strict=True)]
    assert agreed.count((True, True)) > 100 and agreed.count((False, False)) > 150, "both verdicts are put to the test"


def test_fields_printed_for_nni_exist_in_nni(judge: Judge) -> None:
    (found,) = judge.judged("fields", ["ExperimentConfig"])
    assert set(found["value"]) == NNI_FIELDS


#: Field of NNI's converted config → why our value differs or is missing.
CONVERTED_OTHERWISE = {
    "trialCommand": "NNI copies the first role's command to the top; ours stays where it is written",
    "trainingService.worker.codeDirectory": "it is trial.codeDir's again, and nothing comes of it",
    "trainingService.ps.codeDirectory": "it is trial.codeDir's again, and nothing comes of it",
    "trainingService.master.codeDirectory": "it is trial.codeDir's again, and nothing comes of it",
    "trainingService.machineList[1].passphrase": "NNI's own loader refuses it; ours is sshPassphrase",
}
#: Fields that NNI's converter loses.
LOST_BY_NNI = {
    "maxTrialDuration",
    "versionCheck",
    "trainingService.useActiveGpu",
    "logCollection",
    "trainingService.password",
    "trainingService.namespace",
    "trainingService.reuseMode",
    "trainingService.configPath",
    "trainingService.host",
    "trainingService.machineList[1].sshPassphrase",
    "trainingService.worker.privateRegistryAuthPath",
    "trainingService.storage.uploadRetryCount",
    "trainingService.storage.storageType",
    "trainingService.storage.path",
}
CONVERTIBLE = sorted(
    path.name
    for path in EXAMPLES.glob("*.yml")
    if "trainingServicePlatform" in path.read_text() and path.stem not in ("v1-adl", "v1-dlts", "v1-hybrid")
)


def flat(node: Any, name: str = "") -> dict[str, Any]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    if not items or name.endswith("classArgs"):
        return {name: node}
    inner = {(f"{name}[{key}]" if isinstance(key, int) else f"{name}.{key}".lstrip(".")): one for key, one in items}
    return {key: value for place, one in inner.items() for key, value in flat(one, place).items()}


def test_conversion_equals_nnis_except_lost_values(judge: Judge) -> None:
    files = [yaml.safe_load((EXAMPLES / name).read_text()) for name in CONVERTIBLE]
    for name, answer in zip(CONVERTIBLE, judge.judged("convert", files), strict=True):
        assert "value" in answer, (name, answer)
        theirs, ours = flat(answer["value"]), flat(convert_file(EXAMPLES / name, everything=True)[0])
        differing = {place for place in theirs if ours.get(place) != theirs[place]}
        assert differing <= CONVERTED_OTHERWISE.keys(), name
        assert ours.keys() - theirs.keys() <= LOST_BY_NNI, name


#: Example → why NNI 3.0 cannot run its conversion.
NOT_NNIS = {
    "v1-adl.yml": "NNI 3.0 has no adl",
    "v1-dlts.yml": "NNI 3.0 has no dlts",
    "v1-hybrid.yml": "NNI 3.0 loads a list of platforms, and its check of one breaks",
    "v1-frameworkcontroller-template.yml": "NNI 3.0 does not read templates",
    "v1-pai-password-jobfile.yml": "NNI 3.0 takes tokens alone",
}
#: Top-level fields without effect, or unknown to NNI 3.0.
MORE: dict[str, Any] = {
    "multiPhase": False,
    "multiThread": True,
    "versionCheck": False,
    "logCollection": "http",
    "gracePeriod": "5s",
    "metricGrace": "5s",
    "maxTrialRetries": 2,
    "tunerPython": "python3",
    "description": "d",
}
#: Example → removed fields: optional in the first format, but required by NNI 3.0's loader.
LESS = {
    "v1-pai.yml": ("trial", "virtualCluster"),
    "v1-frameworkcontroller.yml": ("frameworkcontrollerConfig", "serviceAccountName"),
}


def test_nni_loads_printed_configs(judge: Judge, tmp_path: Path) -> None:
    names = sorted(path.name for path in EXAMPLES.glob("*.yml") if "trainingServicePlatform" in path.read_text())
    printed = []
    for name in names:
        values = yaml.safe_load((EXAMPLES / name).read_text()) | MORE
        if name in LESS:
            section, field = LESS[name]
            values[section].pop(field, None)
        (tmp_path / name).write_text(yaml.safe_dump(values))
        printed.append(convert_file(tmp_path / name)[0])
    answers = zip(names, judge.judged("load", printed), strict=True)
    assert {name: answer["error"] for name, answer in answers if "error" in answer}.keys() == NOT_NNIS.keys()
