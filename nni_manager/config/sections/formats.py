"""The formats of single values by name: how each is read, and its JSON schema."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from nni_manager.config.reading import scalars
from nni_manager.config.reading.scalars import local_users
from nni_manager.config.reading.source import Source
from nni_manager.domain.ids import EXPERIMENT_ID
from nni_manager.domain.text import parse_token, refuse_login_in

Reader = Callable[[object], object]


class Format(NamedTuple):
    """How a value is read, and how it is documented."""

    #: Raw value → canonical value. Raises ValueError with a message that follows the field's name.
    read: Callable[[object, Source], object]
    #: JSON schema of the values that a user may write.
    schema: Mapping[str, Any]
    #: The format in the reference documentation; empty: the field's type.
    words: str = ""
    #: Whether stored values are read again; unnecessary if reading does not change them.
    reads_stored: bool = True


def reader_of(format: str, source: Source) -> Reader:
    """The function that reads a value of that format. Raises KeyError for an unknown format."""
    known = FORMATS[format]
    if source.stored and not known.reads_stored:
        return lambda raw: raw
    return lambda raw: known.read(raw, source)


def holding(read: Reader, keys: Sequence[str], source: Source) -> Reader:
    """Extend `read`, a reader of a file's path, to refuse a YAML file without these dotted keys."""
    if not keys:
        return read

    def read_file(raw: object) -> object:
        path = read(raw)
        if not source.stored:
            _check_keys(str(path), keys)
        return path

    return read_file


def _url(raw: object) -> str:
    """The address of a server, by default HTTPS, without a slash at its end."""
    address = scalars.text(raw).strip().rstrip("/")
    scheme, _, host = address.rpartition("://")
    if scheme not in ("", "http", "https") or not host or host.split("/")[0].split() != [host.split("/")[0]]:
        raise ValueError("must be an address such as https://pai.example.com")
    address = address if scheme else f"https://{address}"
    refuse_login_in(address)
    return address


def _absolute(raw: object) -> str:
    path = scalars.text(raw)
    if not path.startswith("/"):
        raise ValueError("must be an absolute path in the container, such as /mnt/data")
    return path


def _mount_point(raw: str, source: Source) -> str:
    """The path of a mount point on the daemon's machine. It is not accessed, because that may hang."""
    if source.elsewhere and not os.path.isabs(raw):
        raise ValueError("must be an absolute path on the manager's machine, such as /mnt/data")
    source.given_path(raw)
    return os.path.normpath(os.path.join(source.directory, os.path.expanduser(raw)))


def _of_manager(raw: str, source: Source) -> str:
    """The path of a folder on the daemon's machine, which may be another machine than this."""
    return os.path.normpath(raw) if source.elsewhere and os.path.isabs(raw) else source.existing_directory(raw)


def _mapping_or_file(raw: object, source: Source) -> object:
    """The mapping, or the one in the file that a text names."""
    if not isinstance(raw, str):
        return raw
    path = source.existing_file(raw)
    root, faults = _yaml(path)
    if faults:
        raise ValueError(f"names {path}, which has an error in line {faults[0]}")
    if not isinstance(root, dict):
        raise ValueError(f"names {path}, which must have a mapping, not {scalars.kind(root)}")
    return root


def _check_keys(path: str, keys: Sequence[str]) -> None:
    root, _ = _yaml(path)
    for key in keys:
        if not _has(root, key):
            raise ValueError(f"names {path}, which has no {key}")


def _yaml(path: str) -> tuple[object, list[str]]:
    """The content of a YAML file, and ``LINE: message`` for each fault in it. Raises ValueError."""
    from nni_manager.config.reading import yaml_reader
    from nni_manager.config.reading.document import Unreadable
    from nni_manager.config.reading.source import read_text
    from nni_manager.domain.errors import ConfigInvalid

    try:
        document = yaml_reader.parse(read_text(path))
    except (Unreadable, ConfigInvalid) as error:
        raise ValueError(f"names {path}, which cannot be read: {error}") from None
    return document.root.value, [f"{line}: {message}" for _, line, message in document.faults]


def _has(root: object, key: str) -> bool:
    for step in key.split("."):
        if not isinstance(root, dict) or root.get(step) is None:
            return False
        root = root[step]
    return True


def _scalar(read: Reader) -> Callable[[object, Source], object]:
    """A reader that does not use the source."""
    return lambda raw, _: read(raw)


def _interval(raw: object) -> float:
    return float(scalars.seconds(scalars.duration(raw)))


