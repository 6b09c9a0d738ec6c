"""Secrets: what a config holds, where their values are, and that nothing shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from nni_manager.config import credentials
from nni_manager.config.experiment_file import ParsedConfig, from_canonical, read
from nni_manager.config.secrets import mask
from nni_manager.domain.errors import ConfigInvalid, InvalidInput

pytestmark = pytest.mark.unit

BASE: dict[str, Any] = {
    "searchSpace": {},
    "trialCommand": "echo ${TOKEN}",
    "trialConcurrency": 1,
    "tuner": {"name": "Random"},
}
MACHINES = [{"host": "h1", "user": "u", "password": "hunter2"}, {"host": "h2", "user": "u", "password": "${PASS}"}]
SHARED = {
    "storageType": "AzureBlob",
    "localMountPoint": "/mnt/x",
    "remoteMountPoint": "/mnt/x",
    "localMounted": "nnimount",
    "storageAccountName": "a",
    "storageAccountKey": "${KEY}",
    "containerName": "c",
}


def reading(tmp_path: Path, section: object, environment: dict[str, str] | None = None, **others: Any) -> ParsedConfig:
    """`others`: of the config, and `secrets`, which are sent along."""
    sent = others.pop("secrets", None)
    text = yaml.safe_dump({**BASE, "trainingService": section, **others}, sort_keys=False)
    return read(text, directory=tmp_path, file="bee.yml", environment=environment or {}, secrets=sent)


def scripted(token: object) -> dict[str, object]:
    return {"platform": "scripted", "token": token}


def test_literal_secret_is_kept_apart(tmp_path: Path) -> None:
    found = reading(
        tmp_path,
        [{"platform": "remote", "machineList": MACHINES}, scripted("t0"), scripted("t1")],
        {"PASS": "pw", "KEY": "k"},
        sharedStorage=SHARED,
    )
    assert found.secrets == {
        "stored:remote.machineList[0].password": "hunter2",
        "${PASS}": "pw",
        "${KEY}": "k",
        "stored:scripted.token": "t0",
        "stored:scripted-2.token": "t1",
    }
    assert not {"hunter2", "t0"} & set(str(found.spec.canonical).replace("'", " ").split())
    assert "hunter2" not in repr(found)
    assert [p.service for p in found.spec.platforms] == ["remote", "scripted", "scripted-2"]
    assert credentials.outside(found.spec) == ("${PASS}", "${KEY}")
    filled = credentials.filled(found.spec.platforms[0], found.secrets)
    assert [machine["password"] for machine in filled["machineList"]] == ["hunter2", "pw"]
    assert filled["trialCommand"] == "echo ${TOKEN}", "a command is never touched"
    assert from_canonical(found.spec.canonical) == found.spec


def test_a_file_is_read_and_named_by_its_whole_path(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0ken\n")
    found = reading(tmp_path, scripted("file:token"))
    assert found.secrets == {f"file:{(tmp_path / 'token').resolve()}": "t0ken"}


def test_sent_secret_needs_no_variable_and_no_file(tmp_path: Path) -> None:
    for reference in ("${TOKEN}", "file:/of/another/machine", "stored:scripted.token"):
        found = reading(tmp_path, scripted(reference), secrets={reference: "t0"})
        assert found.secrets == {reference: "t0"}
        assert found.spec.platforms[0].settings["token"] == reference


REFUSED = [
    ("${TOKEN}", "refers to the variable TOKEN, which is not set; export TOKEN"),
    ("${EMPTY}", "refers to the variable EMPTY, which is not set"),
    ("file:missing", "cannot find file"),
    ("file:empty", "which does not contain a usable secret"),
    ("******", "is masked"),
    ("${your token}", "the placeholder ${your token}"),
    ("${your_token}", "the placeholder ${your_token}"),
    ("{your_token}", "the placeholder {your_token}"),
    ("<your token>", "the placeholder <your token>"),
    ("stored:scripted.token", "is not in the request"),
    (5, "must be text"),
    ("", "must not be empty"),
]


@pytest.mark.parametrize(("token", "words"), REFUSED, ids=range(len(REFUSED)))
def test_unresolvable_reference_is_named(tmp_path: Path, token: object, words: str) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigInvalid) as refused:
        reading(tmp_path, scripted(token), {"EMPTY": ""})
    [problem] = refused.value.problems
    assert (problem.field, problem.line) == ("trainingService.token", 8)
    assert words in problem.message


@pytest.mark.parametrize("password", ["p{a}ss", "a<b>c", "${A}${B}", "$HOME", "{", "pass word"])
def test_a_password_may_hold_anything(tmp_path: Path, password: str) -> None:
    assert list(reading(tmp_path, scripted(password)).secrets.values()) == [password]


def test_without_an_environment_references_are_not_followed(tmp_path: Path) -> None:
    text = yaml.safe_dump({**BASE, "trainingService": scripted("${TOKEN}")})
    found = read(text, directory=tmp_path)
    assert (found.secrets, found.spec.platforms[0].settings["token"]) == ({}, "${TOKEN}")


def test_references_are_shown_and_values_are_not() -> None:
    config = {
        "trainingService": [
            {"token": "${TOKEN}", "password": "file:/run/secret"},
            {"token": "stored:scripted.token", "accessKeySecret": "written-out", "keyVaultKey": "name-of-a-key"},
        ]
    }
    assert mask(config) == {
        "trainingService": [
            {"token": "${TOKEN}", "password": "file:/run/secret"},
            {"token": "******", "accessKeySecret": "******", "keyVaultKey": "name-of-a-key"},
        ]
    }


def test_values_of_cluster_metadata_are_judged_by_their_keys() -> None:
    pairs = [
        {"key": "command", "value": "python3 trial.py"},
        {"key": "machine_list", "value": [{"ip": "a", "password": "written-out"}]},
        {"key": "storageToken", "value": "written-out"},
    ]
    assert mask({"clusterMetaData": pairs}) == {
        "clusterMetaData": [
            {"key": "command", "value": "python3 trial.py"},
            {"key": "machine_list", "value": [{"ip": "a", "password": "******"}]},
            {"key": "storageToken", "value": "******"},
        ]
    }


def test_variables_of_a_pod_template_are_judged_by_their_names() -> None:
    def template(value: str) -> dict[str, Any]:
        env = [{"name": "WANDB_API_KEY", "value": value}, {"name": "EPOCHS", "value": "3"}]
        containers = [{"name": "main", "env": env, "args": ["--api-key", value, "--epochs", "3"]}]
        return {"trainingService": {"podTemplate": {"spec": {"containers": containers}}}}

    assert mask(template("hunter22")) == template("******")


COMMANDS = [
    ("WANDB_API_KEY={} python3 trial.py", "hunter22"),
    ("WANDB_KEY={} python3 trial.py", "hunter22"),
    ("python3 trial.py --token {} --epochs 3", "ghp_aB3dE5gH7jK9mN1pQ3sT5vX7zA9cD1eF3hJ5"),
    ("python3 trial.py --api-key={}", "hunter22"),
    ("python3 trial.py --password '{}'", "hunter 22"),
    ("python3 trial.py --password \\\n    {}", "hunter22"),
    ('export HF_TOKEN="{}"; python3 trial.py', "hunter22"),
    ("git clone https://me:{}@example.org/code.git && sh run.sh", "hunter22"),
    ("python3 -c 'login(key=\"{}\")'", "0123456789abcdef0123456789abcdef01234567"),
]


@pytest.mark.parametrize(("command", "secret"), COMMANDS, ids=range(len(COMMANDS)))
def test_secrets_in_commands_are_masked(command: str, secret: str) -> None:
    def config(value: str) -> dict[str, Any]:
        written = command.format(value)
        return {"trialCommand": written, "trainingService": [{"taskRoles": [{"command": written}]}]}

    assert mask(config(secret)) == config("***")


@pytest.mark.parametrize(
    "command",
    [
        "python3 trial.py --tokenizer bert-base --max_tokens 5 --sort_key loss --token $TOKEN --password-file /run/p",
        'TOKEN="$TOKEN" python3 trial.py --token --epochs 3',
        "cd code && python3 -m train --lr 0.1 key=loss",
        "git clone ssh://git@example.org/code.git",
    ],
)
def test_command_without_secrets_is_shown_whole(command: str) -> None:
    assert mask({"trialCommand": command}) == {"trialCommand": command}


def test_secrets_in_addresses_of_storage_are_masked() -> None:
    section = {
        "connectionString": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=c2VjcmV0c2VjcmV0;EndpointSuffix=x",
        "sasUrl": "https://a.blob.core.windows.net/c?sv=2022&sig=c2VjcmV0c2VjcmV0&se=2030",
    }
    assert mask({"trainingService": section}) == {
        "trainingService": {name: value.replace("c2VjcmV0c2VjcmV0", "***") for name, value in section.items()}
    }


def test_foreign_reference_is_refused(tmp_path: Path) -> None:
    spec = reading(tmp_path, scripted("${TOKEN}"), {"TOKEN": "t"}).spec
    credentials.require_known(spec, {"${TOKEN}": "t2"})
    with pytest.raises(InvalidInput, match=r"this experiment has no reference \$\{PATH\}; its references: \$\{TOKEN\}"):
        credentials.require_known(spec, {"${PATH}": "x"})
    with pytest.raises(InvalidInput, match="is empty"):
        credentials.require_known(spec, {"${TOKEN}": ""})
