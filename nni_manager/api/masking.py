"""Secrets in a config, covered before it leaves the daemon."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from nni_manager.config.secrets import MASK, is_reference

#: Names that sound like a secret and are none.
_PLAIN = frozenset({"keyVaultKey"})
#: ``accessKeySecret``, ``storageAccountKey``, ``sshPassphrase``; not ``sshKeyFile``, which is a path.
_SECRET = re.compile(r"password|passphrase|token|secret|credential|key$", re.IGNORECASE)
#: Arguments of the user's own algorithms have any names, and a masked one cannot be used again: here names are judged
#: word by word, and in doubt as secrets.
_ALGORITHMS = ("tuner", "assessor", "advisor")
_ARGUMENTS = "classArgs"
#: Secret wherever they occur in a name, and whatever the value is.
_ALWAYS = re.compile(r"password|passphrase|secret|credential", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
#: Words that make ``token`` one of a language model's, and ``key`` one of a table's.
_PLAIN_TOKEN = frozenset("max min num n count total pad bos eos unk sep cls mask special".split())
_PLAIN_KEY = frozenset("sort group metric partition order index column".split())
#: Its keys are the user's names of dimensions.
_SEARCH_SPACE = "searchSpace"


def mask(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with `MASK` in place of every value whose name sounds like a secret, however deep."""
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
