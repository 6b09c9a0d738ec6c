"""Platform name → description of its adapter.

A folder below `nni_manager.platforms` is a platform; other packages add theirs under the entry-point group
``nni_manager.platforms``. Both expose ``PLATFORM``, a `PlatformDescription`. There is no list to edit, and nothing is
imported before it is asked for. A plug-in that cannot be imported is reported by name and harms no other.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nni_manager.domain.errors import InvalidInput

if TYPE_CHECKING:
    from pydantic import BaseModel

    from nni_manager.domain.experiment import ExperimentSpec, PlatformSpec
    from nni_manager.platform_kit.contract import Platform

GROUP = "nni_manager.platforms"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformDescription:
    """What a platform's package says about itself without importing anything heavy."""

    #: What users write: the folder's, or the entry point's name.
    name: str
    #: Validates the platform's section of a config: strict, camelCase, every field described.
    config: type[BaseModel]
    #: Where the adapter's class is, ``package.module:Class``; imported by `adapter_class`.
    adapter: str
    #: One line for lists and help.
    summary: str
    #: What earlier releases called it; accepted in configs.
    old_names: tuple[str, ...] = ()


def names() -> tuple[str, ...]:
    """All platforms, plug-ins included, in alphabetical order. Imports none of them."""
    return tuple(sorted(_loaders()))


def find(name: str) -> PlatformDescription:
    """The platform called `name` now or in an earlier release.

    Raises InvalidInput when there is none, or when its package cannot be imported.
    """
    if name in _folders():  # metadata of installed packages is read only when it is needed
        return _describe(name, _folder_loader(name))
    loaders = _loaders()
    if name in loaders:
        return _describe(name, loaders[name])
    renamed = (_renamed(name, other, loader) for other, loader in loaders.items())
    description = next(filter(None, renamed), None)
    if description is None:
        raise InvalidInput(_unknown(name, tuple(sorted(loaders))))
    return description


def adapter_class(description: PlatformDescription) -> type[Any]:
    """Imports the adapter. Raises InvalidInput when that fails."""
    module, _, attribute = description.adapter.partition(":")
    adapter = _import(description.name, lambda: getattr(importlib.import_module(module), attribute))
    if not isinstance(adapter, type):
        raise InvalidInput(f"platform '{description.name}' is broken: {description.adapter} is not a class")
    return adapter


def adapter_of(service: PlatformSpec) -> type[Platform]:
    """Raises InvalidInput for one that there is no adapter of, or that cannot be imported."""
    return adapter_class(find(service.name))


def check(spec: ExperimentSpec) -> None:
    """What adapters refuse, without asking anybody. Raises InvalidInput."""
    for service in spec.platforms:
        adapter_of(service).check(spec, service)


_Loader = Callable[[], object]


def _loaders() -> dict[str, _Loader]:
    """A folder wins over a plug-in of the same name."""
    return _plug_ins() | {name: _folder_loader(name) for name in _folders()}


def _folders() -> list[str]:
    package = importlib.import_module(GROUP)
    return [module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg]


def _folder_loader(name: str) -> _Loader:
    return lambda: importlib.import_module(f"{GROUP}.{name}").PLATFORM


def _plug_ins() -> dict[str, _Loader]:
    from importlib.metadata import entry_points  # 10 ms, needed only where plug-ins may matter

    return {point.name: _plug_in_loader(point) for point in entry_points(group=GROUP)}


def _plug_in_loader(point: Any) -> _Loader:
    def load() -> object:
        found = point.load()  # the package, or its PLATFORM itself
        return getattr(found, "PLATFORM", found)

    return load


def _describe(name: str, loader: _Loader) -> PlatformDescription:
    description = _import(name, loader)
    if not isinstance(description, PlatformDescription):
        raise InvalidInput(f"platform '{name}' is broken: its PLATFORM is no PlatformDescription; update its package")
    return description


def _renamed(old_name: str, name: str, loader: _Loader) -> PlatformDescription | None:
    try:
        description = _describe(name, loader)
    except InvalidInput:
        return None  # a broken plug-in must not hide the others; asked for by name, it is reported
    return description if old_name in description.old_names else None


def _import(name: str, load: _Loader) -> object:
    try:
        return load()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise InvalidInput(
            f"platform '{name}' cannot be imported ({reason}); install what it needs, or update its package"
        ) from error


#: What users of NNI may write and this version has no adapter for; one that has is found before anybody looks here.
_NOT_YET = (
    "remote", "openpai", "pai", "paiYarn", "kubeflow", "frameworkcontroller", "adl", "dlts", "aml", "dlc", "hybrid",
)  # fmt: skip


def _unknown(name: str, known: tuple[str, ...]) -> str:
    import difflib  # only ever needed for an error

    if name in _NOT_YET:
        return f"the platform '{name}' is not in this version yet; known here: {', '.join(known)}"
    near = difflib.get_close_matches(name.lower(), known, n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    return f"there is no platform '{name}'; {guess}Known: {', '.join(known)}"
