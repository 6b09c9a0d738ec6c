"""Advisors on the real `nni` 3.0 in the tuner host, and NNI's own classes there."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nni_manager.platform_kit.payload import TUNER_HOST, with_stand_in
from nni_manager.tuners.registry import CATALOGUE
from tests.scheduler.tuner_requests import Message, item, start
from tests.trial_runner.advisors import RACING
from trial_runner.protocol import Decoder, encode

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(180)]


class Host:
    def __init__(self, python: Path, folder: Path) -> None:
        environment = with_stand_in({name: os.environ[name] for name in ("HOME", "PATH")})
        environment |= {"NNI_CHECKPOINT_DIRECTORY": str(folder), "NNI_LOG_DIRECTORY": str(folder)}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([str(python), TUNER_HOST], stdin=pipe, stdout=pipe, env=environment, cwd=folder)

    def result(self, **request: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(encode({"id": 1, **request}))
        self.process.stdin.flush()
        decoder = Decoder()
        while True:
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, "it ended"
            for answer in decoder.feed(data):
                assert "error" not in answer, answer["error"]["details"]
                return answer["result"]


@pytest.fixture
def host(nni3: Path, tmp_path: Path) -> Iterator[Host]:
    host = Host(nni3, tmp_path)
    yield host
    assert host.process.stdin and host.process.stdout
    host.process.stdin.close()
    host.process.wait(20)
    host.process.stdout.close()


def test_advisor_runs_without_nnis_socket(host: Host, tmp_path: Path) -> None:
    (tmp_path / "racing.py").write_text(RACING)
    advisor = {"class_name": "racing.Racing", "code_directory": str(tmp_path), "class_args": {"most": 1}}
    assert host.result(verb="find", classes={"tuner": advisor}) == {"refusals": {}, "directions": {}}
    assert host.result(**start(tuner=advisor))["watches"]
    first = host.result(verb="propose", ids=[0, 1])["proposals"]
    assert first == [{"parameter_id": 0, "parameters": {"x": 1, "calls": [["space", ["x"]]]}}]
    trial = {"trial_id": "t0", "parameter_id": 0, "values": [-1], "from": 0}
    assert host.result(verb="judge", trials=[trial]) == {"stop": ["t0"]}
    host.result(verb="learn", results=[item(0, 2.5, intermediates=[-1], status="EARLY_STOPPED")])
    told = [["t0", "p_1", 0, -1], ["t0", "p_1", "final", 2.5], ["t0", "EARLY_STOPPED", "p_1"]]
    second = host.result(verb="propose", ids=[2])["proposals"]
    assert second == [{"parameter_id": 2, "parameters": {"x": 2, "calls": told}}]


@pytest.mark.parametrize("name", ["PBT", "Metis"])
def test_nnis_advisor_class_proposes(host: Host, name: str, tmp_path: Path) -> None:
    found = CATALOGUE.of_nni_called(name)
    assert found is not None
    arguments: Message = {"optimize_mode": "maximize"}
    if name == "PBT":
        arguments["all_checkpoint_dir"] = str(tmp_path / "checkpoints")
    tuner = {"class_name": found.class_name, "code_directory": "", "class_args": arguments}
    space = {"x": {"_type": "uniform", "_value": [0, 1]}, "y": {"_type": "choice", "_value": [1, 2]}}
    assert host.result(verb="find", classes={"tuner": tuner}) == {"refusals": {}, "directions": {"tuner": "maximize"}}
    host.result(**start(tuner=tuner, search_space=space))
    (made,) = host.result(verb="propose", ids=[0])["proposals"]
    assert 0 <= made["parameters"]["x"] <= 1 and made["parameters"]["y"] in (1, 2)
    host.result(verb="learn", results=[item(0, 0.5, made["parameters"])])
