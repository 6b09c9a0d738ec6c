"""Users' registered tuners and assessors, ``<data directory>/algorithms.json``.

`nnictl algo` maintains the file. Reading a config replaces a registered name by its class. Only the tuner's process
imports the class.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from nni_manager.assessors.registry import CATALOGUE as ASSESSORS
from nni_manager.client.data_directory import make_data_directory, open_lock
from nni_manager.domain.errors import Conflict, InvalidInput, NotFound
from nni_manager.domain.experiment import Json
from nni_manager.tuners.registry import CATALOGUE as TUNERS
from trial_runner.wire import foreign_files

FILE = "algorithms.json"
FAMILIES = {family.kind: family for family in (TUNERS, ASSESSORS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A registered tuner or assessor: a class, and the name that a config may use for it."""

    name: str
    #: ``tuner`` or ``assessor``; NNI's advisors are tuners here.
    kind: str
    #: The class, ``module.Class``.
    class_name: str
    #: Absolute folder of the module; empty: it is installed.
    code_directory: str = ""
    #: Arguments that the class gets unless the config sets them.
    class_args: Json = field(default_factory=dict)
    accepts_class_args: bool = True
    #: The algorithm's NNI `ClassArgsValidator`, ``module.Class``, or empty.
    validator: str = ""


def read_all(data_directory: Path) -> tuple[Registered, ...]:
    """All registered algorithms, by kind and name. Raises InvalidInput when the file cannot be read."""
    path = data_directory / FILE
    try:
        entries = json.loads(path.read_bytes())
        return tuple(Registered(**entry) for entry in entries["algorithms"])
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = getattr(error, "strerror", None) or "unexpected content"
        raise InvalidInput(
            f"{path} cannot be read ({reason}); correct it, or remove it and run `nnictl algo register` again"
        ) from None


def find(data_directory: Path, kind: str, name: str) -> Registered | None:
    """The registered algorithm of a kind and name, ignoring case, or None. Raises InvalidInput."""
    found = (one for one in read_all(data_directory) if one.kind == kind and one.name.lower() == name.lower())
    return next(found, None)


def register(data_directory: Path, new: Registered) -> bool:
    """Register an algorithm; return whether it replaced another.

    Names of NNI's algorithms that this version lacks are allowed. Raises Conflict for a built-in name, InvalidInput,
    OSError.
    """
    if FAMILIES[new.kind].look_up(new.name) is not None:
        raise Conflict(f"{new.name} is the name of a built-in {new.kind}; choose another builtinName")
    with _locked(data_directory):
        known = read_all(data_directory)
        kept = [one for one in known if _key(one) != _key(new)]
        _write(data_directory, sorted([*kept, new], key=_key))
    return len(kept) < len(known)


def unregister(data_directory: Path, name: str) -> None:
    """Remove the tuner or assessor of that name.

    Raises NotFound, Conflict for a built-in one, InvalidInput, OSError.
    """
    with _locked(data_directory):
        known = read_all(data_directory)
        kept = [one for one in known if one.name.lower() != name.lower()]
        if len(kept) == len(known):
            raise _unknown(name)
        _write(data_directory, kept)


def _unknown(name: str) -> Conflict | NotFound:
    if any(family.look_up(name) is not None for family in FAMILIES.values()):
        return Conflict(f"{name} is built in and cannot be removed")
    return NotFound(f"no algorithm {name} is registered; `nnictl algo list` shows the registered ones")


def _key(registered: Registered) -> tuple[str, str]:
    return registered.kind, registered.name.lower()


def _write(data_directory: Path, algorithms: list[Registered]) -> None:
    text = json.dumps({"algorithms": [asdict(one) for one in algorithms]}, indent=1)
    foreign_files.write_whole(os.path.realpath(data_directory), FILE, text.encode())


@contextmanager
def _locked(data_directory: Path) -> Iterator[None]:
    """Hold the lock for changes of the file. Readers see the file before or after a change, never in between."""
    import fcntl

    make_data_directory(data_directory)
    with open_lock(data_directory / f".{FILE}.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
