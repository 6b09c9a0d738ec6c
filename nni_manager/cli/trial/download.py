"""`nnictl trial download`: the files of a trial, brought here from wherever they lie."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nni_manager.cli.experiment import selection
from nni_manager.cli.experiment.selection import choose_trial
from nni_manager.cli.session import Connect, to_read
from nni_manager.cli.trial.commands import trial_option
from nni_manager.domain.errors import NniManagerError, NotFound

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient

#: Bytes per request.
_PART = 1 << 20


@click.command()
@to_read
@selection.id_argument
@trial_option
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Which attempt. Default: the latest.")
@click.option(
    "--output",
    "-o",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Where they go; made where it is missing. Default: a folder with the trial's id.",
)
def download(connect: Connect, *, id: str | None, trial_id: str, attempt: int | None, folder: Path | None) -> None:
    """Bring a trial's files here: its folder and its checkpoint, from any platform that shows files."""
    client = connect()
    id_ = selection.choose(client, id)
    found = choose_trial(client, id_, trial_id)
    target = folder or Path(found["id"])
    listed = client.trial_files(id_, found["id"], attempt)
    brought, missing = _bring_all(client, id_, found["id"], listed, target)
    click.echo(f"{brought} files of attempt {listed['attempt']} of trial {found['id']} are in {target}.")
    if listed["why"]:
        missing.append(f"files elsewhere: {listed['why']}")
    if missing:
        raise click.ClickException("; ".join(["not brought", *missing]))


def _bring_all(
    client: ManagerClient, id: str, trial_id: str, listed: dict[str, Any], target: Path
) -> tuple[int, list[str]]:
    """How many files were brought, and which were not, with the reason."""
    brought, missing = 0, []
    for file in listed["files"]:
        try:
            _bring(client, id, trial_id, file["name"], listed["attempt"], _below(target, file["name"]))
            brought += 1
        except NotFound:
            if file["place"] == "here":  # a service names logs that need not be there
                missing.append(f"{file['name']}: it was removed meanwhile")
        except (NniManagerError, OSError) as error:
            missing.append(f"{file['name']}: {error}")
    return brought, missing


def _bring(client: ManagerClient, id: str, trial_id: str, name: str, attempt: int, path: Path) -> None:
    """Writes a file beside its place, then puts it there: what was cut short is never taken for the whole."""
    part = client.trial_file(id, trial_id, name, attempt=attempt, offset=0, limit=_PART)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.part")
    draft.unlink(missing_ok=True)  # of a download that was cut short, or a link of another user
    with draft.open("xb") as file:
        while part.data:
            file.write(part.data)
            part = client.trial_file(id, trial_id, name, attempt=attempt, offset=part.end, limit=_PART)
    draft.replace(path)


def _below(target: Path, name: str) -> Path:
    """Where a file goes. Raises OSError for a name that leads out of the folder: names come from other machines."""
    if name.startswith("/") or ".." in name.split("/"):
        raise OSError("its name leads out of the folder")
    return target / name
