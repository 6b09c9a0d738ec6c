"""What is needed to repeat an experiment, as `nnictl experiment show` has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def facts(record: Mapping[str, Any] | None) -> dict[str, str]:
    """Label → text; empty where nothing was recorded."""
    if record is None:
        return {}
    return {"code": _code(record["code"]), "python": _python(record["python"]), "made on": record["host"]}


def _code(code: Mapping[str, Any]) -> str:
    if code["problem"]:
        return f"{code['directory']} ({code['problem']})"
    changes = [f"{len(code['diff'].splitlines())} lines of diff"] if code["diff"] else []
    changes += [f"{len(code['untracked'])} files that git does not know"] if code["untracked"] else []
    branch = f" of {code['branch']}" if code["branch"] else ""
    return f"{code['directory']}, commit {code['commit'][:12]}{branch}, {' and '.join(changes) or 'nothing changed'}"


def _python(python: Mapping[str, Any]) -> str:
    if python["problem"]:
        return f"{python['executable']} ({python['problem']})"
    return f"{python['executable']}, {python['version']}, {len(python['packages'])} packages"
