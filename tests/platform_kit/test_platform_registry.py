"""Finding platforms: folders, plug-ins, old names, and plug-ins that are broken."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from nni_manager.domain.errors import InvalidInput
from nni_manager.platform_kit import registry
from nni_manager.platforms.local.config import LocalConfig
from tests.installed import announce

pytestmark = pytest.mark.unit

HIVE = """
from nni_manager.platform_kit.registry import PlatformDescription
from nni_manager.platforms.local.config import LocalConfig
PLATFORM = PlatformDescription(
    name="{name}", config=LocalConfig, adapter="{name}_plug_in:Adapter", old_names=("{name}-old",), summary="bees"
)
class Adapter: pass
"""

PlugIn = Callable[[str, str], None]


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlugIn:
    """Installs a module of the given source as a plug-in of the given name."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(name: str, source: str) -> None:
        (tmp_path / f"{name}_plug_in.py").write_text(source.replace("{name}", name))
        monkeypatch.delitem(sys.modules, f"{name}_plug_in", raising=False)
        announce(tmp_path, f"{name}_plug_in", registry.GROUP, {name: f"{name}_plug_in"})

    return install


def test_folder_is_a_platform() -> None:
    assert "local" in registry.names()
    found = registry.find("local")
    assert (found.name, found.config) == ("local", LocalConfig)
    assert found.adapter == "nni_manager.platforms.local.platform:LocalPlatform"


def test_plug_in_is_a_platform_and_is_imported_on_first_use(plug_in: PlugIn) -> None:
    plug_in("hive", HIVE)
    assert "hive" in registry.names()
    assert "hive_plug_in" not in sys.modules
    found = registry.find("hive")
    assert (found.name, found.summary) == ("hive", "bees")
    assert registry.adapter_class(found).__name__ == "Adapter"


def test_old_names_work_with_broken_plug_in(plug_in: PlugIn) -> None:
    plug_in("angry", "raise RuntimeError('no queen')")
    plug_in("hive", HIVE)
    assert registry.find("hive-old").name == "hive"


def test_folder_wins_over_a_plug_in(plug_in: PlugIn) -> None:
    plug_in("local", "raise RuntimeError('no queen')")
    assert registry.find("local").config is LocalConfig
    assert registry.names().count("local") == 1


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise RuntimeError('no queen')", r"platform 'angry' cannot be imported \(RuntimeError: no queen\)"),
        ("import no_such_bees", r"platform 'angry' cannot be imported \(ModuleNotFoundError: .*no_such_bees"),
        ("PLATFORM = 5", "platform 'angry' is broken: its PLATFORM is not a PlatformDescription"),
        ("", "platform 'angry' is broken"),
    ],
)
def test_broken_plug_in_is_reported_by_name(plug_in: PlugIn, source: str, words: str) -> None:
    plug_in("angry", source)
    assert "angry" in registry.names()
    with pytest.raises(InvalidInput, match=words):
        registry.find("angry")


@pytest.mark.parametrize("adapter", ["hive_plug_in:Missing", "no_such_bees:Adapter"])
def test_missing_adapter_is_reported_by_name(plug_in: PlugIn, adapter: str) -> None:
    plug_in("hive", HIVE.replace("{name}_plug_in:Adapter", adapter))
    with pytest.raises(InvalidInput, match="platform 'hive' cannot be imported"):
        registry.adapter_class(registry.find("hive"))


def test_adapter_is_a_class(plug_in: PlugIn) -> None:
    plug_in("hive", HIVE.replace(":Adapter", ":PLATFORM"))
    with pytest.raises(InvalidInput, match="PLATFORM is not a class"):
        registry.adapter_class(registry.find("hive"))


def test_unknown_name_lists_the_known_ones_and_the_nearest(plug_in: PlugIn) -> None:
    plug_in("hive", HIVE)
    with pytest.raises(InvalidInput, match=r"cannot find platform 'Hives'; did you mean hive\? Known: .*hive.*local"):
        registry.find("Hives")


@pytest.mark.parametrize("name", ["K8s", "kueue", "trainer", "katib"])
def test_words_for_kubernetes_list_its_platforms(name: str) -> None:
    words = rf"there is no platform '{name}'; platforms on Kubernetes: adl, frameworkcontroller, kube"
    with pytest.raises(InvalidInput, match=words):
        registry.find(name)


def test_platform_without_adapter_is_known_and_refused(plug_in: PlugIn) -> None:
    plug_in("hive", HIVE.replace('adapter="{name}_plug_in:Adapter", ', ""))
    found = registry.find("hive")
    assert found.config is LocalConfig
    words = r"the platform 'hive' is not in this version yet; trials run on: .*local, .*scripted, slurm$"
    with pytest.raises(InvalidInput, match=words):
        registry.adapter_class(found)


@pytest.mark.parametrize("name", ["Hive", "HIVE", "hive-OLD"])
def test_case_does_not_matter(plug_in: PlugIn, name: str) -> None:
    plug_in("hive", HIVE)
    assert registry.find(name).name == "hive"
    assert registry.find("LOCAL").name == "local"


@pytest.mark.parametrize("name", ["", "..", "local.config", "os"])
def test_only_a_listed_name_is_ever_imported(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot find platform"):
        registry.find(name)


def test_packages_that_are_missing_are_named_with_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before an experiment is made: an adapter may import them much later."""
    version = metadata.version
    missing = ("kubernetes-asyncio", "azure-identity")

    def installed(package: str) -> str:
        if package in missing:
            raise metadata.PackageNotFoundError(package)
        return version(package)

    monkeypatch.setattr(metadata, "version", installed)
    for name, words in (
        ("kubeflow", r"kubernetes-asyncio, which is not installed .*: pip install 'nni-manager\[kubernetes\]'"),
        ("aml", r"azure-identity, which is not installed .*: pip install 'nni-manager\[azure\]'"),
    ):
        with pytest.raises(InvalidInput, match=f"platform '{name}' needs {words}"):
            registry.adapter_class(registry.find(name))
    assert registry.adapter_class(registry.find("local")).__name__ == "LocalPlatform"


def test_extras_of_platforms_are_extras_of_ours() -> None:
    named = {one.extra for one in registry.descriptions() if one.extra}
    assert named and all(registry._brought_by(extra) for extra in named)
