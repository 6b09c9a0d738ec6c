"""Names of fields, arguments, variables and options whose value is a secret.

These names are the only criterion for diffs, configs, commands and environment variables.
"""

from __future__ import annotations

import re

#: Secret anywhere in a name.
_ALWAYS = re.compile(r"passwor[dt]|passwd|passphrase|secret|credential|authorization", re.IGNORECASE)
#: ``accessKeySecret``, ``storageAccountKey``, ``sshPassphrase``, ``MYSQL_PWD``; but not ``sshKeyFile``, which is a
#: path, nor a shell's ``PWD``, which is a folder.
_BROAD = re.compile(rf"{_ALWAYS.pattern}|token|key$|_pwd$", re.IGNORECASE)
#: Keys of services; those of tables and records are preceded by other words.
_SERVICE_KEY = re.compile(r"(?:api|access|private|auth|account|storage)[-_. ]?key$", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
#: Words with which ``token`` belongs to a language model, and ``key`` to a table.
_PLAIN_TOKEN = frozenset("max min num n count total pad bos eos unk sep cls mask special".split())
_PLAIN_KEY = frozenset("sort group metric partition order index column".split())


def may_be_secret(name: str) -> bool:
    """Whether a name is one of a secret; if in doubt, yes: ``tokenizer`` is one."""
    return _BROAD.search(name) is not None


def is_always_secret(name: str) -> bool:
    """Whether values of any type under this name are secret: numbers, booleans, lists."""
    return _ALWAYS.search(name) is not None or "pwd" in _words(name)


def is_secret(name: str) -> bool:
    """Whether a name is one of a secret, by its words: ``max_tokens``, ``tokenizer``, ``sort_key`` are not."""
    return is_always_secret(name) or _has_token(_words(name)) or _is_key(_words(name))


def is_doubtful(name: str) -> bool:
    """Whether only ``key`` at its end indicates a secret: ``key``, ``image_key``, ``WANDB_KEY``. In code, such a value
    is a secret if it looks random."""
    return not (is_always_secret(name) or _has_token(_words(name)) or _SERVICE_KEY.search(name))


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _has_token(words: list[str]) -> bool:
    return any(word.endswith(("token", "tokens")) for word in words) and _PLAIN_TOKEN.isdisjoint(words)


def _is_key(words: list[str]) -> bool:
    return bool(words) and words[-1].endswith("key") and _PLAIN_KEY.isdisjoint(words)
