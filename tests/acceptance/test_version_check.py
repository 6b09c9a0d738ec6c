"""Trial runner and manager must have the same first two version numbers; a mismatch is reported everywhere."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from nni_manager.domain.trial import reason_in_words
from nni_manager.platforms.scripted.launch import ARCHIVE
from tests.acceptance import other_versions, user_views
from tests.acceptance.cluster import Cluster, say
from tests.acceptance.command_line import REPORT
from tests.acceptance.conftest import TRIALS
from tests.live_daemon import Daemon, running_daemon
from tests.thorough import besides
from trial_runner import protocol

pytestmark = [pytest.mark.acceptance, pytest.mark.group("version_check")]

NO_VERSION = "the trial runner names no version, this manager is {manager}: use the runner that comes with it"
MISMATCH = (
    "the trial runner is version {runner}, this manager is {manager}: their first two numbers must be equal;"
    " use the runner that comes with this manager, or set versionCheck: false"
)
#: Versions of managers that differ as numbers but share leading digits.
LATER = ("2.10.0", "2.1.0")
#: Command that leaves a sign that it ran.
SIGN = """echo ran > "$NNI_OUTPUT_DIR/../ran" """


def sentence(runner: str | None, manager: str) -> str:
    return (MISMATCH if runner else NO_VERSION).format(runner=runner, manager=manager)


@contextmanager
def managing(folder: Path, version: str) -> Iterator[Daemon]:
    program = other_versions.manager(version)
    with running_daemon(folder, "--host", "127.0.0.1", "--port", "0", program=program) as daemon:
        assert daemon.call("GET", "/daemon")["version"] == version
        yield daemon
        assert "Traceback" not in daemon.log()


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with managing(tmp_path_factory.mktemp("own"), "0.6.0") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def later_ones(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Daemon]]:
    """Both daemons run for the whole module: in random order, one at a time would restart often."""
    with ExitStack() as stack:
        yield {version: stack.enter_context(managing(tmp_path_factory.mktemp("later"), version)) for version in LATER}


@pytest.fixture(params=LATER)
def later(request: pytest.FixtureRequest, later_ones: dict[str, Daemon]) -> Daemon:
    return later_ones[request.param]


def check_refusal(daemon: Daemon, id_: str, words: str) -> None:
    """Check that the only trial failed, that the experiment is in ERROR, and that page and log contain this message."""
    state = daemon.wait(id_, "ERROR")
    assert (state["errors"], state["hold"], state["counts"]) == ([words], None, {"FAILED": 1})
    (trial,) = daemon.trials(id_)
    assert (trial["status"], trial["reason"], trial["message"]) == ("FAILED", "VERSION_MISMATCH", words)
    page = user_views.page(daemon, f"/experiments/{id_}")
    assert f'<div class="notice act error"><p><span class="sentence">{words}</span>' in page
    assert user_views.trials_on(daemon, id_)[trial["id"]] == ("FAILED", reason_in_words("VERSION_MISMATCH", words))
    assert words in user_views.page(daemon, "/")
    log = (daemon.data / id_ / "log" / "nnimanager.log").read_text()
    assert f"Change experiment status to ERROR: {words}" in log


def check_acceptance(cluster: Cluster, version: str) -> None:
    """Check that the runner's version is shown, and that its trial runs to its end."""
    daemon, runner = cluster.daemon, cluster.environments[0]
    attempt = cluster.attempt(0)
    assert (attempt["runnerVersion"], attempt["channel"]) == (version, "push")
    assert f"push, runner {version}<" in user_views.page(daemon, f"/experiments/{cluster.id}/trials/0")
    assert say(runner, "status", event="exited", exitCode=0, outboxes={})[0] == 200
    daemon.wait_for(cluster.id, lambda state: state["counts"].get("SUCCEEDED") == 1)
    assert daemon.status(cluster.id)["errors"] == []
    close(daemon, cluster.id)


def close(daemon: Daemon, id_: str) -> None:
    """Stop the experiment, to free processors for other tests."""
    daemon.call("POST", f"/experiments/{id_}/stop")


@pytest.fixture
def trials(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TRIALS, tmp_path / "code", ignore=shutil.ignore_patterns("__pycache__")))


# As runners post


@pytest.mark.parametrize("version", ["0.5.1", "0.60.0", None, *besides("0.7.0", "1.6.0", "latest", "")])
def test_runner_of_another_version_is_refused(own: Daemon, trials: Path, version: str | None) -> None:
    cluster = Cluster(own, trials, 1)
    status, answer = say(cluster.environments[0], "version", version=version, channel="push")
    assert (status, answer) == (409, {"error": sentence(version, "0.6.0")})
    check_refusal(own, cluster.id, sentence(version, "0.6.0"))
    close(own, cluster.id)


@pytest.mark.parametrize("version", ["0.5.1", None])
def test_refusal_is_shown_by_experiment_commands(own: Daemon, trials: Path, version: str | None) -> None:
    cluster = Cluster(own, trials, 1)
    assert say(cluster.environments[0], "version", version=version, channel="push")[0] == 409
    own.wait(cluster.id, "ERROR")
    for command in (
        ["experiment", "show", cluster.id],
        ["experiment", "status", cluster.id],
        ["trial", "ls", cluster.id],
    ):
        assert sentence(version, "0.6.0") in user_views.nnictl(own, *command)
    assert sentence(version, "0.6.0")[:90] in user_views.nnictl(own, "experiment", "list"), "cut to one line"
    close(own, cluster.id)


