"""Folders as NNI 2.x and 3.0 leave them become ours."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from nni_manager.domain.errors import Conflict, StoreCorrupt, StoreUnavailable
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.scheduler.experiments import experiment_folder
from nni_manager.store.connection import connect, connect_readonly
from nni_manager.store.experiment import answers, experiments, trials
from nni_manager.store.folder import Folder
from nni_manager.store.index import index, list_summary, reconcile
from nni_manager.store.nni import nni_answers, nni_folder

pytestmark = pytest.mark.unit

PARAMS = {
    "experimentName": "old",
    "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
    "trialConcurrency": 2,
    "trialCommand": "python trial.py",
    "trialCodeDirectory": "/code",
    "tuner": {"name": "Random"},
    "trainingService": {"platform": "local"},
}
EVENT_COLUMNS = {
    "3.0": "timestamp, trialJobId, event, data, logPath, sequenceId, message, environmentId",
    "2.10": "timestamp, trialJobId, event, data, logPath, sequenceId, message",
}


def record(parameter_id: int | None, **values: float) -> str:
    source = "customized" if parameter_id is None else "algorithm"
    return json.dumps({"parameter_id": parameter_id, "parameter_source": source, "parameters": values})


class Old:
    """A folder of NNI's, made event by event."""

    def __init__(self, path: Path, version: str = "3.0") -> None:
        self.folder = Folder(path / "oldexp")
        self.opened = ExitStack()
        (self.folder.path / "db").mkdir(parents=True)
        self._columns = EVENT_COLUMNS[version]
        with closing(self._open()) as connection, connection:
            connection.execute(f"CREATE TABLE TrialJobEvent ({self._columns})")
            connection.execute("CREATE TABLE MetricData (timestamp, trialJobId, parameterId, type, sequence, data)")
            connection.execute(
                "CREATE TABLE ExperimentProfile"
                " (params, id, execDuration, startTime, endTime, logDir, nextSequenceId, revision)"
            )

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.folder.path / "db" / "nni.sqlite")

    def save(self, revision: int, ended_ms: int | None = None, params: Mapping[str, Any] = PARAMS) -> None:
        row = (json.dumps(params), "oldexp", 12, 1000, ended_ms, "/somewhere/oldexp", 3, revision)
        self._insert("ExperimentProfile", row)

    def event(self, at: int, id_: str, event: str, data: str | None = None, sequence: int | None = None) -> None:
        row = (at, id_, event, data, "/somewhere", sequence, None, "local-env")
        self._insert("TrialJobEvent", row[: self._columns.count(",") + 1])

    def metric(self, at: int, id_: str, parameter_id: str | None, type_: str, sequence: int, value: str) -> None:
        self._insert("MetricData", (at, id_, parameter_id, type_, sequence, json.dumps(value)))

    def trial(self, id_: str, sequence: int, parameter_id: int, x: float, at: int, parameters_had: int) -> None:
        """One that ran and succeeded with `x` as its result; its metrics name `parameters_had`."""
        self.event(at, id_, "WAITING", record(parameter_id, x=x), sequence)
        self.event(at + 1, id_, "RUNNING", None, sequence)
        self.metric(at + 2, id_, str(parameters_had), "PERIODICAL", 0, "0.25")
        self.metric(at + 3, id_, str(parameters_had), "FINAL", 0, str(parameters_had))
        self.event(at + 4, id_, "SUCCEEDED", None, sequence)

    def take_over(self) -> sqlite3.Connection:
        nni_folder.take_over(self.folder, environment={"PATH": "/bin"}, interpreter="/bin/python")
        return self.opened.enter_context(closing(connect_readonly(self.folder.database)))

    def _insert(self, table: str, row: Sequence[object]) -> None:
        with closing(self._open()) as connection, connection:
            connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)


@pytest.fixture(params=["3.0", "2.10"])
def old(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Old]:
    made = Old(tmp_path, request.param)
    made.save(1)
    with made.opened:
        yield made


def rows(connection: sqlite3.Connection, query: str) -> list[tuple[Any, ...]]:
    with closing(connection):
        return connection.execute(query).fetchall()


def test_nni_database_is_recognised_by_its_tables(old: Old) -> None:
    assert nni_folder.is_made_by_nni(old.folder.database)
    old.take_over().close()
    assert not nni_folder.is_made_by_nni(old.folder.database)


