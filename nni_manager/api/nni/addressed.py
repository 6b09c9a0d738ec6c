"""The parts of a request to NNI's API: the experiment, its folder, and the JSON body."""

from __future__ import annotations

import json
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from nni_manager.api.context import ApiContext
from nni_manager.domain.errors import Conflict, InvalidInput, NotFound
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.domain.ids import TRIAL_ID

ROOT = "/api/v1/nni"
#: Key of the experiment's id in the scope's state, set by the router.
EXPERIMENT = "nni_experiment"
_JSON = "application/json; charset=utf-8"


def experiment_of(scope: Scope) -> str:
    return cast(str, scope["state"][EXPERIMENT])


def addressed(request: Request) -> tuple[ApiContext, str]:
    """(parts of the daemon, id of the request's experiment)."""
    return cast(ApiContext, request.app.state.context), experiment_of(request.scope)


async def require_known(context: ApiContext, id_: str) -> None:
    """Raise NotFound unless the experiment is known."""
    if context.commands.at_work(id_) is None:
        await context.commands.entry(id_)


def trial_of(request: Request) -> str:
    """The trial's id in the path. Raises NotFound for a malformed id."""
    id_ = str(request.path_params["id"])
    if TRIAL_ID.fullmatch(id_) is None:
        raise NotFound(f"{id_!r} is not a trial id; `nnictl trial ls` shows all")
    return id_


async def require_writable(context: ApiContext, id_: str) -> None:
    """Raise Conflict for an experiment that is open for reading; `ExperimentCommands` refuses other closed ones."""
    if context.commands.at_work(id_) is not None:
        return
    if (await context.commands.entry(id_)).status is ExperimentStatus.VIEWED:
        raise Conflict(
            f"experiment {id_} is open in readonly mode; run `nnictl stop {id_}`, then `nnictl resume {id_}`"
        )


async def read_json(request: Request) -> Any:
    """The JSON body, with any content type. Raises InvalidInput."""
    try:
        return json.loads(await request.body())
    except RecursionError:
        raise InvalidInput("the body is nested too deeply") from None
    except ValueError as error:  # includes UnicodeDecodeError
        raise InvalidInput(f"the body is not JSON: {error}") from None


def json_text(text: bytes | str) -> Response:
    """An answer with this JSON text."""
    return Response(text, headers={"Content-Type": _JSON})


def listed(items: bytes) -> Response:
    """A JSON list of comma-separated items."""
    return json_text(b"[" + items + b"]")


def nothing() -> Response:
    """The empty answer. NNI's clients parse an answer only if it has a body."""
    return Response(media_type="application/json")
