"""`nnictl experiment import`: passes results of other experiments to the tuner."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from nni_manager.cli.experiment import selection
from nni_manager.cli.experiment.export import FACTS
from nni_manager.cli.output import echo, warn
from nni_manager.cli.session import Connect, connected
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.text import require_finite, require_text
from nni_manager.domain.trial_status import TrialStatus

#: Parameter with a trial's budget from Hyperband or BOHB.
_BUDGET = "TRIAL_BUDGET"
#: Maximum size of a request, in bytes of JSON; the API's limit is 8 MB.
_BATCH_BYTES = 4_000_000


@click.command("import")
@connected
@selection.id_argument
@click.option("--filename", "-f", required=True, metavar="FILE", help='JSON: [{"parameter": {…}, "value": …}, …]')
def import_results(connect: Connect, *, id: str | None, filename: str) -> None:
    """Pass results of other experiments to the tuner.

    FILE may be a JSON file of `experiment export`: its successful trials with a finite result are imported.
    """
    read = _read(filename)
    found = [_entry(entry, number) for number, entry in enumerate(read) if not _is_without_result(entry)]
    entries = [entry for entry in found if entry is not None]
    if not entries:
        raise InvalidInput(f"--filename {filename}: not one of its {len(read)} trials succeeded with a finite result")
    client, id_ = selection.reach(connect, id)
    for batch in _batches(entries):
        client.import_data(id_, batch)
    warn(_unknown_parameters(entries, client.experiment(id_)["config"].get("searchSpace")))
    count = "1 result" if len(entries) == 1 else f"{len(entries)} results"
    left = len(read) - len(entries)
    more = f" Left out, without success or a finite result: {left}." if left else ""
    echo(f"Experiment {id_}: the tuner gets {count}.{more}")


def _read(file: str) -> list[Any]:
    """The entries of a JSON file of results. Raises InvalidInput."""
    try:
        with open(file, encoding="utf-8-sig") as stream:
            entries = json.load(stream)
    except OSError as error:
        raise InvalidInput(f"--filename {file} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"--filename {file} is not JSON: {error}") from None
    if not isinstance(entries, list) or not entries:
        raise InvalidInput(f'--filename {file} must hold a list such as [{{"parameter": {{"x": 1}}, "value": 0.5}}]')
    return entries


def _is_without_result(entry: Any) -> bool:
    if not isinstance(entry, dict) or "status" not in entry:
        return False
    return entry["status"] != TrialStatus.SUCCEEDED or entry.get("value") is None


def _entry(entry: Any, number: int) -> dict[str, Any] | None:
    """An entry for the API, or None if its value is not finite. Raises InvalidInput.

    JSON text, as in an export, is parsed.
    """
    if not isinstance(entry, dict) or not isinstance(entry.get("parameter"), dict) or "value" not in entry:
        raise InvalidInput(f"--filename: entry {number} must be a mapping of parameter (a mapping) and value")
    used = {name: one for name, one in entry.items() if name not in (*FACTS, "value")}  # the other fields of an export
    require_finite(f"--filename: entry {number}", used)
    require_text(f"--filename: entry {number}", entry)
    try:
        value = json.loads(entry["value"]) if isinstance(entry["value"], str) else entry["value"]
    except ValueError:
        raise InvalidInput(f"--filename: entry {number}: value is text, but not JSON; give a number") from None
    if not _is_finite(value):
        return None
    return {**used, "value": entry["value"] if isinstance(value, str) else value}  # the API takes a text as JSON text


def _is_finite(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def _unknown_parameters(entries: Sequence[Mapping[str, Any]], search_space: object) -> Iterator[str]:
    """The warning, if any, about parameters outside the search space, which a tuner cannot use."""
    known = search_space if isinstance(search_space, dict) else {}
    names = (*known, _BUDGET)
    unknown = {name: None for entry in entries for name in entry["parameter"] if known and name not in names}
    if unknown:
        yield f"the search space has no {', '.join(unknown)}; it has {', '.join(known)}"


def _batches(entries: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    size = 0
    for entry in entries:
        length = len(json.dumps(entry))
        if batch and size + length > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += length
    yield batch
