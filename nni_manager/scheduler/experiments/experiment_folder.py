"""Creates, reopens and reads an experiment's folder. All functions block."""

from __future__ import annotations

import json
import logging
import secrets
import sqlite3
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

from nni_manager.config import admission, experiment_file
from nni_manager.config.settings import own_environment
from nni_manager.domain.endpoint import Endpoint
from nni_manager.domain.errors import (
    ConfigInvalid,
    InvalidInput,
    NniManagerError,
    NotFound,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
)
from nni_manager.domain.experiment import ExperimentStatus, StoredExperiment
from nni_manager.scheduler.experiments.code import IsWanted, archive_of, with_own_code
from nni_manager.scheduler.experiments.open_experiment import renew
from nni_manager.scheduler.experiments.services import SharedParts
from nni_manager.scheduler.experiments.submission import Reopening, Submission
from nni_manager.store import migrate, private, stored_config
from nni_manager.store.connection import classified, classifying, connect_readonly
from nni_manager.store.experiment import experiments, jobs, services, trials
from nni_manager.store.folder import Folder, Ownership
from nni_manager.store.nni import nni_folder, nni_format
from nni_manager.store.private import Kept
from trial_runner.wire import full_disks

log = logging.getLogger(__name__)


def make(
    folder: Folder,
    submission: Submission,
    endpoint: Endpoint | None,
    is_wanted: IsWanted,
    *,
    data_dir: Path,
    owner: str,
    now_ms: int,
) -> None:
    """Creates the folder with database, private file and code, and syncs it. Raises InvalidInput if that fails,
    and NotWanted once `is_wanted` is False; an incomplete folder stays."""
    try:
        folder.create(data_dir)
        spec = with_own_code(submission.spec, submission.sent_code, folder, is_wanted)
        for platform in spec.platforms:
            if admission.sends_code(spec, platform):
                archive_of(spec, platform, folder.code).pack(is_wanted)
        private.replace(folder.private, Kept(environment=submission.environment, secrets=submission.secrets))
        migrate.migrate(folder.database, "experiment")
        with closing(sqlite3.connect(folder.database)) as connection, connection:
            experiments.create(
                connection,
                id=submission.id,
                config=json.dumps(spec.canonical),
                interpreter=submission.interpreter or sys.executable,
                folder=str(folder.path),
                now_ms=now_ms,
                nonce=secrets.token_hex(8),
                storage_key=secrets.token_hex(12),
                class_direction=submission.class_direction,
                warnings=[warning.told for warning in submission.spec.warnings],
                owner=owner,
            )
            for results in submission.imported:
                experiments.add_import(connection, nni_format.as_javascript(results), now_ms)
            experiments.set_endpoint(connection, endpoint)
            for platform in spec.platforms:
                services.put(connection, platform.service, platform.settings)
        folder.sync()
    except (OSError, sqlite3.OperationalError) as error:
        reason = full_disks.reason(error, folder.path) if isinstance(error, OSError) else str(error)
        raise InvalidInput(
            f"experimentWorkingDirectory: {folder.path} cannot be created ({reason}); choose a writable folder"
        ) from error


def find_in(directory: Path, id: str) -> Folder:
    """The folder of the experiment in `directory`, or `directory` itself. Raises NotFound."""
    with suppress(OSError):  # the name is invalid, or the folder unreadable
        for path in (directory / id, directory):
            if path.name == id and Folder(path).database.exists():
                return Folder(path)
    raise NotFound(f"cannot find experiment folder {directory / id}; use the folder that contains it")


def upgrade(folder: Folder) -> None:
    """Upgrades a folder for viewing; an unwritable one is not changed, unless NNI created it.

    Raises NotFound, Conflict or StoreError.
    """
    folder.require_database()
    adopt(folder)
    with suppress(StoreUnavailable):
        migrate.migrate(folder.database, "experiment")
    database = folder.require_database()
    with classifying(database), closing(connect_readonly(database)) as connection:
        experiments.require_row(connection)


def adopt(folder: Folder) -> None:
    """Converts a folder that NNI made; its trials will run as created by the daemon's user.

    Raises Conflict or StoreError.
    """
    nni_folder.adopt(
        folder,
        environment=own_environment(),
        interpreter=sys.executable,
        config=partial(_config_of_nni, directory=str(folder.path.parent)),
    )


def _config_of_nni(text: str, *, directory: str) -> str:
    """The config to store for one that NNI stored; unchanged if it cannot be read and the folder is only viewed."""
    try:
        return json.dumps(experiment_file.canonical_of_nni(json.loads(text), directory))
    except (ConfigInvalid, ValueError) as error:
        log.warning("a config of NNI in %s is left unchanged: %s", directory, error)
        return text