_TEXT: Mapping[str, Any] = {"type": "string", "minLength": 1}
_NUMERAL: Mapping[str, Any] = {"type": "string", "pattern": r"^\s*[0-9]{1,9}\s*$"}
_DURATION: Mapping[str, Any] = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": r"^\s*([0-9]+(\.[0-9]*)?|\.[0-9]+)\s*[smhdSMHD]\s*$"},
    ]
}
_MEMORY: Mapping[str, Any] = {
    "anyOf": [
        {"type": "integer", "minimum": 1},
        {"type": "string", "pattern": r"^\s*([0-9]+(\.[0-9]*)?|\.[0-9]+)\s*([kmgtKMGT][iI]?[bB]?|[bB])\s*$"},
    ]
}
_WHOLE: Mapping[str, Any] = {"type": "integer", "minimum": 0}
_INDICES: Mapping[str, Any] = {
    "anyOf": [
        _WHOLE,
        {"type": "string", "pattern": r"^\s*[0-9]{1,9}\s*(,\s*[0-9]{1,9}\s*)*$"},
        {"type": "array", "items": _WHOLE, "minItems": 1, "uniqueItems": True},
    ]
}
_SHARE: Mapping[str, Any] = {"anyOf": [_WHOLE, {"type": "string", "pattern": "^[0-9]{1,2}%$"}]}
_NAMES: Mapping[str, Any] = {"type": "array", "items": {"type": "string", "pattern": r"^[^=\s]+$"}}
_IDS: Mapping[str, Any] = {"type": "array", "items": {"type": "string", "pattern": f"^{EXPERIMENT_ID.pattern}$"}}
_TEXT_OR_WHOLE: Mapping[str, Any] = {"anyOf": [_TEXT, {"type": "integer"}]}
_VERSION: Mapping[str, Any] = {"type": "string", "pattern": r"^\s*3\.[0-9]{1,2}\s*$"}
_KEPT: Mapping[str, Any] = {"type": "string", "pattern": "^(all|none|best [1-9][0-9]{0,5})$"}

FORMATS: Mapping[str, Format] = {
    "title": Format(_scalar(scalars.title), {"type": "string"}),
    "nonblank": Format(_scalar(scalars.text), _TEXT),
    "duration": Format(_scalar(scalars.duration), _DURATION, "duration"),
    "pause": Format(_scalar(scalars.pause), _DURATION, "duration"),
    "seconds": Format(_scalar(scalars.seconds), _DURATION, "duration"),
    "interval": Format(_scalar(_interval), _DURATION, "duration"),
    "token": Format(lambda raw, _: parse_token(scalars.text(raw)), _TEXT, "text"),
    "local-users": Format(_scalar(local_users), {}),
    "memory": Format(_scalar(scalars.memory_mb), _MEMORY, "memory: `8GB`, `512mb`, or MB"),
    "quantity": Format(_scalar(scalars.quantity), _TEXT_OR_WHOLE, "quantity", reads_stored=False),
    "memory-quantity": Format(_scalar(scalars.memory_quantity), _TEXT_OR_WHOLE, "quantity", reads_stored=False),
    "gpu-indices": Format(_scalar(scalars.gpu_indices), _INDICES, "GPU indices"),
    "count-or-share": Format(_scalar(scalars.count_or_share), _SHARE),
    "kept-checkpoints": Format(_scalar(scalars.kept_checkpoints), _KEPT),
    "python-version": Format(_scalar(scalars.python_version), _VERSION, 'Python version: `"3.11"`'),
    "variable-names": Format(_scalar(scalars.variable_names), _NAMES),
    "experiment-ids": Format(_scalar(scalars.experiment_ids), _IDS),
    "whole-number": Format(_scalar(scalars.numeral), {"anyOf": [_WHOLE, _NUMERAL]}, "whole number"),
    "text": Format(
        lambda raw, _: str(raw) if type(raw) is int else scalars.text(raw), _TEXT_OR_WHOLE, "text", reads_stored=False
    ),
    "url": Format(_scalar(_url), _TEXT, "address", reads_stored=False),
    "absolute": Format(_scalar(_absolute), {"type": "string", "pattern": "^/"}, "absolute path", reads_stored=False),
    "mount-point": Format(
        lambda raw, source: _mount_point(scalars.text(raw), source), _TEXT, "path", reads_stored=False
    ),
    "elsewhere": Format(_scalar(scalars.text), _TEXT, "path", reads_stored=False),
    "path": Format(lambda raw, source: source.given_path(scalars.text(raw)), _TEXT, "path"),
    "program": Format(lambda raw, source: source.program(scalars.text(raw)), _TEXT, "path"),
    "directory": Format(lambda raw, source: source.existing_directory(scalars.text(raw)), _TEXT, "folder"),
    "makeable-directory": Format(lambda raw, source: source.makeable_directory(scalars.text(raw)), _TEXT, "folder"),
    "manager-directory": Format(lambda raw, source: _of_manager(scalars.text(raw), source), _TEXT, "folder"),
    "file": Format(lambda raw, source: source.existing_file(scalars.text(raw)), _TEXT, "file"),
    "mapping-or-file": Format(
        _mapping_or_file, {"anyOf": [{"type": "object"}, _TEXT]}, "mapping, or a YAML file with it", reads_stored=False
    ),
}
