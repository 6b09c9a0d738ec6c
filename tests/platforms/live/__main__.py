"""`make live`: the platform contract and the digits example on a real service; nothing of them stays there.

``--kind kubeflow --kubeconfig FILE`` runs in a namespace that is made and removed, as an account with the rights that
the READMEs ask for; ``--kind openpai --live-config FILE --address HOST`` under names that are used once.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import yaml
from kubernetes_asyncio import client

from nni_manager.config.experiment_file import read_file
from nni_manager.domain.errors import NniManagerError
from nni_manager.kubernetes.api.cluster import Kind
from nni_manager.kubernetes.platform import KubernetesPlatform
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.section_model import DEFAULT_IMAGE
from nni_manager.platform_kit.testing import Recorder, unreachable_keeper
from tests.platforms.live import configs, ledger, namespaces, offers, suite
from tests.platforms.live.configs import Section
from tests.platforms.live.kubeconfigs import Kubeconfig

_UNUSABLE = 2
_INTERRUPTED = 130


class Unusable(Exception):
    """The tests cannot run there, and why."""


def main() -> int:
    given = _parser().parse_args()
    try:
        with suite.heard() as interrupts, tempfile.TemporaryDirectory(prefix="nni-live-") as folder:
            adapter = registry.adapter_class(registry.find(given.kind))
            run = _Run(given=given, interrupts=interrupts, folder=Path(folder))
            is_well = run.cluster() if issubclass(adapter, KubernetesPlatform) else run.service()
            return _INTERRUPTED if interrupts.has_come else 0 if is_well else 1
    except (Unusable, NniManagerError, OSError, LookupError, aiohttp.ClientError, client.ApiException) as error:
        print(f"cannot run: {error}", file=sys.stderr)
        return _UNUSABLE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make live, or python -m tests.platforms.live", description=__doc__)
    parser.add_argument("--kind", required=True, metavar="PLATFORM", help="kubeflow, openpai, …")
    parser.add_argument("--live-config", type=Path, metavar="FILE", help="an experiment's config with its section")
    parser.add_argument("--kubeconfig", default=os.environ.get("KUBECONFIG", ""), metavar="FILE", help="of a cluster")
    parser.add_argument("--context", default="", help="of the kubeconfig; by default its current one")
    parser.add_argument("--image", default=DEFAULT_IMAGE, help="Python 3.7 or newer with scikit-learn, for a cluster")
    parser.add_argument("--address", default="127.0.0.1", help="how jobs of other services reach this machine")
    parser.add_argument("--trials", type=int, default=16, help="of the digits example")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds within which anything happens there")
    parser.add_argument("--without", action="append", default=[], metavar="FEATURE", help="what the service lacks")
    parser.add_argument("--only", default="", metavar="EXPRESSION", help="tests by their names, as pytest's -k")
    return parser


@dataclass(frozen=True, kw_only=True)
class _Run:
    given: argparse.Namespace
    interrupts: suite.Interrupts
    folder: Path

    # Any service that a config names

    def service(self) -> bool:
        """Whether all is well."""
        if self.given.live_config is None:
            raise Unusable(f"--live-config is needed: a config with a training service {self.given.kind}")
        noted, config = self.folder / "ledger", self.given.live_config.absolute()
        tests = ("test_live_service.py", "test_live_digits.py")
        is_well = self._tests(tests, config, [f"--live-ledger={noted}"], self.given.without)
        left = ledger.remove(noted, self.given.kind, config, self.given.address, self.given.patience)
        return _told_left(left) and is_well

    # A cluster

    def cluster(self) -> bool:
        """Whether all is well, for each kind of job that the platform has and the server serves."""
        admin = self._admin()
        asyncio.run(_require(offers.of_server(admin)))
        for name in asyncio.run(namespaces.others(admin)):
            print(f"of an earlier run: namespace {name}; `kubectl delete namespace {name}` removes it")
        found = [(section, kind) for section, kind in self._kinds() if asyncio.run(_is_served(admin, kind))]
        if not found:
            raise Unusable(f"the server has no kind of job that {self.given.kind} runs; install its operator")
        return all([self._in_namespace(admin, section, kind) for section, kind in found])

    def _admin(self) -> Path:
        """A file with the given user alone."""
        if not self.given.kubeconfig:
            raise Unusable("--kubeconfig is needed: the file of a cluster's kubeconfig")
        user = Kubeconfig.read(self.given.kubeconfig, self.given.context)
        return user.write(self.folder / "admin", "default")

    def _kinds(self) -> Iterator[tuple[Section, Kind]]:
        """The sections of the config, or of the examples, with what each runs."""
        if self.given.live_config is not None:
            sections = [configs.given(self.given.live_config, self.given.kind)]
        else:
            sections = configs.sections(self.given.kind, self.given.image)
        for section in sections:
            file = self._written({**section, "kubeconfig": str(self.folder / "admin"), "context": None})
            [platform] = read_file(file, environment=os.environ).spec.platforms
            adapter = registry.adapter_of(platform)(registry.config_of(platform), Recorder().host(unreachable_keeper()))
            assert isinstance(adapter, KubernetesPlatform)
            yield section, adapter.job_kind()

    def _in_namespace(self, admin: Path, section: Section, kind: Kind) -> bool:
        name = f"nni-live-{secrets.token_hex(4)}"
        print(f"namespace {name}: {kind.kind}", flush=True)
        try:
            asyncio.run(namespaces.make(admin, name))
            return self._in(name, admin, section, kind)
        finally:
            left = asyncio.run(namespaces.remove(admin, name, [kind], self.given.patience))
            if not _told_left(left):
                raise Unusable(f"namespace {name} could not be removed")

    def _in(self, name: str, admin: Path, section: Section, kind: Kind) -> bool:
        absent = asyncio.run(_require(offers.of_kind(admin, name, kind)))
        user = self._account(admin, name, kind)
        config = self._written({**section, "kubeconfig": str(user), "context": None, "namespace": name})
        options = [f"--live-kubeconfig={admin}", f"--live-namespace={name}", f"--live-image={self.given.image}"]
        tests = ("test_live_cluster.py", "test_live_digits.py")
        return self._tests(tests, config, options, [*self.given.without, *absent])

    def _account(self, admin: Path, name: str, kind: Kind) -> Path:
        """The kubeconfig of an account with the rights of the README, or the given one where it cannot be made."""
        owner = Kubeconfig.read(str(admin))
        try:
            user = asyncio.run(namespaces.account(admin, owner, name, kind)).write(self.folder / "account", name)
            asyncio.run(namespaces.until_allowed(user, name))
        except (client.ApiException, TimeoutError) as error:
            why = getattr(error, "reason", "") or error
            print(f"left out: an account with the README's rights ({why}); the tests have the kubeconfig's")
            return admin
        print("as an account with the rights that the README asks for")
        return user

    # Both

    def _written(self, section: Section) -> Path:
        """The digits example with this section."""
        path = self.folder / "config.yml"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(configs.digits(section)))
        return path

    def _tests(self, tests: tuple[str, ...], config: Path, options: list[str], without: list[str]) -> bool:
        given = self.given
        always = [
            f"--live={given.kind}",
            f"--live-config={config}",
            f"--live-address={given.address}",
            f"--live-patience={given.patience:g}",
            f"--live-trials={given.trials}",
            *(f"--live-without={feature}" for feature in without),
        ]
        folder = self.folder / f"tests-{secrets.token_hex(4)}"
        return self.interrupts.run(suite.command(tests, folder, [*always, *options], given.only)) == 0


async def _is_served(admin: Path, kind: Kind) -> bool:
    if is_served := await offers.serves(admin, kind):
        print(f"offers {kind.plural}.{kind.group}")
    else:
        print(f"left out: {kind.missing()}")
    return is_served


async def _require(asked: object) -> list[str]:
    """Says what is offered. The features that are not. Raises Unusable where one is needed."""
    absent, missing = [], []
    async for offer in asked:  # type: ignore[attr-defined]
        print(offer)
        if not offer.is_there and offer.is_needed:
            missing.append(offer.what)
        elif not offer.is_there and offer.feature is not None:
            absent.append(str(offer.feature))
    if missing:
        raise Unusable(f"the kubeconfig's user may not, or the server does not offer to: {', '.join(missing)}")
    return absent


def _told_left(left: list[str]) -> bool:
    """Whether nothing is."""
    for line in left:
        print(f"left behind: {line}", file=sys.stderr)
    if not left:
        print("nothing is left there")
    return not left


if __name__ == "__main__":
    sys.exit(main())