def reopen(folder: Folder, endpoint: Endpoint | None, now_ms: int, how: Reopening, owner: str) -> StoredExperiment:
    """Resumes a stopped experiment: its stopped trials wait again, with the same parameters. Returns its former record.

    Raises InvalidInput for unknown secrets, and AlreadyOwned, without a change, while another manager has it open.
    """
    with _writing(folder) as connection:
        before = experiments.load(connection)
        experiments.set_owner(connection, owner)
        folder.mark_deletion(is_wanted=False)  # a deletion that a killed daemon had not noted
        trials.reopen_stopped(connection)
        experiments.count_to_last_event(connection, now_ms)  # before clearing the hold, whose time does not count
        experiments.set_hold(connection, None)
        experiments.forget_failures(connection)
        services.clear_holds(connection, now_ms)
        experiments.set_endpoint(connection, endpoint)
        if how.debug:
            spec = experiment_file.from_canonical(json.loads(experiments.load(connection).config))
            experiments.set_config(connection, json.dumps(experiment_file.in_debug(spec).canonical))
        if how.secrets:
            renew(connection, folder, how.secrets)
        experiments.set_status(connection, ExperimentStatus.RUNNING, now_ms)
        return before


def require_idle(folder: Folder) -> None:
    """Raises Conflict while NNI uses the folder, AlreadyOwned while another manager does."""
    nni_folder.require_idle(folder)
    with suppress(OSError):  # missing, or not writable
        _lock(folder).release()


def refuse_newer(folder: Folder) -> None:
    """Raises SchemaRefused for a database of a newer version; ignores unreadable ones."""
    with suppress(OSError, StoreCorrupt):
        migrate.refuse_newer(folder.database, "experiment")


def has_undecided_jobs(folder: Folder) -> bool:
    """Whether a job of an open attempt exists; True if the database cannot be read."""
    if not folder.database.exists():
        return False
    try:
        with closing(connect_readonly(folder.database)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            return version > 0 and jobs.has_undecided(connection)  # NNI's own has no jobs of ours
    except (StoreError, sqlite3.DatabaseError):
        return True


def require_no_jobs_elsewhere(folder: Folder, shared: SharedParts) -> None:
    """Raises Conflict for an experiment of another owner with jobs elsewhere, which a resume would start again.
    Raises StoreError."""
    database = folder.require_database()
    with classifying(database), closing(connect_readonly(database)) as connection:
        if jobs.has_undecided_elsewhere(connection):
            shared.require_ours(experiments.load(connection))


def restore_status(folder: Folder, before: StoredExperiment, ended_ms: int) -> None:
    """Restores STOPPED after a failed resume, as in the index; the trials wait for the next `resume`."""
    if before.status is ExperimentStatus.STOPPED:
        with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(folder.database, timeout=1)) as connection:
            with connection:
                experiments.set_endpoint(connection, None)
                experiments.set_status(connection, before.status, ended_ms)
                experiments.set_ended_as(connection, before.ended_as)


@contextmanager
def _writing(folder: Folder) -> Iterator[sqlite3.Connection]:
    """A transaction in the database of a closed experiment, which is locked and upgraded first. Raises NotFound,
    AlreadyOwned or StoreError."""
    folder.require_database()
    try:
        lock = _lock(folder)
    except OSError as error:
        reason = full_disks.reason(error, folder.path)
        raise StoreUnavailable(
            f"the folder {folder.path} cannot be written ({reason}), so its experiment cannot continue; make it"
            " writable, or copy it"
        ) from error
    try:
        adopt(folder)
        migrate.migrate(folder.database, "experiment")
        with closing(sqlite3.connect(folder.database, timeout=1)) as connection, connection:
            yield connection
    except sqlite3.DatabaseError as error:
        raise classified(folder.database, error) from error
    finally:
        lock.release()


def _lock(folder: Folder) -> Ownership:
    return Ownership(folder.lock, f"the experiment folder {folder.path}")


def renew_secrets(folder: Folder, values: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Replaces secrets of a closed experiment, and adds a missing environment. Raises as `renew`."""
    with _writing(folder) as connection:
        renew(connection, folder, values, environment)


def rename(folder: Folder, name: object) -> tuple[str | None, str]:
    """Renames a closed experiment; None: no name. Returns name and platform as in the new config. Raises
    InvalidInput."""
    with _writing(folder) as connection:
        before = experiment_file.from_canonical(json.loads(experiments.load(connection).config))
        spec = experiment_file.change(before, {"experimentName": name})
        experiments.set_config(connection, json.dumps(spec.canonical))
        return spec.name, stored_config.platform(spec.canonical)


def note_ended(folder: Folder, job_names: Collection[str]) -> None:
    """Marks jobs of a closed experiment as forgotten; an error is only logged."""
    try:
        folder.require_database()
        with closing(sqlite3.connect(folder.database, timeout=1)) as connection, connection:
            for name in job_names:
                jobs.set_forgotten(connection, name)
    except (NniManagerError, sqlite3.DatabaseError) as error:
        log.warning("the end of the leftover jobs could not be recorded in %s: %s", folder.path, error)
