"""Secrets in a kubeconfig, which an exec plug-in may repeat in its words, and tokens that it was given elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

#: Fields of a user that are secret. Certificates are not.
_SECRET_FIELDS = ("token", "password", "client-key-data")
#: ``--client-secret X`` and ``--client-secret=X``.
_SECRET_OPTION = re.compile(r"-.*(?:secret|password|passwd|token|key|credential)[^=]*(?:=(?P<value>.*))?", re.I | re.S)
#: A JSON Web Token, or what follows `Bearer` and `Basic` in a header.
_TOKEN = re.compile(r"\beyJ[\w-]+(?:\.[\w-]*)*|(?<=\bBearer )[^\s\"']+|(?<=\bBasic )[^\s\"']+")


def of(users: Iterable[Any]) -> Iterator[str]:
    """The secrets of all users, of each its own, its plug-in's variables, and its options by name. `users`: nodes of
    the library, ``{"name", "user"}``."""
    for node in users:
        user = node.value.get("user") or {}
        yield from (str(user[name]) for name in _SECRET_FIELDS if user.get(name))
        provider, plug_in = user.get("auth-provider") or {}, user.get("exec") or {}
        yield from map(str, (provider.get("config") or {}).values())
        yield from (str(one.get("value", "")) for one in plug_in.get("env") or ())
        yield from _of_options([str(one) for one in plug_in.get("args") or ()])


def _of_options(arguments: list[str]) -> Iterator[str]:
    for number, argument in enumerate(arguments):
        if (option := _SECRET_OPTION.fullmatch(argument)) is not None:
            yield from arguments[number + 1 : number + 2] if option["value"] is None else [option["value"]]


def without_tokens(text: str) -> str:
    """The text without what has the form of a token."""
    return _TOKEN.sub("***", text)
