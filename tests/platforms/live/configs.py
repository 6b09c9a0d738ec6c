"""The digits example, moved to another training service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_EXAMPLES = Path(__file__).parents[3] / "configs"
#: Of each kind of job a section: its platform, and what differs from the platform's example.
_COMMAND = "python3 trial.py"
#: Images that are there are good, and little is asked of the cluster's nodes.
_POD = {"imagePullPolicy": "IfNotPresent", "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}}
Section = dict[str, Any]


def sections(platform: str, image: str) -> list[Section]:
    """One for each kind of job of a Kubernetes platform, all by its example."""
    section: Section = _example(platform)["trainingService"]
    _set_image(section, image)
    section |= {"podTemplate": {"spec": {"containers": [_POD]}}}
    if platform != "kubeflow":
        return [section]
    role = section.pop("worker")
    return [
        {**section, "operator": "tf-operator", "worker": role},
        {**section, "operator": "pytorch-operator", "master": role},
    ]


def digits(section: Section) -> dict[str, Any]:
    """The example of README on this service."""
    code = str(_EXAMPLES / "digits")
    paths = {"searchSpaceFile": f"{code}/search_space.yml", "trialCodeDirectory": code, "trialCommand": _COMMAND}
    return {**_example("tpe"), **paths, "trainingService": _commanded(section)}


def given(file: Path, platform: str) -> Section:
    """The section of a user's config. Raises LookupError."""
    told = yaml.safe_load(file.read_text())["trainingService"]
    found = [one for one in (told if isinstance(told, list) else [told]) if one.get("platform") == platform]
    if not found:
        raise LookupError(f"{file} has no training service {platform}")
    section: Section = found[0]
    return section


def _example(name: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((_EXAMPLES / f"digits-{name}.yml").read_text())
    return config


def _set_image(part: Any, image: str) -> None:
    if isinstance(part, dict):
        if "dockerImage" in part:
            part["dockerImage"] = image
        for value in part.values():
            _set_image(value, image)
    elif isinstance(part, list):
        for value in part:
            _set_image(value, image)


def _commanded(part: Any) -> Any:
    """The same with the example's command in every role that has one."""
    if isinstance(part, dict):
        return {name: _COMMAND if name == "command" else _commanded(value) for name, value in part.items()}
    return [_commanded(value) for value in part] if isinstance(part, list) else part
