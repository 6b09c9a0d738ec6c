"""`nnictl experiment export`: our file contains everything that upstream's contains, and more.

Upstream's command runs with an endpoint of ours.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.command_line import CommandLine, command_line
from tests.upstream.warm_python import WarmPython

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(240), pytest.mark.group("warm_nni3")]  # one is enough

TRIAL = """
echo '{"type": "intermediate", "value": 0.25}' >> "$NNI_OUTBOX"
echo '{"type": "intermediate", "value": {"default": 1, "loss": 2}}' >> "$NNI_OUTBOX"
echo '{"type": "final", "value": VALUE}' >> "$NNI_OUTBOX"
"""


@pytest.fixture
def line(tmp_path: Path) -> Iterator[CommandLine]:
    with command_line(tmp_path) as line:
        (line.folder / "home").mkdir(exist_ok=True)
        yield line


@pytest.mark.parametrize("value", ["0.5", '{"default": 0.5, "loss": 2}'])
def test_exports_match_those_of_nni(line: CommandLine, warm_nni3: WarmPython, value: str) -> None:
    daemon = line.serve("--port", "0")
    line.good("create", "--config", line.config(trialCommand=TRIAL.replace("VALUE", value)), "--port", "0")
    (experiment,) = json.loads(line.good("experiment", "list", "--json"))
    daemon.wait(experiment["id"], "DONE")
    for kind, extra in (("json", []), ("json", ["-i"]), ("csv", []), ("csv", ["-i"])):
        theirs, ours = (line.folder / f"{side}.{kind}" for side in ("theirs", "ours"))
        words = ["experiment", "export", experiment["id"], "--type", kind, *extra, "--filename"]
        done = warm_nni3.run("nnictl", *words, theirs, cwd=line.folder, environment=_theirs(line))
        assert theirs.exists(), done.stdout + done.stderr
        line.good(*words, ours)
        assert _of_nni(ours, theirs) == _read(theirs)


def _theirs(line: CommandLine) -> dict[str, str]:
    """Without proxy variables: that client uses a proxy for localhost, too."""
    kept = {name: value for name, value in line.environment.items() if not name.lower().endswith("_proxy")}
    kept.pop("PYTHONPATH", None)
    return kept


def _of_nni(ours: Path, theirs: Path) -> object:
    """The part of our file that upstream writes: succeeded trials, without our fields."""
    fields = {name for row in _read(theirs) for name in row}
    rows = [row for row in _read(ours) if row.get("status") == "SUCCEEDED"]
    return [{name: value for name, value in row.items() if name in fields} for row in rows]


def _plain(value: object) -> object:
    """Parse upstream's results: it writes JSON texts and lists of these, where we write JSON."""
    if isinstance(value, str):
        with suppress(ValueError):
            return _plain(json.loads(value))
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _read(file: Path) -> list[dict[str, Any]]:
    """Rows without column order, because the columns of NNI's CSV are unordered."""
    text = file.read_text()
    rows = json.loads(text) if file.suffix == ".json" else list(csv.DictReader(text.splitlines()))
    plain = [{name: _plain(value) for name, value in row.items()} for row in rows]
    return plain if file.suffix == ".json" else sorted(plain, key=lambda row: str(row["trialJobId"]))