def test_killed_nni_transaction_is_rolled_back(old: Old) -> None:
    """Its database and the journal, as they are while it writes."""
    old.trial("aB3dE", 0, 0, 0.5, at=2000, parameters_had=0)
    database = old.folder.database
    journal = database.with_name("nni.sqlite-journal")
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA cache_size = 1")
        for number in range(200):  # more than is held in memory, so that it goes to the file before the end
            connection.execute("INSERT INTO MetricData VALUES (1, ?, '0', 'FINAL', 0, ?)", (str(number), "x" * 2000))
        left = database.read_bytes(), journal.read_bytes()
    database.write_bytes(left[0])
    journal.write_bytes(left[1])
    assert index.read_folder(old.folder).id == "oldexp"
    database.write_bytes(left[0])
    journal.write_bytes(left[1])
    nni_folder.adopt(old.folder, environment={}, interpreter="/bin/python")
    with closing(connect_readonly(database)) as connection:
        assert rows(connection, "SELECT count(*) FROM metrics") == [(2,)] and not journal.exists()


def test_config_of_the_first_format_is_converted(old: Old) -> None:
    meta = [{"key": "codeDir", "value": "/code"}, {"key": "command", "value": "python trial.py"}]
    shared = {"experimentName": "old", "trialConcurrency": 2, "tuner": {"builtinTunerName": "Random"}}
    space = json.dumps(PARAMS["searchSpace"])
    old.save(2, params={**shared, "trainingServicePlatform": "local", "searchSpace": space, "clusterMetaData": meta})
    experiment_folder.adopt(old.folder)
    with closing(connect_readonly(old.folder.database)) as connection:
        config = json.loads(experiments.load(connection).config)
    assert {name: config[name] for name in PARAMS.keys() - {"trainingService"}} == {
        name: PARAMS[name] for name in PARAMS.keys() - {"trainingService"}
    }
    assert config["trainingService"]["platform"] == "local"


def test_config_that_cannot_be_converted_stays(old: Old) -> None:
    params = {"trainingServicePlatform": "nowhere", "experimentName": "old"}
    old.save(2, params=params)
    experiment_folder.adopt(old.folder)
    with closing(connect_readonly(old.folder.database)) as connection:
        assert json.loads(experiments.load(connection).config) == params


def test_an_experiment_with_its_trial(old: Old) -> None:
    old.trial("aB3dE", 0, 0, 0.5, at=2000, parameters_had=0)
    old.save(2, ended_ms=3000)
    connection = old.take_over()
    entry = index.read_folder(old.folder)
    assert (entry.id, entry.name, entry.platform, entry.status) == ("oldexp", "old", "local", ExperimentStatus.STOPPED)
    assert (entry.created_ms, entry.ended_ms, entry.is_open) == (1000, 3000, False)
    page = json.loads(answers.trials(connection, status=None, order="sequence", limit=9))
    (trial,) = page["trials"]
    assert (trial["id"], trial["status"], trial["sequenceId"]) == ("aB3dE", "SUCCEEDED", 0)
    assert (trial["createdMs"], trial["startedMs"], trial["endedMs"]) == (2000, 2001, 2004)
    assert rows(connection, "SELECT intermediates, last_value, final_data, final_value FROM trials") == [
        (1, 0.25, "0", 0.0)
    ]


def test_end_of_a_killed_nni_is_its_last_stored_time(old: Old) -> None:
    assert index.read_folder(old.folder).ended_ms == 1000
    old.trial("aB3dE", 0, 0, 0.5, at=2000, parameters_had=0)
    with old.folder.database.open("rb"):
        assert index.read_folder(old.folder).ended_ms is None  # it may be at work
    before = index.read_folder(old.folder)
    old.take_over().close()
    assert before.ended_ms == index.read_folder(old.folder).ended_ms == 2004


def test_nnis_tables_are_unchanged(old: Old) -> None:
    old.trial("aB3dE", 0, 0, 0.5, at=2000, parameters_had=0)
    connection = old.take_over()
    connection.row_factory = None
    metrics = connection.execute("SELECT * FROM MetricData").fetchall()
    assert metrics == [
        (2002, "aB3dE", "0", "PERIODICAL", 0, '"0.25"'),
        (2003, "aB3dE", "0", "FINAL", 0, '"0"'),
    ]
    events = connection.execute("SELECT timestamp, trialJobId, event, sequenceId FROM TrialJobEvent").fetchall()
    assert events == [
        (2000, "aB3dE", "WAITING", 0),
        (2001, "aB3dE", "RUNNING", 0),
        (2004, "aB3dE", "SUCCEEDED", 0),
    ]
    params = rows(connection, "SELECT params FROM ExperimentProfile WHERE id = 'oldexp' ORDER BY revision DESC")
    assert json.loads(params[0][0]) == PARAMS


