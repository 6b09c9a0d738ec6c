"""Discovery: versions, groups, resources, and the tables that kubectl prints."""

from __future__ import annotations

import re
from typing import Any

from aiohttp import web

from tests.fakes.kubernetes import refusals
from tests.fakes.kubernetes.access import Attributes, Rules, User
from tests.fakes.kubernetes.kinds import Kind, Kinds
from tests.fakes.kubernetes.store import Object

_REVIEWS = {
    "authorization.k8s.io": [("selfsubjectaccessreviews", "SelfSubjectAccessReview")],
    "authentication.k8s.io": [("selfsubjectreviews", "SelfSubjectReview")],
}


def version(minor: int) -> dict[str, str]:
    return {
        "major": "1",
        "minor": str(minor),
        "gitVersion": f"v1.{minor}.0",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2025-01-01T00:00:00Z",
        "goVersion": "go1.23",
        "compiler": "gc",
        "platform": "linux/amd64",
    }


def described(kinds: Kinds, path: str) -> dict[str, Any] | None:
    """The answer to `/api`, `/apis` and the level below; None for other paths."""
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            groups = [_group(name, versions) for name, versions in kinds.groups().items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", "v1"]:
            return _resources(kinds, "", "v1")
        case ["apis", group]:
            if group not in kinds.groups():
                raise refusals.no_such_resource()
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, kinds.groups()[group])}
        case ["apis", group, one]:
            if one not in kinds.groups().get(group, ()):
                raise refusals.no_such_resource()
            return _resources(kinds, group, one)
    return None


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    told = [{"groupVersion": f"{name}/{each}", "version": each} for each in versions]
    return {"name": name, "versions": told, "preferredVersion": told[0]}


def _resources(kinds: Kinds, group: str, one: str) -> dict[str, Any]:
    served = [kind for kind in kinds if (kind.group, kind.version) == (group, one)]
    resources = [told for kind in served for told in kind.described()]
    resources += [
        {"name": name, "singularName": "", "namespaced": False, "kind": kind, "verbs": ["create"]}
        for name, kind in _REVIEWS.get(group, ())
    ]
    together = f"{group}/{one}" if group else one
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": together, "resources": resources}


_OF_OTHERS = re.compile(r"/apis/authorization\.k8s\.io/v1/namespaces/([^/]+)/localsubjectaccessreviews")


def review(rules: Rules, user: User, path: str, given: Object) -> Object | None:
    """The answer to an access review of the caller, or of others if allowed; None for other paths."""
    spec = given.get("spec") or {}
    if path == "/apis/authentication.k8s.io/v1/selfsubjectreviews":
        info = {"username": user.name, "groups": list(user.groups)}
        return {
            "kind": "SelfSubjectReview",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {},
            "status": {"userInfo": info},
        }
    about, kind = user, "SelfSubjectAccessReview"
    if found := _OF_OTHERS.fullmatch(path):
        rules.require(user, Attributes("create", "authorization.k8s.io", "localsubjectaccessreviews", found[1]))
        about, kind = User(spec.get("user", ""), tuple(spec.get("groups") or ())), "LocalSubjectAccessReview"
    elif path != "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
        return None
    asked = spec.get("resourceAttributes") or {}
    wanted = Attributes(
        asked.get("verb", ""),
        asked.get("group", ""),
        asked.get("resource", ""),
        asked.get("namespace", ""),
        asked.get("name", ""),
        asked.get("subresource", ""),
    )
    allowed = rules.allow(about, wanted)
    status = {"allowed": allowed} if allowed else {"allowed": False, "reason": "no rule of RBAC allows it"}
    return {
        **given,
        "kind": kind,
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": given.get("metadata") or {},
        "status": status,
    }


def as_table(request: web.Request, kind: Kind, items: list[Object]) -> Object | None:
    """A table, if the client requests one, like kubectl; else None."""
    if "as=Table" not in request.headers.get("Accept", ""):
        return None
    columns = [
        {"name": name, "type": "string", "format": "", "description": "", "priority": 0}
        for name in ("Name", "State", "Created")
    ]
    rows = [
        {
            "cells": [each["metadata"]["name"], _state(each), each["metadata"]["creationTimestamp"]],
            "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": each["metadata"]},
        }
        for each in items
    ]
    return {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "columnDefinitions": columns, "rows": rows}


def _state(obj: Object) -> str:
    status = obj.get("status") or {}
    true = [each["type"] for each in status.get("conditions") or [] if each.get("status") == "True"]
    return str(status.get("phase") or status.get("state") or (true[-1] if true else ""))
