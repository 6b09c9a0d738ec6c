"""Errors with the messages and codes of a Kubernetes API server."""

from __future__ import annotations

from typing import Any


class Refused(Exception):
    """A request that is answered by a `Status` of failure."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        self.details, self.headers = details or {}, headers or {}

    def status(self) -> dict[str, Any]:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }


def not_found(resource: str, group: str, name: str) -> Refused:
    full = f"{resource}.{group}" if group else resource
    details = {"name": name, "group": group, "kind": resource}
    return Refused(404, "NotFound", f'{full} "{name}" not found', details)


def no_such_resource() -> Refused:
    return Refused(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(resource: str, group: str, name: str) -> Refused:
    full = f"{resource}.{group}" if group else resource
    details = {"name": name, "group": group, "kind": resource}
    return Refused(409, "AlreadyExists", f'{full} "{name}" already exists', details)


def conflict(resource: str, group: str, name: str, why: str = "") -> Refused:
    full = f"{resource}.{group}" if group else resource
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    details = {"name": name, "group": group, "kind": resource}
    return Refused(409, "Conflict", f'Operation cannot be fulfilled on {full} "{name}": {why}', details)


def invalid(kind: str, group: str, name: str, causes: list[tuple[str, str, str]]) -> Refused:
    """`causes`: field, reason (`FieldValueInvalid`, `FieldValueRequired`, …), message."""
    full = f"{kind}.{group}" if group else kind
    told = [f"{field}: {message}" for field, _, message in causes]
    text = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    details = {
        "name": name,
        "group": group,
        "kind": kind,
        "causes": [{"reason": reason, "message": message, "field": field} for field, reason, message in causes],
    }
    return Refused(422, "Invalid", f'{full} "{name}" is invalid: {text}', details)


def bad_request(message: str) -> Refused:
    return Refused(400, "BadRequest", message)


def forbidden(user: str, verb: str, resource: str, group: str, namespace: str, name: str) -> Refused:
    full = f"{resource}.{group}" if group else resource
    named = f' "{name}"' if name else ""
    where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
    said = f'User "{user}" cannot {verb} resource "{resource}" in API group "{group}"{where}'
    details = {"name": name, "group": group, "kind": resource}
    return Refused(403, "Forbidden", f"{full}{named} is forbidden: {said}", details)


def unauthorized() -> Refused:
    return Refused(401, "Unauthorized", "Unauthorized")


def expired(message: str) -> Refused:
    return Refused(410, "Expired", message)


def too_old(asked: int, oldest: int) -> Refused:
    return expired(f"too old resource version: {asked} ({oldest})")