def test_swapped_nni_parameters_are_corrected(old: Old) -> None:
    old.trial("aaaaa", 0, 0, 0.0, at=2000, parameters_had=1)
    old.trial("bbbbb", 1, 1, 1.0, at=2001, parameters_had=0)
    found = rows(
        old.take_over(), "SELECT id, parameter_id, json_extract(record, '$.parameters.x'), final_value FROM trials"
    )
    assert sorted(found) == [("aaaaa", 1, 1.0, 1.0), ("bbbbb", 0, 0.0, 0.0)]


def test_parameters_stay_with_contradictory_metrics(old: Old) -> None:
    """A trial that reports by hand may always say 0."""
    old.trial("aaaaa", 0, 0, 0.0, at=2000, parameters_had=0)
    old.trial("bbbbb", 1, 1, 1.0, at=2001, parameters_had=0)
    assert sorted(rows(old.take_over(), "SELECT id, parameter_id FROM trials")) == [("aaaaa", 0), ("bbbbb", 1)]


def test_repeated_nni_sequence_ids_are_renumbered(old: Old) -> None:
    for number, id_ in enumerate(("aaaaa", "bbbbb", "ccccc")):
        old.trial(id_, (0, 1, 1)[number], number, 0.5, at=2000 + 10 * number, parameters_had=number)
    connection = old.take_over()
    found = connection.execute("SELECT id, sequence_id FROM trials ORDER BY sequence_id").fetchall()
    assert found == [("aaaaa", 0), ("bbbbb", 1), ("ccccc", 2)]
    assert rows(connection, "SELECT next_sequence_id, next_parameter_id, ended_trials FROM experiment") == [(3, 3, 3)]


def test_trials_under_way_wait_for_resume(old: Old) -> None:
    old.event(2000, "aaaaa", "WAITING", record(0, x=0.5), 0)
    old.event(2001, "aaaaa", "RUNNING", None, 0)
    old.event(2005, "bbbbb", "WAITING", record(1, x=0.75), 1)
    old.take_over().close()
    with closing(connect(old.folder.database)) as connection:
        assert connection.execute("SELECT DISTINCT status, reason FROM trials").fetchall() == [
            ("USER_CANCELED", "EXPERIMENT_STOPPED")
        ]
        assert trials.reopen_stopped(connection) == 2
        waiting = [(trial.id, json.loads(trial.record)["parameters"]) for trial in trials.load_open(connection)]
    assert waiting == [("aaaaa", {"x": 0.5}), ("bbbbb", {"x": 0.75})]


def test_resumed_nni_trial_gets_another_attempt(old: Old) -> None:
    """Its results and files are not mixed with the new ones."""
    for number, id_ in enumerate(("begun", "heard", "fresh")):
        old.event(2000 + number, id_, "WAITING", record(number, x=0.5), number)
    old.event(2003, "begun", "RUNNING", None, 0)
    old.metric(2004, "heard", "1", "PERIODICAL", 0, "0.25")  # of one that runs elsewhere, before its start was seen
    old.take_over().close()
    with closing(connect(old.folder.database)) as connection:
        trials.reopen_stopped(connection)
        assert [(trial.id, trial.attempt) for trial in trials.load_open(connection)] == [
            ("begun", 2),
            ("heard", 2),
            ("fresh", 1),
        ]
        assert nni_answers.metrics(connection) == b""


@pytest.mark.parametrize(
    ("last", "status", "reason"),
    [
        ("FAILED", "FAILED", "USER_CODE"),
        ("USER_TO_CANCEL", "USER_CANCELED", "USER_REQUEST"),
        ("EARLY_STOPPED", "EARLY_STOPPED", "ASSESSOR"),
        ("ADD_RESUMED", "USER_CANCELED", "EXPERIMENT_STOPPED"),
    ],
)
def test_the_last_event_counts(old: Old, last: str, status: str, reason: str) -> None:
    old.event(2000, "aaaaa", "RUNNING", record(0, x=0.5), 0)
    old.event(2005, "aaaaa", last)
    old.event(2006, "aaaaa", "ADD_HYPERPARAMETER", record(0, x=0.5))
    assert rows(old.take_over(), "SELECT status, reason FROM trials") == [(status, reason)]


