"""Users, their tokens, and the rights of requests."""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fakes.openpai.protocol import Refused

#: Default clusters of a user.
CLUSTERS = ("default",)


class Accounts:
    """Name → `tokens`, `password`, and optionally `clusters`, `storages`. Persistent."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "users.json"
        self._numbers = itertools.count(1)
        self.users: dict[str, dict[str, Any]] = {}
        if self._file.exists():
            self.users = json.loads(self._file.read_text())

    def replace(self, users: Mapping[str, Mapping[str, Any]]) -> None:
        """Revoke tokens from logins."""
        self.users = {name: {"tokens": [], "password": "", **user} for name, user in users.items()}
        self._save()

    def named_by(self, authorization: str) -> str:
        """The user of a request's header."""
        if not authorization:
            raise _unauthorized("Guest is not allowed to do this operation.")
        scheme, _, credentials = authorization.partition(" ")
        token = credentials if scheme.lower() == "bearer" else ""
        if scheme.lower() == "basic":  # user and application token
            try:
                token = base64.b64decode(credentials).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                token = ""
        for name, user in self.users.items():
            if token and token in user["tokens"]:
                return name
        raise _unauthorized("Your token is invalid.")

    def login(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """A new token for a password."""
        name, password = str(told.get("username", "")), str(told.get("password", ""))
        if not re.fullmatch(r"[\w.-]+", name):
            raise Refused(400, "InvalidParametersError", 'child "username" fails')
        if len(password) < 6:
            words = 'child "password" fails because ["password" length must be at least 6 characters long]'
            raise Refused(400, "InvalidParametersError", words)
        if name not in self.users:
            raise Refused(400, "NoUserError", f"User {name} is not found.")
        user = self.users[name]
        if password != user["password"]:
            raise Refused(400, "IncorrectPasswordError", "Password is incorrect.")
        token = f"token-{next(self._numbers)}-of-{name}-for-{len(user['tokens'])}"
        user["tokens"].append(token)
        self._save()
        return {"user": name, "token": token, "admin": False, "hasGitHubPAT": None}

    def shown(self, name: str) -> dict[str, Any]:
        if name not in self.users:
            raise Refused(400, "NoUserError", f"User {name} is not found.")
        return {
            "username": name,
            "email": f"{name}@example.com",
            "grouplist": ["default"],
            "extension": {},
            "admin": False,
            "virtualCluster": list(self.clusters(name)),
            "storageConfig": [],
        }

    def clusters(self, name: str) -> tuple[str, ...]:
        return tuple(self.users[name].get("clusters", CLUSTERS))

    def _save(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self.users))


def _unauthorized(message: str) -> Refused:
    return Refused(401, "UnauthorizedUserError", message)
