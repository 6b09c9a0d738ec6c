"""The platforms by name, each with the description of its adapter.

A folder below `nni_manager.platforms` is a platform; other packages add theirs under the entry-point group
``nni_manager.platforms``. Both expose ``PLATFORM``, a `PlatformDescription`. No list has to be edited, and nothing is
imported before it is needed. A broken plug-in is reported by name and does not affect others. A platform without an
adapter is not in this version yet: its section can be validated, but no experiment can use it.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from nni_manager.domain import plug_ins
from nni_manager.domain.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from nni_manager.domain.experiment import PlatformSpec
    from nni_manager.platform_kit.contract import Platform
    from nni_manager.platform_kit.section_model import FirstFormat, PlatformSection

GROUP = "nni_manager.platforms"
_PACKAGE = "nni-manager"
#: ``asyncssh[bcrypt]>=2.14; extra == "ssh"``
_REQUIREMENT = re.compile(r"""(?P<name>[\w.-]+).*;.*\bextra == ["'](?P<extra>[\w-]+)["']""")


#: The extra of platforms on Kubernetes, and words that users write for one of them.
_KUBERNETES = "kubernetes"
_KUBERNETES_WORDS = frozenset({_KUBERNETES, "k8s", "kube", "kueue", "trainer", "katib"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformDescription:
    """A platform's package as it describes itself, without importing anything heavy."""

    #: The name in configs: the name of the folder, or of the entry point.
    name: str
    #: Validates the platform's section of a config: strict, camelCase, every field described.
    config: type[PlatformSection]
    #: One line for lists and help.
    summary: str
    #: The adapter's class, ``package.module:Class``; imported by `adapter_class`. Empty: there is none yet.
    adapter: str = ""
    #: NNI's other names of it, accepted in configs.
    old_names: tuple[str, ...] = ()
    #: The extra of our own package that installs the adapter's imports; empty: none needed.
    extra: str = ""
    #: Its jobs' objects contain the id of their experiment, and `Platform.find_left` finds them.
    finds_left: bool = False
    #: How other config formats write the section: the format's name (``first``: NNI's first) → its table.
    formats: Mapping[str, FirstFormat] = field(default_factory=dict, hash=False)

    @property
    def first_format(self) -> FirstFormat | None:
        """How NNI's first config format writes the section; None: that format does not have it."""
        return self.formats.get("first")


def names() -> tuple[str, ...]:
    """The names of all platforms, plug-ins included, in alphabetical order. Imports none of them."""
    return tuple(sorted(_loaders()))


def find(name: str) -> PlatformDescription:
    """The platform of that name, or former name, in any case.

    Raises InvalidInput if there is none, or its package cannot be imported.
    """
    wanted = name.casefold()
    folder = next((one for one in _folders() if one.casefold() == wanted), None)
    if folder is not None:  # metadata of installed packages is read only if needed
        return _describe(folder, _folder_loader(folder))
    loaders = _loaders()
    plug_in = next((one for one in loaders if one.casefold() == wanted), None)
    if plug_in is not None:
        return _describe(plug_in, loaders[plug_in])
    described = list(_described(loaders))
    renamed = (one for one in described if wanted in (old.casefold() for old in one.old_names))
    description = next(renamed, None)
    if description is None:
        raise InvalidInput(_unknown(name, tuple(sorted(loaders)), described))
    return description


def descriptions() -> list[PlatformDescription]:
    """The descriptions of all platforms, in alphabetical order; imports them. Broken plug-ins are left out."""
    return sorted(_described(_loaders()), key=lambda one: one.name)


def adapter_class(description: PlatformDescription) -> type[Any]:
    """Imports the adapter of a platform. Raises InvalidInput if that fails, if a package of its extra is missing, or if
    the platform has no adapter."""
    if not description.adapter:
        able = ", ".join(one.name for one in descriptions() if one.adapter)
        raise InvalidInput(f"the platform '{description.name}' is not in this version yet; trials run on: {able}")
    _check_extra(description)
    module, _, attribute = description.adapter.partition(":")
    adapter = _import(description.name, lambda: getattr(importlib.import_module(module), attribute))
    if not isinstance(adapter, type):
        raise InvalidInput(f"platform '{description.name}' is broken: {description.adapter} is not a class")
    return adapter


def _check_extra(description: PlatformDescription) -> None:
    """Raises MissingExtra early: some packages are only imported during an experiment."""
    if missing := [name for name in _brought_by(description.extra) if not _is_installed(name)]:
        raise MissingExtra(f"platform '{description.name}'", ", ".join(missing), description.extra)


@cache
def _brought_by(extra: str) -> tuple[str, ...]:
    """The names of the packages of an extra; empty if our own package is not installed."""
    if not extra:
        return ()
    from importlib import metadata  # 10 ms, which most experiments need not spend

    with suppress(metadata.PackageNotFoundError):
        found = [_REQUIREMENT.match(one) for one in metadata.requires(_PACKAGE) or ()]
        return tuple(one["name"] for one in found if one and one["extra"] == extra)
    return ()


def _is_installed(package: str) -> bool:
    from importlib import metadata

    with suppress(metadata.PackageNotFoundError):
        return bool(metadata.version(package))
    return False


def adapter_of(service: PlatformSpec) -> type[Platform[Any]]:
    """The adapter of a training service. Raises InvalidInput if there is none, or it cannot be imported."""
    return adapter_class(find(service.name))


def config_of(service: PlatformSpec) -> PlatformSection:
    """The section of a training service as its adapter expects it.

    Raises InvalidInput for an unknown platform, ValueError for a section that its model refuses.
    """
    return find(service.name).config.model_validate(service.settings)


_Loader = Callable[[], object]


def _loaders() -> dict[str, _Loader]:
    """The loaders of all platforms by name; a folder takes precedence over a plug-in of the same name."""
    return _plug_ins() | {name: _folder_loader(name) for name in _folders()}


@cache
def _folders() -> tuple[str, ...]:
    """The adapters in our own package, cached: each section of each config needs them."""
    package = importlib.import_module(GROUP)
    return tuple(module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg)


def _folder_loader(name: str) -> _Loader:
    return lambda: importlib.import_module(f"{GROUP}.{name}").PLATFORM


def _plug_ins() -> dict[str, _Loader]:
    return {point.name: _plug_in_loader(point) for point in plug_ins.entry_points(GROUP)}


def _plug_in_loader(point: Any) -> _Loader:
    def load() -> object:
        found = point.load()  # the package, or its PLATFORM itself
        return getattr(found, "PLATFORM", found)

    return load


def _describe(name: str, loader: _Loader) -> PlatformDescription:
    description = _import(name, loader)
    if not isinstance(description, PlatformDescription):
        raise InvalidInput(
            f"platform '{name}' is broken: its PLATFORM is not a PlatformDescription; update its package"
        )
    return description


def _described(loaders: dict[str, _Loader]) -> Iterator[PlatformDescription]:
    """The descriptions of all plug-ins except broken ones, which must not hide the others."""
    for name, loader in loaders.items():
        try:
            yield _describe(name, loader)
        except InvalidInput:
            continue


def _import(name: str, load: _Loader) -> object:
    try:
        return load()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise InvalidInput(
            f"platform '{name}' cannot be imported ({reason}); install its requirements, or update its package"
        ) from error


def _unknown(name: str, known: tuple[str, ...], described: Iterable[PlatformDescription]) -> str:
    import difflib  # only needed for an error

    described = tuple(described)
    on_kubernetes = sorted(one.name for one in described if one.extra == _KUBERNETES)
    if name.casefold() in _KUBERNETES_WORDS and on_kubernetes:
        return f"there is no platform '{name}'; platforms on Kubernetes: {', '.join(on_kubernetes)}"
    old = {old.lower(): old for one in described for old in one.old_names}
    near = difflib.get_close_matches(name.lower(), [*known, *old], n=1)
    guess = f"did you mean {old.get(near[0], near[0])}? " if near else ""
    return f"cannot find platform '{name}'; {guess}Known: {', '.join(known)}"