def test_results_stay_in_the_order_in_which_nni_stored_them(old: Old) -> None:
    for number, id_ in enumerate(("first", "other")):
        old.event(2000 + number, id_, "RUNNING", record(number, x=0.5), number)
    for at, id_, type_, sequence in [
        (2010, "other", "PERIODICAL", 0),
        (2011, "first", "PERIODICAL", 0),
        (2012, "other", "PERIODICAL", 1),
        (2013, "other", "FINAL", 0),
        (2014, "first", "PERIODICAL", 1),
        (2015, "first", "FINAL", 0),
        (2016, "other", "PERIODICAL", 0),  # NNI was stopped, and ran this one again
    ]:
        old.metric(at, id_, str(int(id_ == "other")), type_, sequence, "0.5")
    old.event(2020, "other", "SUCCEEDED")
    old.event(2021, "first", "SUCCEEDED")
    with closing(old.take_over()) as connection:
        assert stored(nni_answers.metrics(connection)) == list(range(2010, 2017))
        assert stored(nni_answers.latest_metrics(connection)) == [2013, 2015, 2012, 2014]  # as NNI 3.0 answers
        assert connection.execute("SELECT id FROM trials ORDER BY end_order").fetchall() == [("other",), ("first",)]


def stored(answer: bytes) -> list[int]:
    """Their times."""
    return [metric["timestamp"] for metric in json.loads(b"[%b]" % answer)]


def test_customized_parameters(old: Old) -> None:
    old.event(1500, "", "IMPORT_DATA", '[{"parameter": {"x": 1}, "value": 2}]')
    old.event(1600, "", "ADD_CUSTOMIZED", record(None, x=0.1), 0)
    old.event(2000, "aaaaa", "RUNNING", record(None, x=0.1), 0)
    old.metric(2001, "aaaaa", None, "FINAL", 0, '{"default": NaN, "loss": 2}')
    old.event(2002, "aaaaa", "SUCCEEDED")
    connection = old.take_over()
    assert connection.execute("SELECT * FROM imports").fetchall() == [
        (1, 1500, '[{"parameter": {"x": 1}, "value": 2}]')
    ]
    assert rows(
        connection, "SELECT parameter_id, json_extract(record, '$.parameter_source'), final_data FROM trials"
    ) == [(None, "customized", '{"default": NaN, "loss": 2}')]


def test_files_of_its_trials_are_found(old: Old) -> None:
    place = old.folder.path / "environments" / "local-env" / "trials" / "aaaaa"
    place.mkdir(parents=True)
    (place / "trial.stdout").write_text("said")
    (place / "trial.log").write_text("logged")
    old.take_over().close()
    assert (old.folder.trials / "aaaaa" / "stdout").read_text() == "said"
    assert (old.folder.trials / "aaaaa" / "trial.log").read_text() == "logged"
    assert (place / "trial.stdout").exists()


@pytest.mark.parametrize("way", ["trial.stdout", "aaaaa", "environments"])
def test_links_among_them_are_not_followed(old: Old, tmp_path: Path, way: str) -> None:
    secret = tmp_path / "elsewhere" / "local-env" / "trials" / "aaaaa"
    secret.mkdir(parents=True)
    (secret / "trial.stdout").write_text("s3cret")
    place = old.folder.path / "environments" / "local-env" / "trials" / "aaaaa"
    if way == "trial.stdout":
        place.mkdir(parents=True)
        (place / "trial.stdout").symlink_to(secret / "trial.stdout")
    elif way == "aaaaa":
        place.parent.mkdir(parents=True)
        place.symlink_to(secret)
    else:
        (old.folder.path / "environments").symlink_to(tmp_path / "elsewhere")
    old.take_over().close()
    assert not os.path.lexists(old.folder.trials / "aaaaa" / "stdout")


@pytest.mark.parametrize("link", ["trials/aaaaa", "trials", "log", "checkpoint", "db"])
def test_folder_with_a_link_in_the_place_of_a_folder_is_refused(old: Old, tmp_path: Path, link: str) -> None:
    place = old.folder.path / "environments" / "local-env" / "trials" / "aaaaa"
    place.mkdir(parents=True)
    (place / "trial.stdout").write_text("said")
    outside, target = tmp_path / "outside", old.folder.path / link
    if link == "db":
        target.rename(outside)
    else:
        outside.mkdir()
        target.parent.mkdir(exist_ok=True)
    target.symlink_to(outside)
    before = sorted(path.name for path in outside.iterdir())
    with pytest.raises((Conflict, StoreUnavailable), match=link.rpartition("/")[2]):
        nni_folder.adopt(old.folder, environment={}, interpreter="")
    assert sorted(path.name for path in outside.iterdir()) == before


def test_trials_with_ids_that_are_paths_are_left_out(old: Old) -> None:
    for number, id_ in enumerate(("../../outside", "aaaaa", "/etc/cron.d", "a\nb", "")):
        old.trial(id_, number, number, 0.5, at=2000 + number, parameters_had=0)
    with closing(old.take_over()) as connection:
        assert connection.execute("SELECT id FROM trials").fetchall() == [("aaaaa",)]


