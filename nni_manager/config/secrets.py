"""Secrets of a config: the config holds references; the values are stored separately.

A field that is marked ``secret`` holds the value itself, or refers to a variable of the caller's environment,
``${VARIABLE}``, or to a file, ``file:path``. A literal value is stored under the reference
``stored:<service>.<field>``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from nni_manager.config.reading import scalars
from nni_manager.config.reading.scalars import text
from nni_manager.config.reading.source import Source
from nni_manager.config.sections.model_fields import fields_of, given_kind, kinds, marks_of, models_in
from nni_manager.platform_kit import secret_names
from nni_manager.platform_kit.secret_values import is_secret_option, masked_command

if TYPE_CHECKING:
    from pydantic import BaseModel


MASK = "******"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_FILE = "file:"
_STORED = "stored:"
#: Maximum size of a file that holds a secret, in bytes.
_MAX_BYTES = 64 * 1024


def read_secret(raw: object, name: str, source: Source) -> str:
    """The reference to a secret that the config holds; the secret's value is noted in `source`.

    `name`: of service and field. Raises ValueError, never with the value.
    """
    value = text(raw)
    if source.stored:
        return value
    if value == MASK:
        raise ValueError("is masked; write the real value, or a reference such as ${VARIABLE} or file:path")
    scalars.refuse_one_placeholder(value)
    reference, found = _resolve(value, name, source)
    if found is not None:
        source.secrets[reference] = found
    return reference


def _resolve(value: str, name: str, source: Source) -> tuple[str, str | None]:
    """The reference to a secret, and its value; None where references are not resolved."""
    if value in source.sent_secrets:
        return value, source.sent_secrets[value]
    if match := _VARIABLE.fullmatch(value):
        return value, None if source.environment is None else _variable(match[1], source.environment)
    if value.startswith(_FILE):
        path = source.existing_file(value.removeprefix(_FILE).strip())
        return _FILE + path, None if source.environment is None else read_secret_file(path)
    if value.startswith(_STORED):
        raise ValueError("refers to a stored value that is not in the request; write the real value")
    return _STORED + name, value


def _variable(name: str, environment: Mapping[str, str]) -> str:
    if not (value := environment.get(name, "")):
        raise ValueError(f"refers to the variable {name}, which is not set; export {name}, or write file:path")
    if "\0" in value:
        raise ValueError(f"refers to the variable {name}, which holds a NUL character")
    return value


def read_secret_file(path: str) -> str:
    """The secret that a file holds: its content, without line breaks at its end. Raises ValueError."""
    try:
        with open(path, "rb") as file:
            value = file.read(_MAX_BYTES + 1).decode().rstrip("\r\n")
    except OSError as error:
        raise ValueError(f"refers to the file {path}, which cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"refers to the file {path}, which is not UTF-8 text") from None
    if not value or len(value) > _MAX_BYTES or "\0" in value:
        raise ValueError(
            f"refers to the file {path}, which does not contain a usable secret: it is empty, too large or not text"
        )
    return value


def follow(reference: str, environment: Mapping[str, str]) -> str | None:
    """The current value of a reference to a variable or file; None for other references. Raises ValueError."""
    if match := _VARIABLE.fullmatch(reference):
        return _variable(match[1], environment)
    return read_secret_file(reference.removeprefix(_FILE)) if reference.startswith(_FILE) else None


def is_reference(value: object) -> bool:
    """Whether a value refers to a variable or a file, so that it may be shown."""
    return isinstance(value, str) and (value.startswith(_FILE) or _VARIABLE.fullmatch(value) is not None)


def needs_value(reference: str) -> bool:
    """Whether the content of a secret field refers to a value stored elsewhere."""
    return is_reference(reference) or reference.startswith(_STORED)


def fill(models: list[type[BaseModel]], settings: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    """The settings of a section, which one of the models describes, with values in place of references.

    References without a value are kept.
    """
    found: dict[str, Any] = _changed_mapping(models, settings, lambda reference: values.get(reference, reference))
    return found


def references(models: list[type[BaseModel]], settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The references to secrets in the settings of a section, which one of the models describes; in their order."""
    found: dict[str, None] = {}
    _changed_mapping(models, settings, lambda reference: found.setdefault(reference) or reference)
    return tuple(found)


def _map(model: type[BaseModel], settings: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    fields = fields_of(model)
    return {
        name: _changed(fields[name], value, change) if name in fields else value for name, value in settings.items()
    }


def _changed(field: Any, value: Any, change: Callable[[str], str]) -> Any:
    if marks_of(field).get("secret"):
        return change(value) if isinstance(value, str) else value
    models = models_in(field.annotation)
    if isinstance(value, list):
        return [_changed_mapping(models, item, change) for item in value]
    return _changed_mapping(models, value, change)


def _changed_mapping(models: list[type[BaseModel]], value: Any, change: Callable[[str], str]) -> Any:
    if not models or not isinstance(value, Mapping):
        return value
    model = models[0] if len(models) == 1 else kinds(models).get(str(given_kind(models, value)))
    return value if model is None else _map(model, value, change)


#: Names of our fields that look like secrets but are not.
_PLAIN = frozenset({"keyVaultKey"})
#: Sections with user-chosen names of arguments. Each word of a name is checked; in doubt, it counts as a secret.
_ALGORITHMS = ("tuner", "assessor", "advisor")
_ARGUMENTS = "classArgs"
#: Entries of `clusterMetaData`, which NNI's first format stored, and variables of containers in pod templates: the name
#: decides whether the value is a secret.
_PAIRS = ({"key", "value"}, {"name", "value"})
#: Not masked: its keys are names of dimensions.
_SEARCH_SPACE = "searchSpace"


def mask(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with `MASK` in place of secrets, for display only: a masked command does not run.

    Masks every value, at any depth, whose name indicates a secret, and values in commands that look like secrets.
    """
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
        if value.keys() in _PAIRS:
            return {**value, "value": _mask(_name_of(value), value["value"], is_secret)}
        return {name: _mask(name, inner, is_secret) for name, inner in value.items()}
    if isinstance(value, list):
        before = [None, *value]
        return [
            MASK if _follows(last) else _mask(key, inner, is_secret) for last, inner in zip(before, value, strict=False)
        ]
    return masked_command(value) if isinstance(value, str) and not is_reference(value) else value


def _name_of(pair: Mapping[str, Any]) -> str:
    return str(pair["key"] if "key" in pair else pair["name"])


def _follows(last: object) -> bool:
    """Whether a word of a command is the value of the option before it."""
    return isinstance(last, str) and is_secret_option(last)


def _is_secret(key: str, value: Any) -> bool:
    return value is not None and secret_names.may_be_secret(key) and key not in _PLAIN and not is_reference(value)


def _is_secret_argument(key: str, value: Any) -> bool:
    if value is None or (isinstance(value, bool) and not secret_names.is_always_secret(key)):
        return False
    return secret_names.is_secret(key)
