"""``/compare-experiments?ids=a,b``: up to five experiments side by side; without ids, the form that chooses them."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nni_manager.domain.errors import InvalidInput, NotFound
from nni_manager.domain.ids import EXPERIMENT_ID
from nni_manager.web.comparison import compared_experiments
from nni_manager.web.rendering import context_of, render

#: Most experiments side by side: of more, neither columns nor curves can be told apart.
MOST = 5
#: Experiments that the form offers, newest first.
_OFFERED = 200


async def _page(request: Request) -> Response:
    ids = _ids(request)
    if len(ids) < 2:
        return await _form(request, ids)
    context = context_of(request)
    found = await asyncio.gather(*(compared_experiments.read(context, id_) for id_ in ids))
    everything = request.query_params.get("all") == "1"
    table = compared_experiments.build(found, everything=everything)
    curves = [{"id": one.entry.id, "name": one.name} for one in table.experiments if not one.error]
    return render(request, "compare_experiments.html", table=table, ids=",".join(ids), curves=curves)


async def _form(request: Request, ids: list[str]) -> Response:
    entries = (await context_of(request).service.entries())[: -_OFFERED - 1 : -1]
    return render(request, "choose_experiments.html", entries=entries, ids=ids, most=MOST)


def _ids(request: Request) -> list[str]:
    """The ids in the address, each once: joined by commas, or a field for each, as the form sends them.

    Raises NotFound for a malformed id, InvalidInput for too many.
    """
    given = ",".join(request.query_params.getlist("ids")).split(",")
    ids = list(dict.fromkeys(text.strip() for text in given if text.strip()))
    for id_ in ids:
        if EXPERIMENT_ID.fullmatch(id_) is None:
            raise NotFound(f"{id_!r} is no experiment id; the first page lists all")
    if len(ids) > MOST:
        raise InvalidInput(f"ids: at most {MOST} experiments are compared, not {len(ids)}; leave some out")
    return ids


ROUTES = [Route("/compare-experiments", _page)]