def test_experiment_with_an_id_that_is_a_path_is_corrupt(old: Old) -> None:
    with closing(sqlite3.connect(old.folder.database)) as connection, connection:
        connection.execute("UPDATE ExperimentProfile SET id = '../outside'")
    with pytest.raises(StoreCorrupt):
        nni_folder.read_head(old.folder.database)
    with pytest.raises(StoreCorrupt):
        old.take_over()


def test_original_is_kept_and_conversion_is_repeatable(old: Old) -> None:
    old.trial("aaaaa", 0, 0, 0.5, at=2000, parameters_had=0)
    before = old.folder.database.read_bytes()
    (old.folder.path / "db" / "nni.sqlite.draft").write_text("half of one")
    old.take_over().close()
    assert (old.folder.path / "db" / nni_folder.ORIGINAL).read_bytes() == before
    assert not (old.folder.path / "db" / "nni.sqlite.draft").exists()


def test_folder_in_use_by_nni_is_refused(old: Old) -> None:
    with old.folder.database.open("rb"), pytest.raises(Conflict, match=r"is in use by process \d+ .*stop that"):
        old.take_over()
    old.folder.path.with_name("link").symlink_to(old.folder.path)
    with old.folder.database.open("rb"), pytest.raises(Conflict, match=r"is in use by process \d+ .*stop that"):
        nni_folder.require_idle(Folder(old.folder.path.with_name("link")))
    assert nni_folder.is_made_by_nni(old.folder.database)


def test_unreadable_nni_database_counts_as_in_use(old: Old) -> None:
    nni_folder.require_idle(old.folder)
    with old.folder.database.open("rb"):
        old.folder.database.write_text("no database " * 99)
        with pytest.raises(Conflict, match="is in use by process"):
            nni_folder.require_idle(old.folder)
    nni_folder.require_idle(old.folder)


def test_link_to_latest_is_not_an_experiment(old: Old, tmp_path: Path) -> None:
    (tmp_path / "Zlatest").symlink_to("oldexp")  # before it,
    (tmp_path / "zlatest").symlink_to("oldexp")  # and after it
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "far").symlink_to(old.folder.path)
    assert [entry.folder.path.name for entry in index.find_folders(tmp_path)] == ["oldexp"]
    assert [entry.folder.path.name for entry in index.find_folders(tmp_path / "elsewhere")] == ["far"]


def test_new_nni_folder_is_listed_without_a_sentence(old: Old, tmp_path: Path) -> None:
    found = index.find_folder(old.folder)
    assert found is not None
    entry = reconcile.decide(None, found, is_ours=True, has_jobs=False)
    assert entry is not None and (entry.id, entry.is_open, entry.trouble) == ("oldexp", False, "")


def test_lists_show_its_results_before_it_is_taken_over(old: Old, tmp_path: Path) -> None:
    old.trial("aaaaa", 0, 0, 0.5, at=10, parameters_had=0)
    old.trial("bbbbb", 1, 1, 0.75, at=20, parameters_had=1)
    old.event(30, "ccccc", "WAITING", record(2, x=1.0), 2)
    old.event(31, "ccccc", "FAILED", None, 2)
    old.save(2, ended_ms=99)
    (entry,) = index.find_folders(tmp_path)
    old.take_over().close()
    found = list_summary.parse(entry.results)
    assert found == list_summary.parse(index.read_folder(old.folder).results) and found is not None
    assert (found.counts, found.trials_made) == ({"SUCCEEDED": 2, "FAILED": 1}, 3)
    assert found.best is not None and (found.best.value, found.best.parameters) == (1.0, {"x": 0.75})


@pytest.mark.parametrize(("last", "has_run"), [("SUCCEEDED", True), ("FAILED", True), ("USER_CANCELED", False)])
def test_a_trial_that_nni_never_saw_run_has_its_folder(old: Old, last: str, has_run: bool) -> None:
    old.event(10, "aaaaa", "WAITING", record(0, x=1.0), 0)
    old.event(14, "aaaaa", last, None, 0)
    with closing(old.take_over()) as connection:
        (trial,) = json.loads(b"[" + nni_answers.trials(connection, "/trials") + b"]")
    assert ("logPath" in trial, trial["startTime"]) == (has_run, 10)


def test_a_folder_without_an_experiment(tmp_path: Path) -> None:
    with pytest.raises(StoreCorrupt, match="contains no experiment"):
        Old(tmp_path).take_over()
