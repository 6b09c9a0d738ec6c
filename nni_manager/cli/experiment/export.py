"""`nnictl experiment export`, the trials as a file with the fields of NNI's own export; `report`, one HTML file.

Trials are read a page at a time and kept in a temporary file; only intermediate results, if requested, are in memory.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import click

from nni_manager.cli.experiment import selection
from nni_manager.cli.output import echo, warn
from nni_manager.cli.session import Connect, ManagerClient, to_read
from nni_manager.domain.formats import size, spreadsheet_text
from nni_manager.domain.trial_status import TrialStatus

Record = dict[str, Any]
#: (trial, attempt) → JSON texts of that attempt's results, the final one last.
Intermediates = dict[tuple[str, int], list[str]]

_INTERMEDIATE, _TRIAL, _REWARD, _PARETO = "intermediate", "trialJobId", "reward", "pareto"
#: Fields of a trial that are copied into its record; times in milliseconds since the epoch.
FACTS = ("sequenceId", "status", "startedMs", "endedMs")
#: Metrics per request: the API's maximum.
_PAGE = 10_000
_KINDS = ["json", "csv"]


@click.command()
@to_read
@selection.id_argument
@click.option(
    "--type",
    "-t",
    "kind",
    type=click.Choice(_KINDS),
    help="Format of the file.  [default: from the ending of its name]",
)
@click.option(
    "--filename", "-f", required=True, type=click.Path(path_type=Path), help="File to write; -: standard output."
)
@click.option("--intermediate", "-i", "with_intermediates", is_flag=True, help="Include intermediate results.")
def export(connect: Connect, *, id: str | None, kind: str | None, filename: Path, with_intermediates: bool) -> None:
    """Write parameters, results, status and times of all trials.

    JSON: a list of {parameter, value, trialJobId, sequenceId, status, startedMs, endedMs}; `experiment import` reads
    it. value is the final result, or null; a text, or a result with NaN or Infinity, is JSON text. Times are
    milliseconds since the epoch. CSV: a column for each parameter, then `reward`, or a column for each entry of a
    result that is a dictionary, then the other fields. With --intermediate, the field `intermediate` holds all results
    of a trial: the intermediate ones and, last, the final one. With objectives, the field `pareto` says whether the
    trial is in the Pareto set.
    """
    import tempfile  # takes 6 ms, which `--help` saves

    form = kind or _form_of(filename)
    client, id_ = selection.reach(connect, id)
    best = _pareto_set(client, id_)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as spool, written(filename) as file:
        without_result: list[Record] = []
        count = _spool(_trials(client, id_, without_result), spool)
        intermediates = _intermediates(client, id_) if with_intermediates else None
        (_write_json if form == "json" else _write_csv)(file, _Spooled(spool, intermediates, best))
    # not to the stream that gets the results
    echo(f"Experiment {id_}: {count} trials are in {filename}.", err=_stream_of(filename) == 1)
    if without_result:
        example = f"trial {without_result[0]['id']}: {without_result[0]['message']}"
        warn([f"trials that succeeded without a final result: {len(without_result)}; {example}"])


def _form_of(filename: Path) -> str:
    """The format of the file, ``json`` or ``csv``, from the ending of its name. Raises UsageError."""
    ending = filename.suffix.lower().removeprefix(".")
    if ending not in _KINDS:
        raise click.UsageError(
            f"the name of {filename} ends neither with .json nor with .csv; give --type json or --type csv",
            click.get_current_context(),
        )
    return ending


def _trials(client: ManagerClient, id: str, without_result: list[Record]) -> Iterator[Record]:
    """The trials of an experiment, each once, even if new ones shift the pages.

    Successful trials without a final result are also appended to `without_result`.
    """
    seen = set()
    for trial in client.all_trials(id):
        if trial["id"] in seen:
            continue
        seen.add(trial["id"])
        if trial["finalResult"] is None and trial["status"] == TrialStatus.SUCCEEDED:
            without_result.append(trial)
        yield trial


def _pareto_set(client: ManagerClient, id: str) -> frozenset[str] | None:
    """The ids of the trials in the Pareto set; None without objectives."""
    if not client.experiment(id).get("objectives"):
        return None
    return frozenset(result[_TRIAL] for result in client.export(id) if result.get(_PARETO))


def _spool(trials: Iterable[Record], spool: IO[str]) -> int:
    """Write a line of JSON for each trial to `spool`; return the number of trials."""
    count = 0
    for trial in trials:
        kept = {name: trial[name] for name in ("id", "attempt", "parameters", "finalResult", *FACTS)}
        spool.write(json.dumps(kept) + "\n")
        count += 1
    return count


def _intermediates(client: ManagerClient, id: str) -> Intermediates:
    """All reported results of the experiment's trials, for the field `intermediate`.

    Called after the trials are read, so that the results of finished trials are complete.
    """
    found: Intermediates = {}
    after = 0
    while page := client.metrics(id, after=after, limit=_PAGE):
        for metric in page:
            found.setdefault((metric["trialId"], metric["attempt"]), []).append(metric["result"])
        after = page[-1]["id"]
    return found


class _Spooled:
    """The records of an export: NNI's fields and ours, with `pareto` and `intermediate` if they apply."""

    def __init__(self, spool: IO[str], intermediates: Intermediates | None, best: frozenset[str] | None) -> None:
        self._spool = spool
        self.intermediates = intermediates
        self.best = best

    def __iter__(self) -> Iterator[Record]:
        self._spool.seek(0)
        for line in self._spool:
            trial = json.loads(line)
            record = {"parameter": trial["parameters"], "value": _value(trial["finalResult"]), _TRIAL: trial["id"]}
            record |= {name: trial[name] for name in FACTS}
            if self.best is not None:
                record[_PARETO] = trial["id"] in self.best
            if self.intermediates is not None:
                texts = self.intermediates.get((trial["id"], trial["attempt"]), [])
                record[_INTERMEDIATE] = [_value(text) for text in texts]
            yield record

    @property
    def own_columns(self) -> list[str]:
        """The columns of a CSV after those of parameters and results."""
        before = [_INTERMEDIATE] if self.intermediates is not None else []
        return [*before, _TRIAL, *FACTS, *([_PARETO] if self.best is not None else [])]


