"""TensorBoards of an experiment: start, addresses, stop."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nni_manager.domain.errors import InvalidInput, NniManagerError
from nni_manager.scheduler.tensorboard import folders
from nni_manager.store.connection import Connection
from nni_manager.store.experiment import trial_reads
from nni_manager.web.experiment_pages import render_tab
from nni_manager.web.rendering import context_of, experiment_id, form_of, to_experiment
from nni_manager.web.shared_pages import of_experiment, shared

#: Default number of trials shown.
_NEWEST = 10


async def _page(request: Request) -> Response:
    return await _render(request, wanted=request.query_params.get("trials", ""))


async def _start(request: Request) -> Response:
    """Start a TensorBoard for the trials in the form; errors are shown next to the form."""
    wanted = (await form_of(request)).get("trials", [""])[0]
    context, id_ = context_of(request), experiment_id(request)
    try:
        numbers = _numbers(wanted)
        ids = await context.commands.read(id_, lambda c: _ids(c, numbers))
        await context.commands.tensorboards.start(id_, ids)
    except NniManagerError as error:
        return await _render(request, wanted=wanted, error=str(error), status=HTTPStatus.BAD_REQUEST)
    return to_experiment(request, "/tensorboard")


async def _stop(request: Request) -> Response:
    boards = context_of(request).commands.tensorboards
    await boards.stop(boards.get(experiment_id(request), request.path_params["board"]))
    return to_experiment(request, "/tensorboard")


async def _render(request: Request, *, wanted: str, error: str = "", status: int = HTTPStatus.OK) -> Response:
    boards = context_of(request).commands.tensorboards.of(experiment_id(request))
    return await render_tab(
        request, "tensorboard.html", tab="tensorboard", status=status, boards=boards, wanted=wanted, error=error
    )


def _state(request: Request) -> str | None:
    """State of the experiment and of its TensorBoards."""
    of_it = of_experiment(request)
    boards = context_of(request).commands.tensorboards.of(experiment_id(request))
    return None if of_it is None else " ".join((of_it, *(f"{board.id}:{board.status}" for board in boards)))


def _numbers(text: str) -> list[int]:
    """Raises InvalidInput."""
    words = text.replace(",", " ").split()
    if not all(word.isascii() and word.isdecimal() and len(word) < 16 for word in words):
        raise InvalidInput("trials: must be trial numbers, such as 3, 17")
    return [int(word) for word in words]


def _ids(connection: Connection, numbers: list[int]) -> list[str]:
    """Raises NotFound."""
    if numbers:
        return [trial_reads.id_of(connection, number) for number in numbers]
    return folders.newest_trials(connection, _NEWEST)


_HERE = "/experiments/{id}/tensorboard"
ROUTES = [
    Route(_HERE, shared(_page, _state)),
    Route(_HERE, _start, methods=["POST"]),
    Route(f"{_HERE}/{{board}}/stop", _stop, methods=["POST"]),
]
