"""Authentication and RBAC: tokens, client certificates and stored role objects."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.fakes.kubernetes import refusals
from tests.fakes.kubernetes.store import Object, Store

MASTERS = "system:masters"
_RBAC = ".rbac.authorization.k8s.io"


@dataclass(frozen=True)
class User:
    """A user or a service account."""

    name: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Attributes:
    """Attributes of a request for authorization."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def full_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass
class _Token:
    user: str
    groups: list[str]
    expires: float | None = None


class Tokens:
    """Bearer tokens; those of users are stored in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tokens: dict[str, _Token] = {}
        if path.exists():
            self._tokens = {name: _Token(**value) for name, value in json.loads(path.read_text()).items()}

    def issue(self, user: str, groups: tuple[str, ...] = (), seconds: float | None = None, token: str = "") -> str:
        token = token or f"k8s-{secrets.token_urlsafe(24)}"
        expires = None if seconds is None else time.time() + seconds
        self._tokens[token] = _Token(user, list(groups), expires)
        self._write()
        return token

    def expire(self, user: str) -> None:
        """Revoke all tokens of a user."""
        for token in self._tokens.values():
            if token.user == user:
                token.expires = 0.0
        self._write()

    def user(self, token: str) -> User:
        known = self._tokens.get(token)
        if known is None or (known.expires is not None and known.expires <= time.time()):
            raise refusals.unauthorized()
        return User(known.user, (*known.groups, "system:authenticated"))

    def _write(self) -> None:
        self._path.write_text(json.dumps({name: asdict(token) for name, token in self._tokens.items()}))


def of_certificate(certificate: dict[str, Any]) -> User:
    """CN is the user, each O a group."""
    parts = [pair for relative in certificate.get("subject", ()) for pair in relative]
    name = next((value for key, value in parts if key == "commonName"), "")
    groups = tuple(value for key, value in parts if key == "organizationName")
    return User(name, (*groups, "system:authenticated"))


def of_account(namespace: str, name: str) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(f"system:serviceaccount:{namespace}:{name}", groups)


class Rules:
    """Rights that Roles and ClusterRoles grant."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def allow(self, user: User, wanted: Attributes) -> bool:
        if MASTERS in user.groups or wanted.resource in ("selfsubjectaccessreviews", "selfsubjectreviews"):
            return True
        return any(_grants(rule, wanted) for rule in self._rules(user, wanted.namespace))

    def require(self, user: User, wanted: Attributes) -> None:
        if not self.allow(user, wanted):
            resource = wanted.full_resource
            raise refusals.forbidden(user.name, wanted.verb, resource, wanted.group, wanted.namespace, wanted.name)

    def _rules(self, user: User, namespace: str) -> Iterator[dict[str, Any]]:
        for binding in self._store.all(f"clusterrolebindings{_RBAC}"):
            if _binds(binding, user):
                yield from self._of_role(binding, "")
        for binding in self._store.all(f"rolebindings{_RBAC}", namespace) if namespace else ():
            if _binds(binding, user):
                yield from self._of_role(binding, namespace)

    def _of_role(self, binding: Object, namespace: str) -> list[dict[str, Any]]:
        reference = binding["roleRef"]
        if reference["kind"] == "ClusterRole":
            role = self._store.get(f"clusterroles{_RBAC}", ("", reference["name"]))
        else:
            role = self._store.get(f"roles{_RBAC}", (namespace, reference["name"]))
        return (role or {}).get("rules") or []


def _binds(binding: Object, user: User) -> bool:
    for subject in binding.get("subjects") or []:
        name = subject["name"]
        if subject["kind"] == "ServiceAccount":
            name = f"system:serviceaccount:{subject.get('namespace', '')}:{name}"
        if name == user.name or (subject["kind"] == "Group" and name in user.groups):
            return True
    return False


def _grants(rule: dict[str, Any], wanted: Attributes) -> bool:
    def has(member: str, value: str) -> bool:
        return bool({"*", value} & set(rule.get(member) or []))

    names = rule.get("resourceNames") or []
    resource = has("resources", wanted.full_resource) or (
        bool(wanted.subresource) and f"*/{wanted.subresource}" in (rule.get("resources") or [])
    )
    return (
        has("verbs", wanted.verb)
        and has("apiGroups", wanted.group)
        and resource
        and (not names or wanted.name in names)
    )
