"""The audit log: user and verb of each request, and labels of its object."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from tests.fakes.kubernetes import requests
from tests.fakes.kubernetes.requests import Target
from tests.fakes.kubernetes.verbs import Verbs


class Audit:
    """Records all requests, including denied ones."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        #: user, verb, resource, subresource, namespace, name, selector, dryRun, and `labels` of the object at that time
        #: or at its creation; None: no object named, or it does not exist.
        self.entries: list[dict[str, Any]] = []

    async def note(self, request: web.Request, user: str, verb: str, target: Target) -> None:
        found: Any = None
        if verb == "create" and not target.subresource:
            found = await requests.body(request)
        elif target.name:
            found = self._verbs.find(target.kind, target.namespace, target.name)
        meta = (found if isinstance(found, dict) else {}).get("metadata") or {}
        query = request.query
        self.entries.append(
            {
                "user": user,
                "verb": verb,
                "resource": target.kind.key,
                "subresource": target.subresource,
                "namespace": target.namespace,
                "name": target.name or meta.get("name", ""),
                "selector": query.get("labelSelector", "") or query.get("fieldSelector", ""),
                "dryRun": bool(query.get("dryRun")),
                "labels": meta.get("labels") or {} if found else None,
            }
        )
