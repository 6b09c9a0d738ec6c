"""All routes in one application, without a door: `app` puts the guard around it and serves it."""

from __future__ import annotations

from fastapi import FastAPI

from nni_manager.api import daemon, errors, events, experiments, health, logs, metrics, openapi, trials
from nni_manager.api.context import ApiContext

_ROUTES = (experiments, trials, metrics, logs, events, daemon, health)
#: Everything else is the pages'.
PREFIXES = ("/api/", "/healthz", "/readyz")


def create_api(context: ApiContext) -> FastAPI:
    """Serves what lies below `PREFIXES`."""
    api = FastAPI(
        title="nni_manager", version=context.version, openapi_url="/api/v1/openapi.json", docs_url=None,
        redoc_url=None, redirect_slashes=False,
    )  # fmt: skip
    api.state.context = context
    for module in _ROUTES:
        api.include_router(module.router)
    errors.install(api)
    openapi.install(api)
    return api
