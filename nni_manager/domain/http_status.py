"""Domain error → HTTP status: one table, for API and pages."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from nni_manager.domain import errors

#: The nearest class counts.
STATUS: Mapping[type[Exception], HTTPStatus] = {
    errors.InvalidInput: HTTPStatus.BAD_REQUEST,
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.Conflict: HTTPStatus.CONFLICT,
    errors.AlreadyOwned: HTTPStatus.CONFLICT,
    errors.StoreUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.PlatformUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.NniManagerError: HTTPStatus.INTERNAL_SERVER_ERROR,
}


def status_of(error: Exception) -> HTTPStatus:
    """500 for what is in no table."""
    classes = (STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    return next(classes, HTTPStatus.INTERNAL_SERVER_ERROR)