def _value(text: str | None) -> object:
    """A result as a JSON value; a text, or a result with NaN or Infinity, stays JSON text as reported."""
    if text is None:
        return None
    value = json.loads(text)
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return text
    return text if isinstance(value, str) else value


def _write_json(file: IO[str], records: _Spooled) -> None:
    separator = "[\n"
    for record in records:
        file.write(separator + json.dumps(record, ensure_ascii=False))
        separator = ",\n"
    file.write("\n]\n" if separator == ",\n" else "[]\n")


def _write_csv(file: IO[str], records: _Spooled) -> None:
    import csv

    own = records.own_columns
    columns = [*_columns(records), *own]
    csv.writer(file).writerow(map(spreadsheet_text, columns))
    writer = csv.DictWriter(file, columns)
    for record in records:
        row = _parameters(record) | _results(record) | {name: record[name] for name in own}
        writer.writerow({name: _cell(value) for name, value in row.items()})


def _columns(records: Iterable[Record]) -> list[str]:
    """The names of the CSV's columns: parameters, then results, each in order of first appearance."""
    parameters: dict[str, None] = {}
    results: dict[str, None] = {}
    for record in records:
        parameters |= dict.fromkeys(_parameters(record))
        results |= dict.fromkeys(_results(record))
    names = [*parameters, *(name for name in results or [_REWARD] if name not in parameters)]
    return [name for name in names if name not in (_INTERMEDIATE, _TRIAL, *FACTS, _PARETO)]


def _parameters(record: Record) -> Record:
    parameters = record["parameter"]
    return dict(parameters) if isinstance(parameters, dict) else {"parameter": parameters}


def _results(record: Record) -> Record:
    value = record["value"]
    if value is None:
        return {}
    return dict(value) if isinstance(value, dict) else {_REWARD: value}


def _cell(value: object) -> object:
    """The value of a CSV's cell: nested parameters are JSON text."""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
    return spreadsheet_text(text) if isinstance(text, str) else text


@contextmanager
def written(path: Path, option: str = "--filename") -> Iterator[IO[str]]:
    """The file at `path`, opened for writing. Raises ClickException."""
    try:
        with _to_be_written(path) as file:
            yield file
    except OSError as error:
        reason = error.strerror or str(error)
        raise click.ClickException(f"{option} {path} cannot be written ({reason}); choose another file") from None


def _to_be_written(path: Path) -> AbstractContextManager[IO[str]]:
    descriptor = _stream_of(path)
    if descriptor is not None:
        return _opened_stream(descriptor)
    # a pipe or a device, or a link to one, cannot be replaced
    return _opened(path) if path.exists() and not path.is_file() else _replacing(Path(os.path.realpath(path)))


def _stream_of(path: Path) -> int | None:
    """Descriptor, 1 or 2, of the standard stream that `path` names, whose earlier content must be kept; else None."""
    if str(path) == "-":
        return 1
    with suppress(OSError):
        found = path.stat()
        for descriptor in (1, 2):
            with suppress(OSError):  # it is closed
                if os.path.samestat(found, os.fstat(descriptor)):
                    return descriptor
    return None


@contextmanager
def _replacing(path: Path) -> Iterator[IO[str]]:
    """A file next to `path` that replaces it when complete, with the same permissions."""
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with _opened(draft, 0o666 if mode is None else 0o600) as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            yield file
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _opened_stream(descriptor: int) -> IO[str]:
    """The standard stream, opened for appending. Raises OSError."""
    if (sys.__stdout__, sys.__stderr__)[descriptor - 1] is None:  # it was closed, and another file has its number now
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return open(os.dup(descriptor), "w", encoding="utf-8", errors="backslashreplace", newline="")


def _opened(path: Path, mode: int = 0o666) -> IO[str]:
    """The file at `path`, opened for writing; `mode`: for a new file.

    A lone surrogate is written as an escape, as in JSON.
    """
    return open(
        path,
        "w",
        encoding="utf-8",
        errors="backslashreplace",
        newline="",
        opener=lambda name, flags: os.open(name, flags, mode),
    )


@click.command()
@to_read
@selection.id_argument
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="File to write; -: standard output.  [default: ID-report.html]",
)
def report(connect: Connect, *, id: str | None, output: Path | None) -> None:
    """Write one HTML file about an experiment. It opens without a network and can be sent by mail.

    It has the charts, best trials, failures, counts, search space, config (secrets are masked), and the facts to repeat
    the experiment: commit and uncommitted changes of the code, packages, seed, machine. Look at the changes before you
    send it: text that looks like a secret is masked, but not every secret looks like one. With many trials, charts
    draw a sample. A file has about 2.3 MB, at most 5 MB.
    """
    client, id_ = selection.reach(connect, id)
    html = client.report(id_)
    path = output or Path(f"{id_}-report.html")
    with written(path, "--output") as file:
        file.write(html.decode())
    echo(f"The report of experiment {id_} is in {path} ({size(len(html))}).", err=str(path) == "-")
