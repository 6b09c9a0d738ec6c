"""Configs as they may be shown: values of secrets are masked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from nni_manager.config.secrets import MASK, is_reference

#: Names that match `_SECRET` without being secrets.
_PLAIN = frozenset({"keyVaultKey"})
#: ``accessKeySecret``, ``storageAccountKey``, ``sshPassphrase``; not ``sshKeyFile``, which is a path.
_SECRET = re.compile(r"password|passphrase|token|secret|credential|key$", re.IGNORECASE)
#: Sections with user-chosen names of arguments. The names are judged word by word, in doubt as secrets.
_ALGORITHMS = ("tuner", "assessor", "advisor")
_ARGUMENTS = "classArgs"
#: Secret anywhere in a name and with any value.
_ALWAYS = re.compile(r"password|passphrase|secret|credential", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
#: Words with which ``token`` belongs to a language model, and ``key`` to a table.
_PLAIN_TOKEN = frozenset("max min num n count total pad bos eos unk sep cls mask special".split())
_PLAIN_KEY = frozenset("sort group metric partition order index column".split())
#: Not masked: its keys are names of dimensions.
_SEARCH_SPACE = "searchSpace"


def mask(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with `MASK` in place of every value, at any depth, with a name that indicates a secret."""
    return {key: value if key == _SEARCH_SPACE else _mask_section(key, value) for key, value in config.items()}


def _mask_section(key: str, value: Any) -> Any:
    if key not in _ALGORITHMS or not isinstance(value, Mapping):
        return _mask(key, value, _is_secret)
    return {
        name: _mask(name, inner, _is_secret_argument if name == _ARGUMENTS else _is_secret)
        for name, inner in value.items()
    }


def _mask(key: str, value: Any, is_secret: Callable[[str, Any], bool]) -> Any:
    if is_secret(key, value):
        return MASK
    if isinstance(value, Mapping):
        return {name: _mask(name, inner, is_secret) for name, inner in value.items()}
    if isinstance(value, list):
        return [_mask(key, inner, is_secret) for inner in value]
    return value


def _is_secret(key: str, value: Any) -> bool:
    return value is not None and _SECRET.search(key) is not None and key not in _PLAIN and not is_reference(value)


def _is_secret_argument(key: str, value: Any) -> bool:
    if _ALWAYS.search(key):
        return value is not None
    if value is None or isinstance(value, bool):
        return False
    words = [word.lower() for word in _WORD.findall(key)]
    is_token = any(word.endswith(("token", "tokens")) for word in words) and _PLAIN_TOKEN.isdisjoint(words)
    is_key = bool(words) and words[-1].endswith("key") and _PLAIN_KEY.isdisjoint(words)
    return is_token or is_key
