"""TensorBoard is not started by this version: what asks for it hears so in a sentence."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nni_manager.api.nni.addressed import listed, nothing

_SENTENCE = (
    "TensorBoard is not started by this version; run `tensorboard --logdir <folder>` on the folders that"
    " `nnictl log trial` names"
)


async def refuse(_: Request) -> Response:
    """400, as NNI answers where there is no TensorBoard."""
    return JSONResponse({"error": _SENTENCE}, 400)


async def list_all(_: Request) -> Response:
    """There is none; the page asks for the list all the time, and must not see an error there."""
    return listed(b"")


async def stop_all(_: Request) -> Response:
    return nothing()
