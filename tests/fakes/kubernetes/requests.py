"""Parsing of paths and queries."""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from dataclasses import dataclass, field
from typing import Any

import yaml
from aiohttp import web

from tests.fakes.kubernetes import refusals
from tests.fakes.kubernetes.access import Attributes
from tests.fakes.kubernetes.kinds import Kind, Kinds
from tests.fakes.kubernetes.store import Object


@dataclass(frozen=True)
class Target:
    """The resource that a path names."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def attributes(self, verb: str) -> Attributes:
        namespace = (
            self.name if self.kind.plural == "namespaces" else self.namespace
        )  # a Role in it may grant reading it
        return Attributes(verb, self.kind.group, self.kind.plural, namespace, self.name, self.subresource)


def target(kinds: Kinds, path: str) -> Target:
    """`/api/v1/…` or `/apis/GROUP/VERSION/…`."""
    parts = [part for part in path.split("/") if part]
    group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    kind = kinds.find(group, version, rest[0]) if rest else None
    if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
        raise refusals.no_such_resource()
    name, subresource = (*rest[1:], "", "")[:2]
    if kind.namespaced and not namespace and name:
        raise refusals.no_such_resource()
    known = {
        "status": kind.has_status,
        "log": kind.key == "pods",
        "exec": kind.key == "pods",
        "eviction": kind.key == "pods",
        "token": kind.key == "serviceaccounts",
        "": True,
    }
    if not known.get(subresource, False):
        raise refusals.no_such_resource()
    return Target(kind, namespace, name, subresource)


async def body(request: web.Request) -> Any:
    """Parse JSON, or YAML by its content type."""
    raw = await request.read()
    try:
        if "yaml" in request.content_type:
            return yaml.safe_load(raw)
        return json.loads(raw) if raw else None
    except (ValueError, yaml.YAMLError) as error:
        raise refusals.bad_request(f"error decoding the body: {error}") from error


def flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "") in ("true", "1", "True")


def whole(request: web.Request, name: str) -> int | None:
    text = request.query.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise refusals.bad_request(
            f'unable to decode query parameter {name}: strconv.ParseInt: parsing "{text}"'
        ) from error


@dataclass
class Pages:
    """Paged lists: each page shows the state at the time of the first."""

    _held: dict[str, list[Object]] = field(default_factory=dict)

    def cut(
        self, items: list[Object], limit: int | None, token: str, revision: int
    ) -> tuple[list[Object], dict[str, Any]]:
        """One page with its metadata."""
        if token:
            key, start, revision = self._read(token)
            items = self._held[key]
        else:
            key, start = secrets.token_hex(6), 0
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if limit and start + limit < len(items):
            self._held[key] = items
            written = json.dumps([key, start + limit, revision]).encode()
            metadata["continue"] = base64.urlsafe_b64encode(written).decode()
            metadata["remainingItemCount"] = len(items) - start - limit
        return (items[start : start + limit] if limit else items[start:]), metadata

    def forget(self) -> None:
        """Expire all earlier `continue` tokens."""
        self._held.clear()

    def _read(self, token: str) -> tuple[str, int, int]:
        try:
            key, start, revision = json.loads(base64.urlsafe_b64decode(token))
        except (ValueError, binascii.Error) as error:
            raise refusals.bad_request("continue key is not valid") from error
        if key not in self._held:
            raise refusals.expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new "
                "list without the continue parameter."
            )
        return key, start, revision
