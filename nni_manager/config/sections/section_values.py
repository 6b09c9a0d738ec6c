"""The formats of single values in a platform's section, by the word that marks a field."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from nni_manager.config.reading import scalars
from nni_manager.config.reading.source import Source
from nni_manager.domain.text import refuse_login_in

Reader = Callable[[object], object]

#: Formats that a stored value is not read by: they would change nothing in it.
_JUDGED = frozenset({"quantity", "url", "absolute", "mount-point", "elsewhere", "text"})


def reader_of(format: str, source: Source) -> Reader:
    """The function that reads a value of that format. Raises KeyError for a word that is no format."""
    if source.stored and format in _JUDGED:
        return lambda raw: raw
    return _readers(source)[format]


def holding(read: Reader, keys: Sequence[str], source: Source) -> Reader:
    """A reader of a file's path, made of `read`, that also refuses a YAML file without these dotted keys."""
    if not keys:
        return read

    def read_file(raw: object) -> object:
        path = read(raw)
        if not source.stored:
            _check_keys(str(path), keys)
        return path

    return read_file


def _readers(source: Source) -> Mapping[str, Reader]:
    return {
        "duration": scalars.duration,
        "seconds": scalars.seconds,
        "memory": scalars.memory_mb,
        "quantity": scalars.quantity,
        "gpu-indices": scalars.gpu_indices,
        "whole-number": scalars.numeral,
        "text": lambda raw: str(raw) if type(raw) is int else scalars.text(raw),
        "url": _url,
        "absolute": _absolute,
        "mount-point": lambda raw: _mount_point(scalars.text(raw), source),
        "elsewhere": scalars.text,
        "path": lambda raw: source.path(scalars.text(raw)),
        "directory": lambda raw: source.existing_directory(scalars.text(raw)),
        "manager-directory": lambda raw: _of_manager(scalars.text(raw), source),
        "file": lambda raw: source.existing_file(scalars.text(raw)),
    }


def _url(raw: object) -> str:
    """The address of a server: HTTPS unless it says otherwise, without a slash at its end."""
    address = scalars.text(raw).strip().rstrip("/")
    scheme, _, host = address.rpartition("://")
    if scheme not in ("", "http", "https") or not host or host.split("/")[0].split() != [host.split("/")[0]]:
        raise ValueError("must be an address such as https://pai.example.com")
    address = address if scheme else f"https://{address}"
    refuse_login_in(address)
    return address


def _absolute(raw: object) -> str:
    """The path of something in a container, absolute, as nothing there is relative to anything."""
    path = scalars.text(raw)
    if not path.startswith("/"):
        raise ValueError("must be an absolute path in the container, such as /mnt/data")
    return path


def _mount_point(raw: str, source: Source) -> str:
    """The path of a folder on the daemon's machine, where storage is or will be mounted; it is not touched, as it may
    hang."""
    if source.elsewhere and not os.path.isabs(raw):
        raise ValueError("must be an absolute path on the manager's machine, such as /mnt/data")
    return os.path.normpath(os.path.join(source.directory, os.path.expanduser(raw)))


def _of_manager(raw: str, source: Source) -> str:
    """The path of a folder on the daemon's machine, which need not be this one."""
    return os.path.normpath(raw) if source.elsewhere and os.path.isabs(raw) else source.existing_directory(raw)


def _check_keys(path: str, keys: Sequence[str]) -> None:
    from nni_manager.config.reading import yaml_reader
    from nni_manager.config.reading.document import Unreadable
    from nni_manager.config.reading.source import read_text
    from nni_manager.domain.errors import ConfigInvalid

    try:
        root = yaml_reader.parse(read_text(path)).root.value
    except (Unreadable, ConfigInvalid) as error:
        raise ValueError(f"names {path}, which cannot be read: {error}") from None
    for key in keys:
        if not _has(root, key):
            raise ValueError(f"names {path}, which has no {key}")


def _has(root: object, key: str) -> bool:
    for step in key.split("."):
        if not isinstance(root, dict) or root.get(step) is None:
            return False
        root = root[step]
    return True
