"""Views on the wire ↔ views in the domain."""

from __future__ import annotations

from pathlib import Path

from nni_manager.api.context import ApiContext
from nni_manager.api.schemas import experiments as schema
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.view import View, ViewWish, parse_prefix


def wish(new: schema.NewView | None) -> ViewWish | None:
    """Raises InvalidInput."""
    return None if new is None else ViewWish(port=new.port, prefix=parse_prefix(new.url_prefix))


def describe(context: ApiContext, view: View | None) -> schema.ExperimentView | None:
    if view is None:
        return None
    return schema.ExperimentView(port=view.port, url_prefix=view.prefix, url=context.service.view_url(view))


def directory(text: str | None) -> Path | None:
    """Raises InvalidInput for what cannot be a path."""
    if text is not None and "\0" in text:
        raise InvalidInput("workingDirectory: holds a null byte; name the folder that holds the experiment's folder")
    return Path(text) if text is not None else None