@pytest.mark.parametrize("route", ["status", "metrics", "heartbeat"])
def test_runner_that_does_not_register_is_refused(own: Daemon, trials: Path, route: str) -> None:
    body = {"event": "started", "outbox": "outbox/main.jsonl", "start": 0, "end": 2, "lines": ["1"]}
    cluster = Cluster(own, trials, 1)
    status, answer = say(cluster.environments[0], route, **body)
    assert (status, answer) == (409, {"error": sentence(None, "0.6.0")})
    check_refusal(own, cluster.id, sentence(None, "0.6.0"))
    assert own.results(cluster.id) == []
    close(own, cluster.id)


@pytest.mark.parametrize("version", ["0.6.0", "0.6.2", "0.6", "v0.6.11"])
def test_runner_of_a_fitting_version_is_accepted(own: Daemon, trials: Path, version: str) -> None:
    cluster = Cluster(own, trials, 1)
    status, answer = say(cluster.environments[0], "version", version=version, channel="push")
    assert (status, answer["managerVersion"]) == (200, "0.6.0")
    check_acceptance(cluster, version)


@pytest.mark.parametrize("off", [{"versionCheck": False}, {"debug": True}])
@pytest.mark.parametrize(("version", "known_as"), [("0.5.1", "0.5.1"), (None, "unknown")])
def test_disabled_check_accepts_every_version(
    own: Daemon, trials: Path, off: dict[str, Any], version: str | None, known_as: str
) -> None:
    cluster = Cluster(own, trials, 1, **off)
    assert say(cluster.environments[0], "version", version=version, channel="push")[0] == 200
    check_acceptance(cluster, known_as)


@pytest.mark.parametrize(("version", "fitting"), [("2.10.7", "2.10.0"), ("2.1.7", "2.1.0"), ("2.11.0", "")])
def test_version_numbers_are_compared_as_numbers(later: Daemon, trials: Path, version: str, fitting: str) -> None:
    manager = later.call("GET", "/daemon")["version"]
    cluster = Cluster(later, trials, 1)
    status, answer = say(cluster.environments[0], "version", version=version, channel="push")
    if manager == fitting:
        assert (status, answer["managerVersion"]) == (200, manager)
        return check_acceptance(cluster, version)
    assert (status, answer) == (409, {"error": sentence(version, manager)})
    check_refusal(later, cluster.id, sentence(version, manager))
    return close(later, cluster.id)


def test_refused_runner_ends_no_other_trial(own: Daemon, trials: Path) -> None:
    """No trials start until a resume; running ones continue and count."""
    cluster = Cluster(own, trials, 2)
    fitting, other = cluster.environments
    assert say(fitting, "version", version="0.6.2", channel="push")[0] == 200
    assert say(other, "version", version="0.5.1", channel="push")[0] == 409
    state = own.wait(cluster.id, "ERROR")
    assert (state["trialsMade"], state["counts"]) == (2, {"FAILED": 1, "WAITING": 1})
    assert say(fitting, "status", event="exited", exitCode=0, outboxes={})[0] == 200
    own.wait_for(cluster.id, lambda state: state["counts"] == {"FAILED": 1, "SUCCEEDED": 1})
    own.call("POST", f"/experiments/{cluster.id}/resume")
    state = own.wait_for(cluster.id, lambda state: state["trialsMade"] == 3)
    assert (state["status"], state["errors"]) == ("NO_MORE_TRIAL", [])
    close(own, cluster.id)


# Real runners


def test_refused_runner_reports_the_refusal(own: Daemon, trials: Path, tmp_path: Path) -> None:
    cluster, done = _run_runner(own, trials, tmp_path, "0.5.1")
    words = sentence("0.5.1", "0.6.0")
    assert (done.returncode, done.stdout) == (protocol.EXIT_VERSION_REFUSED, "")
    assert done.stderr == f"trial_runner: {words}\n"
    assert not (tmp_path / "ran").exists(), "its command must not run"
    check_refusal(own, cluster.id, words)
    close(own, cluster.id)


def test_fitting_runner_runs_its_command(own: Daemon, trials: Path, tmp_path: Path) -> None:
    cluster, done = _run_runner(own, trials, tmp_path, "0.6.9")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "ran").exists()
    state = own.wait_for(cluster.id, lambda state: state["counts"].get("SUCCEEDED") == 1)
    assert state["errors"] == []
    close(own, cluster.id)


def _run_runner(
    daemon: Daemon, trials: Path, folder: Path, version: str
) -> tuple[Cluster, subprocess.CompletedProcess[str]]:
    """Run a runner to its end, in place of a container."""
    cluster = Cluster(daemon, trials, 1, trialCommand=SIGN)
    cluster.start(0)
    variables = {**cluster.environments[0], "NNI_SYS_DIR": str(folder / "nni")}
    archive = daemon.data / cluster.id / "scripted" / ARCHIVE
    return cluster, other_versions.run_runner(version, archive, variables)


@pytest.mark.parametrize("version", ["2.10.3", "2.1.3"])
def test_real_runner_checks_a_real_managers_version(later: Daemon, trials: Path, tmp_path: Path, version: str) -> None:
    """The platform starts a runner of this version; registration returns the manager's version."""
    manager = later.call("GET", "/daemon")["version"]
    config = {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": REPORT,
        "trialCodeDirectory": ".",
        "trialConcurrency": 1,
        "maxTrialNumber": 1,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "scripted", "launch": "process", "nniManagerIp": "127.0.0.1"},
    }
    path = other_versions.path_to_runner(version, tmp_path / "bin")
    id_ = later.create(config, trials, {"PATH": path})
    if version.rpartition(".")[0] != manager.rpartition(".")[0]:
        check_refusal(later, id_, sentence(version, manager))
        return
    assert later.wait(id_, "DONE")["counts"] == {"SUCCEEDED": 1}
    (trial,) = later.trials(id_)
    assert trial["finalValue"] == 7
    assert f"push, runner {version}<" in user_views.page(later, f"/experiments/{id_}/trials/0")
