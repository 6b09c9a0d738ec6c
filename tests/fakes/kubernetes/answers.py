"""Answers to requests about objects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from tests.fakes.kubernetes import defaults, refusals, requests
from tests.fakes.kubernetes.access import User
from tests.fakes.kubernetes.cluster import Cluster
from tests.fakes.kubernetes.discovery import as_table
from tests.fakes.kubernetes.jobs import kind as jobs
from tests.fakes.kubernetes.kinds import JOBS
from tests.fakes.kubernetes.kubelet import statuses
from tests.fakes.kubernetes.requests import Target
from tests.fakes.kubernetes.store import Object

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
#: Default audience of a token: the server's own.
_AUDIENCE = "https://kubernetes.default.svc.cluster.local"


class Answers:
    """Of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._verbs = cluster, cluster.verbs

    async def answer(self, request: web.Request, user: User) -> web.StreamResponse:
        target = requests.target(self._cluster.kinds, request.path)
        watch = request.method == "GET" and requests.flag(request, "watch")
        verb = self._verb(request, target, watch)
        self._cluster.count(verb, target)
        await self._cluster.audit.note(request, user.name, verb, target)
        self._cluster.rules.require(user, target.attributes(verb))
        if special := self._special(target):
            return await special(request, target)
        if watch:
            fault = self._cluster.faults.take(request.method, request.path, watch=True)
            return await self._cluster.watches.answer(request, target, fault)
        answer = getattr(self, f"_{verb}")
        return await answer(request, target)

    def _verb(self, request: web.Request, target: Target, watch: bool) -> str:
        if request.method == "GET":
            return "watch" if watch else "get" if target.name else "list"
        verb = _VERBS.get(request.method)
        allowed = (verb and (verb != "create") == bool(target.name)) or target.subresource or verb == "delete"
        if verb is None or not allowed:
            raise refusals.Refused(
                405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
            )
        return "deletecollection" if verb == "delete" and not target.name else verb

    def _special(self, target: Target) -> Callable[[web.Request, Target], Awaitable[web.StreamResponse]] | None:
        """Subresources that are not part of the object."""
        return {"log": self._cluster.logs.answer, "exec": self._cluster.execs.answer, "eviction": self._evict}.get(
            target.subresource
        )

    async def _get(self, request: web.Request, target: Target) -> web.Response:
        found = self._verbs.get(target.kind, target.namespace, target.name)
        return web.json_response(as_table(request, target.kind, [found]) or found)

    async def _list(self, request: web.Request, target: Target) -> web.Response:
        query = request.query
        version = query.get("resourceVersion", "")
        if version and not version.isdigit():
            raise refusals.bad_request(f"resourceVersion: Invalid value: {version!r}")
        if version and int(version) > self._cluster.store.revision:
            raise refusals.Refused(504, "Timeout", f"Too large resource version: {version}")
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        items = self._verbs.all(target.kind, target.namespace or None, labels, fields)
        limit, token = requests.whole(request, "limit"), query.get("continue", "")
        items, metadata = self._cluster.pages.cut(items, limit, token, self._cluster.store.revision)
        kind = target.kind
        if table := as_table(request, kind, items):
            return web.json_response({**table, "metadata": metadata})
        listed = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata, "items": items}
        return web.json_response(listed)

    async def _create(self, request: web.Request, target: Target) -> web.Response:
        given = await requests.body(request)
        if target.subresource == "token":
            return web.json_response(self._token(target, given or {}), status=201)
        strict = request.query.get("fieldValidation") == "Strict"
        made = self._verbs.create(target.kind, target.namespace, given, bool(request.query.get("dryRun")), strict)
        return self._written(made, 201)

    async def _update(self, request: web.Request, target: Target) -> web.Response:
        given = await requests.body(request)
        changed = self._verbs.update(
            target.kind,
            target.namespace,
            target.name,
            given,
            target.subresource,
            bool(request.query.get("dryRun")),
            request.query.get("fieldValidation") == "Strict",
        )
        return self._written(changed)

    async def _patch(self, request: web.Request, target: Target) -> web.Response:
        given, how = await requests.body(request), request.content_type
        strict = request.query.get("fieldValidation") == "Strict"
        before = self._verbs.find(target.kind, target.namespace, target.name)
        changed = self._verbs.patch(
            target.kind,
            target.namespace,
            target.name,
            given,
            how,
            target.subresource,
            bool(request.query.get("dryRun")),
            strict,
        )
        return self._written(changed, 200 if before else 201)

    async def _delete(self, request: web.Request, target: Target) -> web.Response:
        options = await self._options(request)
        obj, gone = self._verbs.delete(target.kind, target.namespace, target.name, options)
        self._warn_of_orphans(target, options)
        if not gone or target.kind.key == "pods":
            return self._written(obj)
        metadata = obj["metadata"]
        details = {
            "name": metadata["name"],
            "group": target.kind.group,
            "kind": target.kind.plural,
            "uid": metadata["uid"],
        }
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return self._written(status)

    def _warn_of_orphans(self, target: Target, options: dict[str, Any]) -> None:
        if target.kind.key == JOBS.key and not options.keys() & {"propagationPolicy", "orphanDependents"}:
            self._verbs.warnings.append(jobs.ORPHANING)

    async def _deletecollection(self, request: web.Request, target: Target) -> web.Response:
        if target.kind.namespaced and not target.namespace:
            raise refusals.Refused(
                405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
            )
        options = await self._options(request)
        query = request.query
        found = self._verbs.all(
            target.kind, target.namespace, query.get("labelSelector", ""), query.get("fieldSelector", "")
        )
        items = [
            self._verbs.delete(target.kind, target.namespace, each["metadata"]["name"], options)[0] for each in found
        ]
        kind = target.kind
        metadata = {"resourceVersion": str(self._cluster.store.revision)}
        self._warn_of_orphans(target, options)
        return self._written(
            {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata, "items": items}
        )

    async def _evict(self, request: web.Request, target: Target) -> web.Response:
        given = await requests.body(request)
        pod = self._verbs.get(target.kind, target.namespace, target.name)
        told = statuses.condition("DisruptionTarget", True, "EvictionByEvictionAPI", "Eviction API: evicting")
        held = statuses.conditions(pod["status"].get("conditions") or [], [told])
        self._verbs.set_status(target.kind, target.namespace, target.name, {**pod["status"], "conditions": held})
        self._verbs.delete(target.kind, target.namespace, target.name, (given or {}).get("deleteOptions"))
        return web.json_response(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}, status=201
        )

    async def _options(self, request: web.Request) -> dict[str, Any]:
        """Options in the body, or in the query as older clients send them."""
        options = dict(await requests.body(request) or {})
        for name in ("propagationPolicy", "gracePeriodSeconds", "orphanDependents", "dryRun"):
            if name in request.query:
                text = request.query[name]
                options[name] = int(text) if text.isdigit() else text == "true" if text in ("true", "false") else text
        policy = options.get("propagationPolicy")
        if policy not in (None, "Foreground", "Background", "Orphan"):
            told = f'Unsupported value: "{policy}": supported values: "Foreground", "Background", "Orphan"'
            raise refusals.invalid(
                "DeleteOptions", "meta.k8s.io", "", [("propagationPolicy", "FieldValueNotSupported", told)]
            )
        return options

    def _token(self, target: Target, given: Object) -> Object:
        """TokenRequest: a service account's token."""
        self._verbs.get(target.kind, target.namespace, target.name)
        spec = {"expirationSeconds": 3600, "boundObjectRef": None, **(given.get("spec") or {})}
        spec["audiences"] = spec.get("audiences") or [_AUDIENCE]
        token = self._cluster.account_token(target.namespace, target.name, spec["expirationSeconds"])
        return {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {},
            "spec": spec,
            "status": {"token": token, "expirationTimestamp": defaults.now(spec["expirationSeconds"])},
        }

    def _written(self, obj: Object, status: int = 200) -> web.Response:
        response = web.json_response(obj, status=status)
        for warning in self._verbs.warnings:
            quoted = warning.replace('"', '\\"')
            response.headers.add("Warning", f'299 - "{quoted}"')
        self._verbs.warnings.clear()
        return response
