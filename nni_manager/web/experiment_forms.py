"""Buttons and forms about one experiment: stop, resume, kill a trial; name, notes, tags; archive, delete.

Each answer is a redirect to the page with the button.
"""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nni_manager.domain.errors import NniManagerError, NotFound, status_of
from nni_manager.domain.ids import TRIAL_ID
from nni_manager.store.index.index import Entry
from nni_manager.store.index.labels import LONGEST_TAG, MOST_NOTES, MOST_TAGS, tags_in
from nni_manager.web.rendering import back, context_of, experiment_id, form_of, is_on_endpoint, redirect, render


async def _about(request: Request) -> Response:
    entry = await _entry(request)
    given = {"name": entry.name or "", "notes": entry.labels.notes, "tags": ", ".join(entry.labels.tags)}
    return _about_form(request, entry, given)


async def _change_about(request: Request) -> Response:
    """Store changed labels; show rejected ones again with the reason."""
    entry, form = await _entry(request), await form_of(request)
    given = {name: form.get(name, [""])[0] for name in ("name", "notes", "tags")}
    try:
        await _store(request, entry, given)
    except NniManagerError as error:
        return _about_form(request, entry, given, str(error), status_of(error))
    return await back(request)


async def _store(request: Request, entry: Entry, given: dict[str, str]) -> None:
    service, name = context_of(request).commands, given["name"].strip() or None
    labels = {"notes": given["notes"], "tags": tags_in(given["tags"])}
    entry.labels.changed(labels)  # refused before anything is stored
    if name != entry.name:
        await service.change(entry.id, {"experimentName": name})
    await service.label(entry.id, labels)


def _about_form(
    request: Request, entry: Entry, given: dict[str, str], error: str = "", status: int = HTTPStatus.OK
) -> Response:
    limits = {"notes": MOST_NOTES, "tags": MOST_TAGS, "tag": LONGEST_TAG}
    return render(request, "about.html", status, entry=entry, given=given, error=error, limits=limits)


async def _archive(request: Request) -> Response:
    archived = (await form_of(request)).get("archived", ["1"])[0] == "1"
    await context_of(request).commands.label(experiment_id(request), {"archived": archived})
    return await back(request)


async def _ask_to_delete(request: Request) -> Response:
    entry = await _entry(request)
    is_open = context_of(request).commands.at_work(entry.id) is not None
    return render(request, "delete.html", entry=entry, is_open=is_open)


async def _delete(request: Request) -> Response:
    context, id_ = context_of(request), experiment_id(request)
    await context.commands.delete(id_, also=context.sweep_code)
    if is_on_endpoint(request):
        return render(request, "closed.html", id=id_)
    return redirect(request, "/")


async def _entry(request: Request) -> Entry:
    return await context_of(request).commands.entry(experiment_id(request))


async def _stop(request: Request) -> Response:
    """Answer when the trials have ended. An endpoint closes with its experiment, so no page remains to return to."""
    await context_of(request).commands.stop(experiment_id(request))
    if is_on_endpoint(request):
        return render(request, "closed.html", id=experiment_id(request))
    return await back(request)


async def _resume(request: Request) -> Response:
    await context_of(request).commands.resume(experiment_id(request))
    return await back(request)


async def _kill(request: Request) -> Response:
    id_, trial_id = experiment_id(request), request.path_params["trial_id"]
    if TRIAL_ID.fullmatch(trial_id) is None:
        raise NotFound(f"{trial_id!r} is not a trial id; the experiment's page lists its trials")
    await context_of(request).commands.kill_trial(id_, trial_id)
    return await back(request)


_HERE = "/experiments/{id}"
ROUTES = [
    Route(f"{_HERE}/about", _about),
    Route(f"{_HERE}/about", _change_about, methods=["POST"]),
    Route(f"{_HERE}/archive", _archive, methods=["POST"]),
    Route(f"{_HERE}/delete", _ask_to_delete),
    Route(f"{_HERE}/delete", _delete, methods=["POST"]),
    Route(f"{_HERE}/stop", _stop, methods=["POST"]),
    Route(f"{_HERE}/resume", _resume, methods=["POST"]),
    Route(f"{_HERE}/trials/{{trial_id}}/kill", _kill, methods=["POST"]),
]
